#!/usr/bin/env python3
"""Runs the CUDA conformance tests under compute-sanitizer: memcheck, racecheck, synccheck and initcheck.

    bench/sanitize_cuda.py --json bench/results/h200-sanitizer.json    all four: some minutes on one GPU
    bench/sanitize_cuda.py --tools racecheck --shards 64 --sample 4    one tool on 4 parts of 64

It needs an NVIDIA GPU, CUDA's compute-sanitizer and a conformance_test of the preset `cuda` (CONFORMANCE_TEST names it).
Each tool has the tests dealt out to parts that run --jobs at a time. The exit status is 0 only if every part ended,
every test of it passed or skipped itself, and no tool had anything to say. racecheck doesn't see everything: LEFT_OUT and
LEFT_OUT_KERNELS say what is left out for it, and why.

What it can't see: a working buffer of the CUDA backend belongs to one use (src/backend/cuda/device_scratch.h), but is
kept, and only grows, for as long as its backend lives. Reads past the end of what an operation asked for, or of what an
earlier operation left there, are not errors to memcheck and initcheck. Each test has a backend of its own, so that is
limited to the calls of one test; and matrices in tests have padding full of NaN, which spoils results that read it.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from record import commit, describe_machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The dearest first, so that the last parts to run are short ones.
TOOLS = ["racecheck", "initcheck", "memcheck", "synccheck"]
FILTER = "*cuda*"
# Tests that a tool takes too long for.
DEEP = "*.DeepSequencesInAnyPieces/cuda_"
LEFT_OUT = {"racecheck": [DEEP + name for name in (
    "head_512 head_512_exact head_512_cap_sinks head_320 head_128_window wide_cap head_128_exact grouped_exact "
    "head_128_fp8_sinks grouped odd_f32 fp8 large_pages window window_of_one soft_cap sinks sinks_window_cap sharp "
    "wide_fp8_window").split()]}
WHY_LEFT_OUT = ("2600 tokens take racecheck up to half a minute each. Of the deep sequences it sees head_128, wide and "
                "head_512_fp8_window, of each other kind those of 330 tokens.")
# Kernels that a tool misreads.
LEFT_OUT_KERNELS = {"racecheck": "async_product_kernel"}
WHY_LEFT_OUT_KERNELS = ("Blocks of a cluster hand their rings over by arriving at each other's barriers. racecheck follows "
                        "barriers within a block (attention's), but of these kernels it reports every read of the ring "
                        "against every copy into it. So it says nothing about them, and their order is unchecked.")
# How many parts a tool's tests are dealt out to, at most: each costs the start of a process and of a context.
SHARDS = 24
# Processes wait for each other at the GPU: sixteen at a time get less done than a few.
JOBS = 6
TOOL_OPTIONS = {"memcheck": ["--leak-check", "full"]}


def filter_of(tool, wanted):
    left_out = LEFT_OUT.get(tool, [])
    return wanted + ("" if not left_out else (":" if "-" in wanted else "-") + ":".join(left_out))


def options_of(tool, sanitizer):
    """The tool's own options; kernels can't be left out by a compute-sanitizer that doesn't know how."""
    options = TOOL_OPTIONS.get(tool, [])
    if tool in LEFT_OUT_KERNELS:
        text = subprocess.run([sanitizer, "--help"], capture_output=True, text=True, check=False).stdout
        for name in ("--kernel-regex-exclude", "--kernel-name-exclude"):
            if name in text:
                return [*options, name, f"kns={LEFT_OUT_KERNELS[tool]}"]
    return options


def find_sanitizer():
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(found):
        sys.exit("error: compute-sanitizer isn't here (it comes with the CUDA toolkit)")
    return found


def run_part(arguments, tool, shard):
    """What a part printed, or None if it took too long, and its exit status and seconds."""
    command = [arguments.sanitizer, "--tool", tool, *arguments.options[tool], "--print-limit", "50",
               arguments.program, f"--gtest_filter={filter_of(tool, arguments.filter)}"]
    environment = dict(os.environ, GTEST_TOTAL_SHARDS=str(arguments.shards), GTEST_SHARD_INDEX=str(shard))
    log = arguments.logs / f"{tool}-{shard}.log"
    begin = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(max(arguments.deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = None
    return tool, shard, status, time.monotonic() - begin, log.read_text(encoding="utf-8", errors="replace")


def read_part(result, status, text):
    """Adds what a part's output says to the counts of its tool."""
    for key, pattern in (("passed", r"^\[  PASSED  \] (\d+) test"), ("skipped", r"^\[  SKIPPED \] (\d+) test"),
                         ("failed", r"^\[  FAILED  \] (\d+) test"), ("findings", r"ERROR SUMMARY: (\d+) error"),
                         ("findings", r"RACECHECK SUMMARY: (\d+) hazard"),
                         ("leaks", r"LEAK SUMMARY: \d+ bytes leaked in (\d+) alloc")):
        result[key] += sum(int(count) for count in re.findall(pattern, text, re.MULTILINE))
    ended = re.search(r"(ERROR|RACECHECK) SUMMARY", text) and re.search(r"test suites? ran\.", text)
    result["parts"] += 1
    result["parts_not_ended"] += not ended
    result["parts_that_failed"] += status not in (0, None)
    return re.findall(r"^\[       OK \] (\S+?),? .*\((\d+) ms\)$", text, re.MULTILINE)


def is_clean(result):
    return result["passed"] > 0 and not any(
        result[key] for key in ("failed", "findings", "leaks", "parts_not_ended", "parts_that_failed"))


def run_all(arguments):
    """{tool: counts}, and the tests that took longest, of each tool."""
    results = {tool: collections.Counter() for tool in arguments.tools}
    slow = {tool: [] for tool in arguments.tools}
    seconds = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        parts = [pool.submit(run_part, arguments, tool, shard)
                 for tool in TOOLS if tool in arguments.tools for shard in range(arguments.sample)]
        for part in concurrent.futures.as_completed(parts):
            tool, shard, status, took, text = part.result()
            seconds[tool] += took
            slow[tool] += [(int(ms), name) for name, ms in read_part(results[tool], status, text)]
            print(f"{tool} part {shard}: status {status}, {took:.0f} s", file=sys.stderr, flush=True)
    for tool in arguments.tools:
        results[tool]["process_seconds"] = round(seconds[tool])
    return results, {tool: sorted(tests, reverse=True)[:arguments.slowest] for tool, tests in slow.items()}


def to_json(arguments, results, took):
    version = subprocess.run([arguments.sanitizer, "--version"], capture_output=True, text=True, check=False).stdout
    return {
        "target": "gpu-sanitizer",
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        **describe_machine(True),
        "compute_sanitizer": version.strip().splitlines()[-1] if version.strip() else "unknown",
        "command": "bench/sanitize_cuda.py" + ("" if arguments.sample == arguments.shards else
                                               f" --shards {arguments.shards} --sample {arguments.sample}"),
        "seconds": round(took),
        "runs": [{
            "command": " ".join(["compute-sanitizer", "--tool", tool, *arguments.options[tool], "conformance_test",
                                 f"--gtest_filter='{filter_of(tool, arguments.filter)}'"]),
            "tool": tool,
            "clean": is_clean(results[tool]),
            **{key: results[tool][key] for key in ("passed", "skipped", "failed", "findings", "leaks", "parts",
                                                   "parts_not_ended", "parts_that_failed", "process_seconds")},
            **({"why_tests_are_left_out": WHY_LEFT_OUT} if tool in LEFT_OUT else {}),
            **({"why_kernels_are_left_out": WHY_LEFT_OUT_KERNELS} if tool in LEFT_OUT_KERNELS else {}),
        } for tool in arguments.tools],
    }


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS), help="separated by commas (all)")
    parser.add_argument("--filter", default=FILTER, help=f"which tests, as GoogleTest's filters say it ({FILTER})")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"processes at a time ({JOBS})")
    parser.add_argument("--shards", type=int, default=SHARDS, help=f"parts of each tool's tests ({SHARDS})")
    parser.add_argument("--sample", type=int, help="run only the first so many parts")
    parser.add_argument("--most-seconds", type=float, default=86400, help="after so many, what still runs is stopped")
    parser.add_argument("--logs", type=pathlib.Path, default=ROOT / "build/logs/sanitizer", help="folder of the output")
    parser.add_argument("--slowest", type=int, default=0, help="name so many tests that took longest under each tool")
    parser.add_argument("--json", type=pathlib.Path, help="write the counts there")
    arguments = parser.parse_args()
    arguments.tools = arguments.tools.split(",")
    if not set(arguments.tools) <= set(TOOLS):
        parser.error(f"tools are {', '.join(TOOLS)}")
    arguments.sample = min(arguments.sample or arguments.shards, arguments.shards)
    arguments.program = os.environ.get("CONFORMANCE_TEST", str(ROOT / "build/cuda/tests/conformance/conformance_test"))
    if not os.path.exists(arguments.program):
        parser.error(f"no {arguments.program}: cmake --preset cuda && cmake --build --preset cuda -t conformance_test")
    arguments.sanitizer = find_sanitizer()
    arguments.options = {tool: options_of(tool, arguments.sanitizer) for tool in arguments.tools}
    arguments.logs.mkdir(parents=True, exist_ok=True)
    arguments.deadline = time.monotonic() + arguments.most_seconds
    return arguments


def main():
    arguments = read_arguments()
    begin = time.monotonic()
    results, slow = run_all(arguments)
    for tool in arguments.tools:
        counts = results[tool]
        print(f"{tool}: {'clean' if is_clean(counts) else 'NOT CLEAN'}: {counts['passed']} passed, "
              f"{counts['skipped']} skipped, {counts['failed']} failed; {counts['findings']} findings, "
              f"{counts['leaks']} leaks; {counts['parts_not_ended']} of {counts['parts']} parts not ended"
              + (f"; left out: {len(LEFT_OUT[tool])} tests" if tool in LEFT_OUT else "")
              + (f", kernels {LEFT_OUT_KERNELS[tool]}" if tool in LEFT_OUT_KERNELS else ""))
        for milliseconds, name in slow[tool]:
            print(f"  {milliseconds:8d} ms  {name}")
    if arguments.json:
        arguments.json.write_text(json.dumps(to_json(arguments, results, time.monotonic() - begin), indent=1) + "\n",
                                  encoding="utf-8")
    print(f"logs: {arguments.logs}", file=sys.stderr)
    sys.exit(not all(is_clean(results[tool]) for tool in arguments.tools))


if __name__ == "__main__":
    main()
