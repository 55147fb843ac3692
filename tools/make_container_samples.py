#!/usr/bin/env python3
"""Write the small container files of tests/data/containers with the usual writers.

`sample.gguf` comes from PyPI `gguf`, `sample.safetensors` from PyPI `safetensors`, so that the readers are tried on files
that this project did not lay out. Each holds a few keys and tensors of several types, all values counting upwards.
"""

import argparse
import pathlib

import gguf
import numpy as np
import safetensors.numpy


def write_gguf(path: pathlib.Path) -> None:
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("sample")
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_token_list(["<s>", "</s>", "a", "\u00e9", "\U0001f600"])
    writer.add_token_scores([0.0, -1.0, -2.5, -3.0, -4.0])
    writer.add_token_types([3, 3, 1, 1, 1])
    writer.add_add_bos_token(True)
    writer.add_tensor("token_embd.weight", np.arange(5 * 32, dtype=np.float32).reshape(5, 32))
    writer.add_tensor("blk.0.attn_norm.weight", np.arange(32, dtype=np.float32))
    writer.add_tensor("blk.0.attn_q.weight", np.arange(3 * 32, dtype=np.float16).reshape(3, 32))
    q8_0 = np.arange(2 * 34, dtype=np.uint8).reshape(2, 34)
    writer.add_tensor("blk.0.attn_k.weight", q8_0, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors(path: pathlib.Path) -> None:
    tensors = {
        "model.embed_tokens.weight": np.arange(5 * 32, dtype=np.float32).reshape(5, 32),
        "model.norm.weight": np.arange(32, dtype=np.float16),
        "model.layers.0.scale": np.array(1.5, dtype=np.float32),
        "model.layers.0.codes": np.arange(24, dtype=np.uint8).reshape(3, 8),
        "model.layers.0.empty": np.zeros((0, 4), dtype=np.int64),
    }
    safetensors.numpy.save_file(tensors, str(path), metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path("tests/data/containers"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder / "sample.gguf")
    write_safetensors(folder / "sample.safetensors")


if __name__ == "__main__":
    main()
