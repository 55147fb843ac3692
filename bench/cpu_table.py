#!/usr/bin/env python3
"""Write the CPU table of docs/performance.md, and the short one of README.md, from bench/results/*.json.

    cpu_table.py            rewrites the part of each page between its two markers
    cpu_table.py --print    shows it instead

A figure that bench/results doesn't have is "not measured". What bounds a figure is judgement and stands in ROWS.
"""

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKER = "bench/cpu_table.py"


def results(name):
    path = ROOT / "bench" / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def percent(share):
    return f"{share * 100:.0f} %" if share else "unknown"


def kernel(name, **wanted):
    """Cases of `bench kernels`: share of the limit, and the rate."""
    record = results(name)
    if record is None:
        return None
    parts = []
    for row in record["results"]:
        if all(row[key] == value for key, value in wanted.items()):
            bound = row["flops"] / max(row["bytes"], 1) > 64
            rate = f"{row['gflop_s']:.0f} GFLOP/s" if bound else f"{row['gb_s']:.1f} GB/s"
            tokens = "token" if row["tokens"] == 1 else "tokens"
            label = f"{row['format']} {row['tokens']} {tokens}" if row["op"] == "linear" else \
                f"{row['op']} {row['format']} {row['shape']}, {row['tokens']} {tokens}"
            parts.append(f"{label}: {percent(row['share_of_limit'])}, {rate}")
    return "<br>".join(parts) or None


def model(name, *tests):
    """Tests of `bench`: tokens a second, and the share."""
    record = results(name)
    if record is None:
        return None
    parts = []
    for row in record["results"]:
        if not tests or row["test"] in tests:
            parts.append(f"{row['test']}: {row['tok_s']['median']:.1f} tok/s, {percent(row['share_of_limit'])}")
    return f"{record['command'].split('--synthetic ')[1].split(' --tests')[0]}<br>" + "<br>".join(parts)


def ratio(a, b, field="seconds"):
    """Median of each case of one run by that of another."""
    first, second = results(a), results(b)
    if first is None or second is None:
        return None
    return ", ".join(f"{x['format']} {x['tokens']}: {x[field]['median'] / y[field]['median']:.2f}"
                     for x, y in zip(first["results"], second["results"]))


def rates(a, b):
    first, second = results(a), results(b)
    if first is None or second is None:
        return None
    return ", ".join(f"{x['test']}: {x['tok_s']['median'] / y['tok_s']['median'] * 100:.0f} %"
                     for x, y in zip(first["results"], second["results"]))


def perplexity(name):
    """Each precision's perplexity against the base's."""
    record = results(name)
    if record is None:
        return None
    base, *others = record["results"]
    parts = [f"{base['model']}: {base['ppl']:.4f} ({base['tokens']} tokens)"]
    for row in others:
        against = row["against"]
        parts.append(f"{row['model']}, {row['precision']}: {row['ppl']:.4f}, {(row['ppl'] / base['ppl'] - 1) * 100:+.4f} %; "
                     f"KL mean {against['mean_kl']:.1e}, 99.9 % {against['kl_99_9']:.1e}, max {against['max_kl']:.1e}; "
                     f"same top {against['same_top'] * 100:.2f} %")
    return "<br>".join(parts)


def joined(*parts):
    return "<br>".join(part for part in parts if part) or None


def rows():
    """number, what, target, measured, result files, what bounds it."""
    bounds = json.loads((ROOT / "bench" / "bounds.json").read_text())
    table = [
        ("C1", "MXFP4, one token, from memory", ">= 0.92 RAW", joined(kernel("c1-c2", format="mxfp4"), kernel("c1-c2", format="mxfp4:gguf")), ["c1-c2"]),
        ("C2", "NVFP4, one token, from memory", ">= 0.90 RAW", joined(kernel("c1-c2", format="nvfp4"), kernel("c1-c2", format="nvfp4:gguf")), ["c1-c2"]),
        ("C3", "decode of 4 and 16 sequences, 1B shape", "<= 1.3x, 1.25x the floor (77 %, 80 %)",
         joined(model("c3-c4-mxfp4", "tg6x4", "tg3x16"), model("c3-c4-nvfp4", "tg6x4", "tg3x16"), kernel("c3-kernels")), ["c3-c4-mxfp4", "c3-c4-nvfp4", "c3-kernels"]),
        ("C4", "512 tokens: one linear; prefill of the 1B shape", ">= 0.90 DP",
         joined(kernel("c4-kernels"), model("c3-c4-mxfp4", "pp512"), model("c3-c4-nvfp4", "pp512")), ["c4-kernels", "c3-c4-mxfp4", "c3-c4-nvfp4"]),
        ("C5", "block FP8 and bf16: 1 and 512 tokens", ">= 0.92 RAW; 0.88, 0.92 DP", kernel("c5"), ["c5"]),
        ("C6", "forced AVX2, one token", ">= 0.85 RAW", kernel("c6"), ["c6"]),
        ("C7", "AMX bf16, 16 cores: 512, 64 tokens", ">= 0.9x torch: 3.7, 2.3 TFLOP/s",
         joined(kernel("c7", tokens=1), kernel("c7", tokens=64), kernel("c7", tokens=512)), ["c7"]),
        ("C8", "experts, 1 to 512 tokens", ">= 0.75 DP at 8-16 rows an expert", kernel("c8"), ["c8"]),
        ("C9", "attention: decode, prefill", ">= 0.70 RAW; 0.60 DP", joined(kernel("c9"), model("c9-depth")), ["c9", "c9-depth"]),
        ("C10", "two threads by one, cache-resident", ">= 1.95x", ratio("c10-one", "c10-two"), ["c10-one", "c10-two"]),
        ("C11", "beside two busy neighbours, by alone", ">= 40 %", rates("c11-busy", "c11-alone"), ["c11-alone", "c11-busy"]),
        ("C12", "whole models", "decode >= 0.85 RAW",
         joined(model("c12-135m"), model("c3-c4-mxfp4", "pp512", "tg16"), model("c3-c4-nvfp4", "pp512", "tg16"), model("c12-4b"), model("c12-30b"), model("c12-20b"), model("c12-35b"), model("c12-26b")),
         ["c12-135m", "c12-4b", "c12-30b", "c12-20b", "c12-35b", "c12-26b"]),
        ("C13", "`--precision f32` by bf16, one token: time", "<= 1.15x", ratio("c13", "c13-bf16"), ["c13", "c13-bf16"]),
        ("C14", "perplexity against weights expanded to F32", "within 0.1 %", perplexity("c14"), ["c14"]),
    ]
    return [(*row, bounds[row[0]]) for row in table]


def commands(files):
    found = [results(name) for name in files]
    return "<br>".join(f"`{record['command'].split(' --device cpu')[0]}`" for record in found if record) or "-"


def text():
    lines = ["| # | what | target | measured | command | what bounds it |", "| --- | --- | --- | --- | --- | --- |"]
    for number, what, target, measured, files, bound in rows():
        lines.append(f"| {number} | {what} | {target} | {measured or 'not measured'} | {commands(files)} | {bound} |")
    files = sorted((ROOT / "bench" / "results").glob("*.json"))
    records = [record for record in (json.loads(file.read_text()) for file in files) if "cpu" in record and "device" not in record]
    machines = {(r["cpu"], r["cpu_number"]) for r in records}
    dates = sorted(r["date"] for r in records)
    if dates:
        lines += ["", f"Measured on {', '.join(f'{cpu} ({number})' for cpu, number in sorted(machines))}, {dates[0]} to {dates[-1]}; commits, clock and repetitions are in the files."]
    return "\n".join(lines)


def summary():
    """A few lines of it, for the README."""
    wanted = [("one token of MXFP4, from memory", "c1-c2", kernel("c1-c2", format="mxfp4:gguf", tokens=1)),
              ("one token of NVFP4, from memory", "c1-c2", kernel("c1-c2", format="nvfp4:gguf", tokens=1)),
              ("one token of Q8_0, from memory", "ggml", kernel("ggml", format="q8_0", tokens=1)),
              ("512 tokens of BF16", "c5", kernel("c5", format="bf16", tokens=512)),
              ("attention over 8192 cached tokens", "c9", kernel("c9", shape="1 x 8192")),
              ("attention of a prompt of 4096", "c9", kernel("c9", op="prefill", shape="4096")),
              ("SmolLM2-135M shape, Q4_1", "c12-135m", model("c12-135m"))]
    lines = ["| what | measured: share of what these cores can do | command |", "| --- | --- | --- |"]
    for what, file, measured in wanted:
        lines.append(f"| {what} | {measured or 'not measured'} | {commands([file])} |")
    record = results("c1-c2")
    if record:
        lines += ["", f"On an {record['cpu']} ({record['cpu_number']}), two threads, commit {record['commit']}, {record['date'][:10]}."]
    return "\n".join(lines)


def rewrite_between(page, marker, new):
    """Replaces what stands between the page's two comments that name `marker`."""
    begin, end = f"<!-- begin: {marker} -->", f"<!-- end: {marker} -->"
    before, rest = page.read_text().split(begin)
    page.write_text(f"{before}{begin}\n{new}\n{end}{rest.split(end)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the table instead of writing it")
    if parser.parse_args().print:
        print(text())
        return
    rewrite_between(ROOT / "docs" / "performance.md", MARKER, text())
    rewrite_between(ROOT / "README.md", MARKER, summary())


if __name__ == "__main__":
    main()
