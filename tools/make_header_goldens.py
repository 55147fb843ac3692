#!/usr/bin/env python3
"""Make tests/data/headers: configurations of published checkpoints and the figures that our tensor tables must give.

    make_header_goldens.py HEADERS_DIR OUT_DIR

HEADERS_DIR holds one folder a checkpoint, with recipe.json, config.json.gz (safetensors) and make_sparse.py beside them.
Each output file holds the configuration without its quantisation and encoder parts ("config"), or a GGUF file's keys
("keys"), the name of a tensor that shows the name prefix, the optional roles that the files hold, and what
`make_sparse.py expect` says.
"""
import argparse
import importlib.util
import json
import os
import sys

KEPT = ("architecture", "parameters", "layers", "vocab_size", "context_length", "experts")
DROPPED = ("quantization_config", "quantization", "vision_config", "audio_config")


def load_module(path):
    """Import make_sparse.py from where it lies."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("make_sparse", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def optional_roles(names, recipe):
    """The optional roles of our tables that a list of tensor names holds."""
    roles = []
    if "output.weight" in names or ("lm_head.weight" in names and not recipe.get("layout", {}).get("stored_head")):
        roles.append("head")
    if any(name.startswith("mtp.") for name in names):
        roles.append("mtp")
    if recipe["container"] == "gguf" and recipe["family"] == "gemma4":
        full = [n for n in names if n.endswith("attn_v.weight")]
        layers = recipe["kv"]["gemma4.block_count"]
        if len(full) == layers:
            roles.append("v")
    return roles


def golden(sparse, name):
    """The golden of one header, as a dict."""
    recipe = sparse.load(name, "recipe.json")
    expected = sparse.expect(name)
    out = {key: expected[key] for key in KEPT if key in expected}
    if recipe["container"] == "gguf":
        _, tensors = sparse.gguf_tensors(name)
        out["keys"] = {**recipe["kv"], "tokenizer.ggml.tokens": recipe["vocab"]}
    else:
        _, config, tensors = sparse.tensors_of(name)
        out["config"] = {k: v for k, v in config.items() if k not in DROPPED}
        out["prefix"] = next(n for n in tensors if ".layers.0." in n and not n.startswith(("mtp", "model.v"))).split("layers.0.")[0]
    out["optional_roles"] = optional_roles(set(tensors), recipe)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headers_dir")
    parser.add_argument("out_dir")
    args = parser.parse_args()
    sparse = load_module(os.path.join(args.headers_dir, "make_sparse.py"))
    os.makedirs(args.out_dir, exist_ok=True)
    for name in sparse.names():
        if name.startswith("refuse-"):
            continue
        with open(os.path.join(args.out_dir, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(golden(sparse, name), file, separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main()
