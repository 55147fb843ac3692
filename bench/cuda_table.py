#!/usr/bin/env python3
"""Write the GPU tables of docs/performance.md and README.md from bench/results/h200-*.json (bench/run_cuda.sh and
bench/profile_cuda.py).

    cuda_table.py            rewrites the parts of each page between their markers
    cuda_table.py --print    shows them instead

A figure that bench/results doesn't have is "not measured".
"""

import argparse

import cuda_targets
import profile_cuda
from cpu_table import ROOT, results, rewrite_between
from cuda_results import (PEER_CPU_EXPERTS, PEER_DECODE, PEER_DEEP, PEER_PREFILL, PEER_STEP_MS, PREFIX, by_peer, is_exact,
                          name_of, rate, runs, share, step_ms, tests, title, whole, words_after)

MARKER = "bench/cuda_table.py"


def model_rows():
    deep = tests("depth", depth=32000)
    for name, found in tests("models").items():
        decode, prefill = found.get("tg128"), found.get("pp2048")
        depth = deep.get(name, {}).get("tg32")
        steps = []
        for sequences, test in ((8, "tg32x8"), (32, "tg32x32"), (128, "tg16x128")):
            row = found.get(test)
            if row:
                milliseconds = step_ms(row, sequences)
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


# What the table shows of OPERATIONS' files, which have more: operation -> formats, shapes (empty: all) and tokens (empty: all).
OPERATIONS = ("linears", "operations", "experts")
SHOWN = {"chain apart": (("nvfp4", "mxfp4", "fp8-block"), ("8192x8192", "57344x8192"), (1, 8, 16)),
         "linear": (("nvfp4", "fp8-block", "bf16", "q4_k"), ("8192x8192",), (1, 16, 64, 256, 1024, 4096)),
         "router": (("bf16",), (), (1, 16, 256)),
         "experts": (("nvfp4", "mxfp4", "fp8-block"), (), (1, 16, 128)),
         "mixture": (("nvfp4", "mxfp4", "fp8-block"), (), (1,))}
SHOWN["chain overlap"] = SHOWN["chain norm"] = SHOWN["chain apart"]


def is_shown(row):
    if row["op"] not in SHOWN:
        return True
    formats, shapes, tokens = SHOWN[row["op"]]
    return row["format"] in formats and (not shapes or row["shape"] in shapes) and (not tokens or row["tokens"] in tokens)


def kernels_table():
    lines = ["| operation | shape | tokens | us | GB/s | TFLOP/s | of limit |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for command, rows in (run for group in OPERATIONS for run in runs(group)):
        exact = ", f32" if is_exact(command) else ""
        for row in filter(is_shown, rows):
            lines.append(f"| {row['op']} {row['format']}{exact} | {row['shape']} | {row['tokens']} "
                         f"| {row['seconds']['median'] * 1e6:.1f} | {row['gb_s']:.0f} | {row['gflop_s'] / 1000:.0f} | {share(row)} |")
    return "\n".join(lines)


def placement_table():
    lines = ["| model, weights | experts | tg64 tok/s | by llama.cpp | pp100 tok/s | pp2048 tok/s | by llama.cpp |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for command, found in runs("placement"):
        mode = words_after(command, "--experts")
        rows = {row["test"]: row for row in found}
        decode, short, prefill = (rate(rows.get(test)) for test in ("tg64", "pp100", "pp2048"))
        name = name_of(command)
        peers = PEER_CPU_EXPERTS.get(name, (None, None)) if mode == "cpu" else (None, None)
        half = " (half of them in slots)" if "--expert-cache" in command else ""
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


GROUPS = ("models", "launches", "llamacpp", "depth", "placement", *OPERATIONS, "host", "sm80", "peers", "profile")


def taken_at(group):
    record = results(PREFIX + group)
    if record is None:
        return f"{group}: not measured"
    return f"`bench/results/{PREFIX}{group}.json`: {record['device']}, commit {record['commit']}, {record['date']}"


def page():
    groups = "\n".join(f"- {taken_at(group)}" for group in GROUPS)
    parts = [models_table(), "By where the experts are:", placement_table()]
    if results(PREFIX + "llamacpp"):
        parts[1:1] = ["Beside llama.cpp, both on the same file in one run:", peer_table()]
    parts += ["Single operations, many in a recorded step:", kernels_table()]
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
        print(page(), cuda_targets.table(), profile_cuda.table(), summary(), sep="\n\n")
        return
    document = ROOT / "docs" / "performance.md"
    rewrite_between(document, MARKER, page())
    rewrite_between(document, cuda_targets.MARKER, cuda_targets.table())
    rewrite_between(document, profile_cuda.MARKER, profile_cuda.table())
    rewrite_between(ROOT / "README.md", MARKER, summary())


if __name__ == "__main__":
    main()
