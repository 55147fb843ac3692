#!/usr/bin/env python3
"""Write the GPU tables of docs/performance.md and README.md from bench/results/h200-*.json (bench/run_cuda.sh).

    cuda_table.py            rewrites the part of each page between its two markers
    cuda_table.py --print    shows them instead

A figure that bench/results doesn't have is "not measured".
"""

import argparse
import json

from cpu_table import ROOT, results, rewrite_between

MARKER = "bench/cuda_table.py"
PREFIX = "h200-"
# llama.cpp (build 11434) on such a card: tokens a second of one sequence, of a prompt of 2048, with experts on the
# host, and milliseconds of a step of so many sequences. Measured once, apart from our runs.
PEER_DECODE = {"gpt-oss-20b": 304, "gpt-oss-120b": 219, "llama-3.1-8b nvfp4": 277, "llama-3.1-8b bf16": 204,
               "qwen3-30b-a3b nvfp4": 252, "qwen35-35b-a3b nvfp4": 214}
PEER_DEEP = {"llama-3.1-8b nvfp4": 185, "qwen3-30b-a3b nvfp4": 186, "qwen35-35b-a3b nvfp4": 207}
PEER_PREFILL = {"llama-3.1-8b nvfp4": 8300, "qwen3-30b-a3b nvfp4": 9900, "gpt-oss-20b": 14000,
                "qwen35-35b-a3b nvfp4": 8300}
PEER_STEP_MS = {"qwen3-30b-a3b nvfp4": {8: 9.1, 32: 34.0, 128: 73.0}}
PEER_CPU_EXPERTS = {"qwen3-30b-a3b nvfp4": (34.7, 4580), "gpt-oss-20b": (37.1, 5950),
                    "qwen35-35b-a3b nvfp4": (45.5, 3362)}  # generation, prompt
TITLES = {"llama-3.2-1b": "Llama-3.2-1B", "llama-3.1-8b": "Llama-3.1-8B", "qwen3-30b-a3b": "Qwen3-30B-A3B",
          "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b", "qwen35-35b-a3b": "Qwen3.5-35B-A3B",
          "gemma4-26b-a4b": "Gemma-4-26B-A4B"}
FORMATS = {"nvfp4": "NVFP4", "mxfp4": "MXFP4", "fp8-block": "block FP8", "bf16": "BF16", "q4_k": "Q4_K"}


def name_of(command):
    """"llama-3.1-8b nvfp4": the shape and, where given, the format of a command."""
    words = command.split()
    shape = words[words.index("--synthetic") + 1]
    return f"{shape} {words[words.index('--format') + 1]}" if "--format" in words else shape


def title(name):
    shape, _, kind = name.partition(" ")
    return f"{TITLES.get(shape, shape)}, {FORMATS.get(kind, kind) if kind else 'MXFP4'}"


def tests(group):
    """{model: {test: result}} of a group's runs."""
    record = results(PREFIX + group)
    found = {}
    for run in record["runs"] if record else []:
        if "--synthetic" in run["command"]:
            found.setdefault(name_of(run["command"]), {}).update({row["test"]: row for row in run["results"]})
    return found


def rate(row):
    return row["tok_s"]["median"] if row else None


def whole(value):
    return f"{value:.0f}" if value else "-"


def by_peer(value, peer):
    return f"{value / peer:.1f}x" if value and peer else "-"


def share(row):
    return f"{row['share_of_limit'] * 100:.0f} %" if row and row["share_of_limit"] else "-"


def model_rows():
    deep = tests("depth")
    for name, found in tests("models").items():
        decode, prefill = found.get("tg128"), found.get("pp2048")
        depth = deep.get(name, {}).get("tg32")
        steps = []
        for sequences, test in ((8, "tg32x8"), (32, "tg32x32"), (128, "tg16x128")):
            row = found.get(test)
            if row:
                milliseconds = 1000.0 * sequences / rate(row)
                peer = PEER_STEP_MS.get(name, {}).get(sequences)
                steps.append(f"{milliseconds:.1f}" + (f" ({peer / milliseconds:.1f}x)" if peer else ""))
        yield [title(name), whole(rate(decode)), share(decode), by_peer(rate(decode), PEER_DECODE.get(name)),
               whole(rate(prefill)), share(prefill), by_peer(rate(prefill), PEER_PREFILL.get(name)),
               f"{rate(depth):.0f}, {by_peer(rate(depth), PEER_DEEP.get(name))}" if depth else "", ", ".join(steps)]


def models_table():
    lines = ["| model, weights | tg128 tok/s | of limit | by llama.cpp | pp2048 tok/s | of limit | by llama.cpp "
             "| tg32 at 32000, by llama.cpp | ms a step of 8, 32, 128 sequences (by llama.cpp) |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in model_rows()])


# What the table shows of h200-linears.json and h200-operations.json, which have more: operation -> formats, shapes (empty: all) and tokens.
SHOWN = {"chain apart": (("nvfp4", "mxfp4", "fp8-block"), ("8192x8192", "57344x8192"), (1, 8, 16)),
         "linear": (("nvfp4", "fp8-block", "bf16", "q4_k"), ("8192x8192",), (1, 16, 64, 256, 1024, 4096)),
         "experts": (("nvfp4", "mxfp4", "fp8-block"), (), (1, 16, 128))}
SHOWN["chain overlap"] = SHOWN["chain norm"] = SHOWN["chain apart"]


def is_shown(row):
    if row["op"] not in SHOWN:
        return True
    formats, shapes, tokens = SHOWN[row["op"]]
    return row["format"] in formats and (not shapes or row["shape"] in shapes) and row["tokens"] in tokens


def kernels_table():
    records = [results(PREFIX + group) for group in ("linears", "operations")]
    lines = ["| operation | shape | tokens | us | GB/s | TFLOP/s | of limit |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for run in (run for record in records if record for run in record["runs"]):
        exact = ", f32" if "--precision f32" in run["command"] else ""
        for row in filter(is_shown, run["results"]):
            lines.append(f"| {row['op']} {row['format']}{exact} | {row['shape']} | {row['tokens']} "
                         f"| {row['seconds']['median'] * 1e6:.1f} | {row['gb_s']:.0f} | {row['gflop_s'] / 1000:.0f} | {share(row)} |")
    return "\n".join(lines)


def placement_table():
    record = results(PREFIX + "placement")
    lines = ["| model, weights | experts | tg64 tok/s | by llama.cpp | pp100 tok/s | pp2048 tok/s | by llama.cpp |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for run in record["runs"] if record else []:
        words = run["command"].split()
        mode = words[words.index("--experts") + 1]
        rows = {row["test"]: row for row in run["results"]}
        decode, short, prefill = (rate(rows.get(test)) for test in ("tg64", "pp100", "pp2048"))
        name = name_of(run["command"])
        peers = PEER_CPU_EXPERTS.get(name, (None, None)) if mode == "cpu" else (None, None)
        half = " (half of them in slots)" if "--expert-cache" in words else ""
        lines.append(f"| {title(name)} | `{mode}`{half} | {whole(decode)} | {by_peer(decode, peers[0])} "
                     f"| {whole(short)} | {whole(prefill)} | {by_peer(prefill, peers[1])} |")
    return "\n".join(lines)


def peer_table():
    """Both on the same file in one run (bench/compare_llamacpp.py)."""
    record = results(PREFIX + "llamacpp")
    lines = ["| model | test | vernier tok/s | llama.cpp tok/s | ratio |", "| --- | --- | --- | --- | --- |"]
    for run in record["runs"] if record else []:
        for row in run["results"]:
            lines.append(f"| {run['model']} | {row['test']} | {row['vernier']['median']:.0f} "
                         f"| {row['llama.cpp']['median']:.0f} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def library_table():
    """Other libraries' kernels (bench/cuda_peers.py)."""
    record = results(PREFIX + "peers")
    lines = ["| library | operation | shape | tokens | us |", "| --- | --- | --- | --- | --- |"]
    for run in record["runs"] if record else []:
        for row in run["results"]:
            if "us" in row:
                lines.append(f"| {row['library']} | {row['op']} | {row['shape']} | {row['rows']} | {row['us']:.1f} |")
    return "\n".join(lines)


def taken_at(group):
    record = results(PREFIX + group)
    if record is None:
        return f"{group}: not measured"
    return f"`bench/results/{PREFIX}{group}.json`: {record['device']}, commit {record['commit']}, {record['date']}"


def page():
    groups = "\n".join(f"- {taken_at(group)}" for group in ("models", "llamacpp", "depth", "placement", "linears", "operations", "peers"))
    parts = [models_table(), "By where the experts are:", placement_table()]
    if results(PREFIX + "llamacpp"):
        parts[1:1] = ["Beside llama.cpp, both on the same file in one run:", peer_table()]
    parts += ["Single operations, called one after another:", kernels_table()]
    if results(PREFIX + "peers"):
        parts += ["Other libraries' kernels:", library_table()]
    return "\n\n".join([*parts, groups])


def summary():
    lines = ["| model, weights | tg128 tok/s | share of what the card can read | pp2048 tok/s |", "| --- | --- | --- | --- |"]
    lines += [f"| {row[0]} | {row[1]} | {row[2]} | {row[4]} |" for row in model_rows()]
    return "\n".join([*lines, "", taken_at("models") + "."])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the tables instead of writing them")
    if parser.parse_args().print:
        print(page(), summary(), sep="\n\n")
        return
    rewrite_between(ROOT / "docs" / "performance.md", MARKER, page())
    rewrite_between(ROOT / "README.md", MARKER, summary())


if __name__ == "__main__":
    main()
