#!/usr/bin/env python3
"""Writes the tiny models that seed the fuzzer of whole-model loading: tests/fuzz/corpus/model_load/*.gguf.

One layer, 64 wide, 40 tokens, random weights with a fixed seed. Needs PyPI gguf and numpy. Usage: make_tiny_models.py DIR
"""

import argparse
from pathlib import Path

import gguf
import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FF, VOCAB, EXPERTS = 64, 2, 1, 32, 64, 40, 2
Type = gguf.GGMLQuantizationType


def quantised(random, rows, cols, kind):
    """Random [rows, cols] weights as ggml stores them."""
    values = (random.standard_normal((rows, cols)) * 0.1).astype(np.float32)
    if kind == Type.NVFP4:  # four scales (E4M3 1.0 .. 1.875) and 32 bytes of codes for 64 values
        blocks = rows * cols // 64
        scales = random.integers(0x38, 0x40, (blocks, 4), dtype=np.uint8)
        codes = random.integers(0, 256, (blocks, 32), dtype=np.uint8)
        return np.concatenate([scales, codes], axis=1).reshape(rows, -1)
    if kind == Type.MXFP4:
        blocks = rows * cols // 32
        scales = random.integers(0x7C, 0x80, (blocks, 1), dtype=np.uint8)
        codes = random.integers(0, 256, (blocks, 16), dtype=np.uint8)
        return np.concatenate([scales, codes], axis=1).reshape(rows, -1)
    return gguf.quantize(values, kind)


def write(path, arch, kind, seed):
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", HIDDEN),
                       ("feed_forward_length", FF), ("attention.head_count", HEADS), ("attention.head_count_kv", KV_HEADS),
                       ("attention.key_length", HEAD_DIM), ("attention.value_length", HEAD_DIM), ("vocab_size", VOCAB)):
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{arch}.rope.freq_base", 10000.0)
    tokens = ["t", "0"] + [f"t{i}" for i in range(VOCAB - 3)] + ["<|end|>"]
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "gpt-2")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [1] * (VOCAB - 1) + [3])
    writer.add_array("tokenizer.ggml.merges", ["t 0"])
    writer.add_uint32("tokenizer.ggml.eos_token_id", VOCAB - 1)

    def vector(name, size):
        writer.add_tensor(name, np.ones(size, dtype=np.float32))

    def matrix(name, rows, cols, stored=kind, experts=0):
        data = quantised(random, rows * max(experts, 1), cols, stored)
        if experts:
            data = data.reshape(experts, rows, -1)
        writer.add_tensor(name + ".weight", data, raw_dtype=stored)
        if stored == Type.NVFP4:
            writer.add_tensor(name + ".scale", np.full(max(experts, 1), 0.01, dtype=np.float32))

    matrix("token_embd", VOCAB, HIDDEN, Type.F16)
    vector("output_norm.weight", HIDDEN)
    vector("blk.0.attn_norm.weight", HIDDEN)
    vector("blk.0.ffn_norm.weight", HIDDEN)
    matrix("blk.0.attn_q", HEADS * HEAD_DIM, HIDDEN)
    matrix("blk.0.attn_k", KV_HEADS * HEAD_DIM, HIDDEN)
    matrix("blk.0.attn_v", KV_HEADS * HEAD_DIM, HIDDEN)
    matrix("blk.0.attn_output", HIDDEN, HEADS * HEAD_DIM)
    if arch == "qwen3moe":
        vector("blk.0.attn_q_norm.weight", HEAD_DIM)
        vector("blk.0.attn_k_norm.weight", HEAD_DIM)
        writer.add_uint32(f"{arch}.expert_count", EXPERTS)
        writer.add_uint32(f"{arch}.expert_used_count", 1)
        writer.add_uint32(f"{arch}.expert_feed_forward_length", FF)
        matrix("blk.0.ffn_gate_inp", EXPERTS, HIDDEN, Type.F32)
        for name, rows, cols in (("gate", FF, HIDDEN), ("up", FF, HIDDEN), ("down", HIDDEN, FF)):
            matrix(f"blk.0.ffn_{name}_exps", rows, cols, kind, EXPERTS)
    else:
        for name, rows, cols in (("gate", FF, HIDDEN), ("up", FF, HIDDEN), ("down", HIDDEN, FF)):
            matrix(f"blk.0.ffn_{name}", rows, cols)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (arch, kind) in enumerate((("llama", Type.Q4_0), ("llama", Type.NVFP4), ("qwen3moe", Type.NVFP4),
                                         ("qwen3moe", Type.MXFP4))):
        write(folder / f"{arch}_{kind.name.lower()}.gguf", arch, kind, seed)


if __name__ == "__main__":
    main()
