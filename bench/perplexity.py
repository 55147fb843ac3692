#!/usr/bin/env python3
"""Measure target C14: a quantised model's perplexity against that of its weights expanded to F32.

    perplexity.py MODEL.gguf [--vernier PROGRAM] [--text FILE] [--chunks N]

Expands the weights (expand_gguf.py), lets the expanded model write its log-probabilities over a text (--precision f32), and
holds the quantised model against them with both precisions. Prints a JSON object a line: the base, then the two. The text
is this project's own pages on formats, families and decisions, unless one is given; its hash is in the lines.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from expand_gguf import expand

ROOT = Path(__file__).resolve().parent.parent


def own_text():
    pages = [page for folder in ("formats", "families", "decisions") for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
    return b"".join(page.read_bytes() for page in pages)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--vernier", default=str(ROOT / "build/release/vernier"))
    parser.add_argument("--text")
    parser.add_argument("--chunks", default="24", help="windows of 512 tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", default="0")
    arguments = parser.parse_args()
    text = Path(arguments.text).read_bytes() if arguments.text else own_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_bytes(text)
        expand(arguments.model, folder / "expanded.gguf")

        def perplexity(model, precision, *words):
            done = subprocess.run([arguments.vernier, "perplexity", model, "--device", arguments.device, "--threads",
                                   arguments.threads, "--precision", precision, "--chunks", arguments.chunks, "--json",
                                   *words], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                sys.exit(done.returncode)
            result = json.loads(done.stdout)
            result["model"] = Path(arguments.model).name + (", weights expanded to F32" if model != arguments.model else "")
            result["text_sha256"] = hashlib.sha256(text).hexdigest()
            print(json.dumps(result), flush=True)

        base = folder / "base.vnl"
        perplexity(folder / "expanded.gguf", "f32", "--save-logits", base, "--file", folder / "text.txt")
        (folder / "expanded.gguf").unlink()
        for precision in ("f32", "bf16"):
            perplexity(arguments.model, precision, "--kl-against", base)


if __name__ == "__main__":
    main()
