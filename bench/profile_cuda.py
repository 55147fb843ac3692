#!/usr/bin/env python3
"""Profiles single launches of the CUDA kernels with Nsight Compute and says what limits each.

    bench/profile_cuda.py                        every case: some two minutes on an H200
    bench/profile_cuda.py --most-seconds 55      the first ones, which matter most
    bench/profile_cuda.py "nvfp4 1" "prefill 8192"
    bench/profile_cuda.py --list

VERNIER: the program (build/release/vernier). NCU: Nsight Compute's `ncu`. COMMIT: as for bench/record.py. Writes
bench/results/h200-profile.json, from which bench/cuda_table.py makes a table; OUT and PREFIX: as for bench/run_cuda.sh.

`ncu` runs a kernel several times, alone, with empty caches and at whatever clock the card has. So a time here is not that
of a step, in which kernels overlap; bench/run_cuda.sh measures that. Of a case's kernels the last launch of each is kept.
"""

import argparse
import csv
import datetime
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from cpu_table import ROOT, results
from record import commit, describe_machine

MARKER = "bench/profile_cuda.py"
NCU = os.environ.get("NCU", "ncu")
LINEAR = "kernels --ops linear --working-set 64 --shapes 8192x8192"
MIXTURE = "kernels --ops mixture --working-set 64 --formats nvfp4"
ATTENTION, DELTA_NET = "kernels --ops attention --working-set 64", "kernels --ops delta-net --working-set 64"
MODELS = {"llama": "--synthetic llama-3.1-8b --format nvfp4 --layers 1", "gpt-oss": "--synthetic gpt-oss-20b --layers 1",
          "qwen3": "--synthetic qwen3-30b-a3b --format nvfp4 --layers 1", "qwen35": "--synthetic qwen35-35b-a3b --format nvfp4 --layers 4"}
# case: arguments of `vernier bench`, launches to look at. Where time ends, the last ones are left out.
CASES = {
    "nvfp4 1": (f"{LINEAR} --formats nvfp4 --rows 1", 2),
    "mixture small": (f"{MIXTURE} --rows 1 --cases '8of128 2048x768'", 6),
    "nvfp4 4096": (f"{LINEAR} --formats nvfp4 --rows 4096", 2),
    "experts 16": (f"{MIXTURE} --rows 16 --cases '8of128 2048x768'", 6),
    "prefill 8192": (f"{ATTENTION} --cases 8192", 1),
    "nvfp4 16": (f"{LINEAR} --formats nvfp4 --rows 16", 2),
    "nvfp4 64": (f"{LINEAR} --formats nvfp4 --rows 64", 3),
    "delta-net 1 x 32768": (f"{DELTA_NET} --cases '1 x 32768'", 3),
    "attention 1 x 1024": (f"{ATTENTION} --cases '1 x 1024'", 2),
    "fp8 1": (f"{LINEAR} --formats fp8-block --rows 1", 2),
    "f32 1": (f"{LINEAR} --formats nvfp4 --rows 1 --precision f32", 2),
    "step qwen3": (f"{MODELS['qwen3']} --tests tg4", 10),
    "step llama": (f"{MODELS['llama']} --tests tg4", 8),
    "mixture large": (f"{MIXTURE} --rows 1 --cases '4of128 2880x2880'", 6),
    "attention 1 x 32768": (f"{ATTENTION} --cases '1 x 32768'", 2),
    "delta-net 128 x 1": (f"{DELTA_NET} --cases '128 x 1'", 2),
    "fp8 4096": (f"{LINEAR} --formats fp8-block --rows 4096", 2),
    "nvfp4 1 large": ("kernels --ops linear --working-set 64 --shapes 57344x8192 --formats nvfp4 --rows 1", 2),
    "nvfp4 256": (f"{LINEAR} --formats nvfp4 --rows 256", 2),
    "experts 128": (f"{MIXTURE} --rows 128 --cases '8of128 2048x768'", 10),
    "step gpt-oss": (f"{MODELS['gpt-oss']} --tests tg4", 10),
    "step qwen35": (f"{MODELS['qwen35']} --tests tg4", 36),
    "prompt qwen3": (f"{MODELS['qwen3']} --tests pp2048", 14),
    "prompt llama": (f"{MODELS['llama']} --tests pp2048", 10),
    "step qwen3 8": (f"{MODELS['qwen3']} --tests tg4x8", 10),
    "step qwen3 32": (f"{MODELS['qwen3']} --tests tg4x32", 12),
    "attention 32 x 4096": (f"{ATTENTION} --cases '32 x 4096'", 1),
    "mxfp4 1": (f"{LINEAR} --formats mxfp4 --rows 1", 2),
    "nvfp4 8": (f"{LINEAR} --formats nvfp4 --rows 8", 2),
    "nvfp4 128": (f"{LINEAR} --formats nvfp4 --rows 128", 3),
    "nvfp4 1024": (f"{LINEAR} --formats nvfp4 --rows 1024", 2),
    "f32 4096": (f"{LINEAR} --formats nvfp4 --rows 4096 --precision f32", 2),
}
MOST_SECONDS_A_CASE = 40
# Kernels that prepare a case, or measure the device's ceilings.
LEFT_OUT = "regex:^(?!pack_|embed_kernel|read_kernel|product_kernel)"
ACTIVE, ELAPSED = "avg.pct_of_peak_sustained_active", "avg.pct_of_peak_sustained_elapsed"
# Percentages of what the card can do: of a multiprocessor's parts while it has work, else all the time.
SHARES = {
    "memory": f"gpu__dram_throughput.{ELAPSED}",
    "second-level cache": f"lts__throughput.{ELAPSED}",
    "first-level cache and shared memory": f"l1tex__throughput.{ACTIVE}",
    "issue slots": f"smsp__issue_active.{ACTIVE}",
    "integer pipe": f"sm__pipe_alu_cycles_active.{ACTIVE}",
    "fp32 pipe": f"sm__pipe_fma_cycles_active.{ACTIVE}",
    "tensor cores": f"sm__pipe_tensor_cycles_active.{ACTIVE}",
}
OTHERS = {"us": "gpu__time_duration.sum", "occupancy": f"sm__warps_active.{ACTIVE}", "registers": "launch__registers_per_thread",
          "shared_bytes": "launch__shared_mem_per_block", "blocks": "launch__grid_size", "multiprocessors": "launch__sm_count"}
# What a warp that can't issue waits for. Reasons that say only that another warp was chosen are left out.
STALLS = {
    "long_scoreboard": "memory or the second-level cache", "short_scoreboard": "shared memory", "barrier": "a barrier",
    "wait": "the fixed latency of its last instruction", "math_pipe_throttle": "a busy pipe", "gmma": "the tensor cores",
    "mio_throttle": "the queue to shared memory", "lg_throttle": "the queue to memory", "no_instruction": "instructions",
    "imc_miss": "constants", "branch_resolving": "a branch", "dispatch_stall": "dispatch", "membar": "a fence",
    "sleeping": "its own pause", "drain": "its stores",
}
STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
IS_BOUND = 70  # percent from which a resource is what limits


def metrics():
    return ",".join([*SHARES.values(), *OTHERS.values(), *(STALL_METRIC.format(reason) for reason in STALLS)])


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def short_name(name):
    """A kernel's name without namespaces and parameters."""
    name = name.split("(", 1)[0] if not name.startswith("(") else name
    return name.removeprefix("void ").replace("unnamed>::", "").strip()


def launches(output):
    """What ncu's raw page says, a dictionary a launch."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    return [row for row in rows if row["ID"]]  # the first is of units


def limit_of(kernel):
    """The resource that limits a kernel, or what its warps wait for where none is near its end."""
    if 2 * kernel["blocks"] < kernel["multiprocessors"]:
        return f"latency: {kernel['blocks']} blocks for {kernel['multiprocessors']} multiprocessors"
    shares = dict(kernel["shares"])
    if shares["second-level cache"] < shares["memory"] + 10:
        del shares["second-level cache"]  # what comes from memory goes through it
    busiest = max(shares, key=shares.get)
    if shares[busiest] >= IS_BOUND:
        return busiest
    return f"latency: warps wait for {kernel['stalls'][0][0]}" if kernel["stalls"] else "latency"


def kernels_of(rows):
    """The last launch of each kernel and grid, with how many there were."""
    found = {}
    for row in rows:
        waits = sorted(((STALLS[reason], number(row[STALL_METRIC.format(reason)])) for reason in STALLS), key=lambda wait: -wait[1])
        total = sum(value for _, value in waits) or 1.0
        kernel = {"kernel": short_name(row["Kernel Name"]), "us": round(number(row[OTHERS["us"]]) / 1000.0, 2),
                  "shares": {name: round(number(row[metric]), 1) for name, metric in SHARES.items()},
                  "occupancy": round(number(row[OTHERS["occupancy"]]), 1),
                  **{name: int(number(row[OTHERS[name]])) for name in ("registers", "shared_bytes", "blocks", "multiprocessors")},
                  "stalls": [[name, round(100.0 * value / total, 1)] for name, value in waits[:3] if value > 0.0]}
        kernel["limit"] = limit_of(kernel)
        key = (kernel["kernel"], kernel["blocks"])
        kernel["launches"] = found.get(key, {}).get("launches", 0) + 1
        found[key] = kernel
    return sorted(found.values(), key=lambda kernel: -kernel["us"])


def output_of(command, most_seconds):
    """What a command printed. One that takes too long is ended, with the program that it runs."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as child:
        try:
            return child.communicate(timeout=most_seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return child.communicate()[0] + f"\nended after {most_seconds:.0f} s"


def profile(case, most_seconds):
    """A case's kernels; none, with a word to the user, where that failed."""
    arguments, count = CASES[case]
    ncu = [NCU, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--kill", "yes",
           "--kernel-name-base", "function", "--kernel-name", LEFT_OUT, "--launch-count", str(count), "--metrics", metrics()]
    vernier = [os.environ.get("VERNIER", "build/release/vernier"), "bench", *shlex.split(arguments)]
    printed = output_of([*ncu, *vernier, "--device", "cuda", "--repeat", "1"], most_seconds)
    try:
        kernels = kernels_of(launches(printed))
    except (KeyError, csv.Error) as error:
        kernels, printed = [], f"{error!r}\n{printed}"
    if not kernels:
        print(f"{case}: not profiled: {printed[-600:]}", file=sys.stderr)
    return {"case": case, "command": f"vernier bench {arguments}", "results": kernels}


def cases():
    """{case: run} of the file; empty without it."""
    record = results("h200-profile")
    return {run["case"]: run for run in record["runs"]} if record else {}


def shares_text(kernel):
    """The three largest shares."""
    largest = sorted(kernel["shares"].items(), key=lambda share: -share[1])[:3]
    return ", ".join(f"{name} {value:.0f} %" for name, value in largest)


def words(case):
    """What limits a case's two longest kernels, for the table of targets."""
    run = cases().get(case)
    if not run or not run["results"]:
        return ""
    parts = [f"`{kernel['kernel'].split('<')[0]}` {kernel['limit']} ({shares_text(kernel)})" for kernel in run["results"][:2]]
    return f"*{case}*: {'; '.join(parts)}."


def table():
    lines = ["| case | kernel | us | limited by | memory | L2 | L1, shared | issue | integer | fp32 | tensor | occupancy, registers | "
             "warps that can't issue wait for |", "| --- " * 13 + "|"]
    for case, run in cases().items():
        for kernel in run["results"]:
            shares = " | ".join(f"{kernel['shares'][name]:.0f} %" for name in SHARES)
            waits = ", ".join(f"{name} {value:.0f} %" for name, value in kernel["stalls"])
            lines.append(f"| {case} | `{kernel['kernel']}` | {kernel['us']:.1f} | {kernel['limit']} | {shares} "
                         f"| {kernel['occupancy']:.0f} %, {kernel['registers']} | {waits} |")
    return "\n".join(lines) if len(lines) > 2 else "Not measured."


def write(record):
    """After each case, so that a run that is cut off leaves what it has."""
    out = os.path.join(os.environ.get("OUT", str(ROOT / "bench" / "results")), os.environ.get("PREFIX", "h200") + "-profile.json")
    with open(out, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="which; default: all")
    parser.add_argument("--list", action="store_true", help="print the cases and their commands")
    parser.add_argument("--most-seconds", type=float, default=86400.0, help="after so many no new case begins")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{case}: vernier bench {arguments}" for case, (arguments, _) in CASES.items()))
        return
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; --list names the cases")
    if shutil.which(NCU) is None:
        parser.error(f"{NCU} isn't there: Nsight Compute comes with the CUDA toolkit; NCU names it")
    start = time.monotonic()
    record = {"target": "profile", "commit": commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
              **describe_machine(gpu=True), "runs": []}
    for case in options.cases or CASES:
        taken = time.monotonic() - start
        if taken > options.most_seconds:
            print(f"no time left for {case}", file=sys.stderr)
            continue
        print(f"{case} ({taken:.0f} s)", file=sys.stderr)
        run = profile(case, min(MOST_SECONDS_A_CASE, options.most_seconds + 5.0 - taken))
        if run["results"]:
            record["runs"].append(run)
            write(record)


if __name__ == "__main__":
    main()
