#!/usr/bin/env python3
"""Runs the CUDA conformance tests under compute-sanitizer: memcheck, racecheck, synccheck and initcheck.

    bench/sanitize_cuda.py --json bench/results/h200-sanitizer.json    all four
    bench/sanitize_cuda.py --tools synccheck,memcheck --json FILE      two; what FILE says of the others stays in it
    bench/sanitize_cuda.py --patterns --json FILE                      what racecheck itself can and can't follow

It needs an NVIDIA GPU, CUDA's compute-sanitizer (COMPUTE_SANITIZER names another one than the PATH's) and, of the
preset `cuda`, conformance_test and racecheck_patterns (CONFORMANCE_TEST and RACECHECK_PATTERNS name them). Each tool
has the tests dealt out to parts that run --jobs at a time, over all GPUs that CUDA_VISIBLE_DEVICES leaves, by the
seconds that each test took according to the JSON file or to bench/results. The exit status is 0 only if every part
ended, every test of it passed or skipped itself, and no tool had anything to say.

racecheck doesn't see everything: LEFT_OUT, WITHOUT_SHARED and PATTERNS say what is left out for it, and why. It has the
patterns first; what it then says of kernels that it is known to misread is counted, kernel by kernel, and means
nothing.

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
import queue
import re
import shutil
import signal
import subprocess
import sys
import time

from record import commit, describe_machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/h200-sanitizer.json"
# The dearest first, so that the last parts to run are short ones.
TOOLS = ["racecheck", "initcheck", "memcheck", "synccheck"]
FILTER = "*cuda*"
# Tests that a tool takes too long for. Each kernel of theirs is launched by others too, or is one of PATTERNS, whose
# products of many rows racecheck would take hours for and could say nothing about.
DEEP = "*.DeepSequencesInAnyPieces/cuda_"
LEFT_OUT = {"racecheck": [
    "*.CutsAndNeighboursChangeNothing/cuda", "*.LinearsOfManyRows/cuda", "*.LinearsOfLargeTiles/cuda",
    "*.RowsOfLargeTiles/cuda", "*MlpConformance.FewTokensOfLongRows/cuda"] + [DEEP + name for name in (
        "head_512 head_512_exact head_512_cap_sinks head_320 head_128_window wide wide_cap head_128_exact "
        "grouped_exact head_128_fp8_sinks grouped odd_f32 fp8 large_pages window window_of_one soft_cap sinks "
        "sinks_window_cap sharp wide_fp8_window").split()]}
WHY_LEFT_OUT = (
    "Every access of a thread to shared memory is an event to racecheck, so that 2600 tokens, or matrices of thousands "
    "of rows, take it minutes. Of the deep sequences it sees head_128 and head_512_fp8_window, of each other kind those "
    "of 330 tokens; of delta nets those of up to 45. Products with many tokens it sees with small matrices, and in all "
    "numbers of tokens in four formats (tests/support/under_tool.h). Every kernel of the tests left out is launched by "
    "others too, but for some of those that it misreads.")
# How kernels hand shared memory over, where that isn't by barriers of a whole block: patterns of racecheck_patterns.cu.
# If the racecheck at hand names one of these, run alone, though it is ordered, then what it says of kernels that use it
# means nothing, and is counted apart. (Told by --kernel-name-exclude not to watch these, 2025.3.1 fails in their
# neighbours, with accesses to illegal addresses.)
PATTERNS = {
    "async_groups_kernel": ["cluster-copies-first-lane"],
    "async_product_kernel": ["copies-after-async", "cluster-multicast"],
    "split_product_kernel": ["copies-after-async"],
    "narrow_linear_kernel": ["named-twice"],
    "narrow_expert_kernel": ["named-twice"],
    "narrow_ring_kernel": ["named-twice"],
}
# Kernels that most tests launch, for every weight, with the file that defines them, and in which nothing is in shared
# memory: racecheck has nothing to watch there, and doesn't.
WITHOUT_SHARED = {
    "pack_codes_kernel": "src/backend/cuda/linear/pack.cu",
    "pack_scales_kernel": "src/backend/cuda/linear/pack.cu",
    "pack_groups_kernel": "src/backend/cuda/linear/pack.cu",
}
# Of what misread kernels make it say, it keeps so much; beyond the ten million that it would keep it looks at nothing.
MOST_HAZARDS = 50_000_000
# Processes wait for each other at the GPU: sixteen at a time get less done than a few.
JOBS = 6
# Parts of a tool's tests for each job: many even the ends out, but each costs the start of a process and a context.
PARTS_A_JOB = 3
# A block of a lone token's experts has a ring of barriers for each warp, more than synccheck keeps unless told so.
TOOL_OPTIONS = {"memcheck": ["--leak-check", "full"], "synccheck": ["--num-cuda-barriers", "1024"]}
# Tests of which the JSON file doesn't say more took less.
SHORT_SECONDS = 0.5


def find_sanitizer():
    found = (os.environ.get("COMPUTE_SANITIZER") or shutil.which("compute-sanitizer")
             or "/usr/local/cuda/bin/compute-sanitizer")
    if not os.path.exists(found):
        sys.exit("error: compute-sanitizer isn't here (it comes with the CUDA toolkit)")
    return found


def version_of(sanitizer):
    text = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return text.splitlines()[-1] if text else "unknown"


def list_tests(arguments, tool):
    """The tests that the filters let through, in GoogleTest's order."""
    left_out = LEFT_OUT.get(tool, [])
    wanted = arguments.filter
    if left_out:
        wanted += (":" if "-" in wanted else "-") + ":".join(left_out)
    text = subprocess.run([arguments.program, "--gtest_list_tests", f"--gtest_filter={wanted}"], capture_output=True,
                          text=True, check=True).stdout
    tests = []
    suite = ""
    for line in text.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif name.startswith("  ") and suite:
            tests.append(suite + name.strip())
    return tests


def deal(tests, seconds, parts):
    """The tests in so many parts of about the same length: the longest first, each to the part that has least."""
    dealt = [[0.0, []] for _ in range(min(parts, len(tests)))]
    for test in sorted(tests, key=lambda name: -seconds.get(name, SHORT_SECONDS)):
        part = min(dealt, key=lambda one: one[0])
        part[0] += seconds.get(test, SHORT_SECONDS)
        part[1].append(test)
    return sorted(dealt, key=lambda one: -one[0])


RUNNING = set()


def stop(*_):
    """Ends at once, and what it started too: a kernel that hangs would be left on the GPU."""
    for process in list(RUNNING):
        os.killpg(process.pid, signal.SIGKILL)
    os._exit(1)


def run_command(arguments, log, command, environment, most_seconds=86400):
    """Exit status, or None if it took too long; seconds; what it printed."""
    begin = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        RUNNING.add(process)
        try:
            status = process.wait(min(max(arguments.deadline - begin, 0), most_seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        RUNNING.discard(process)
    return status, time.monotonic() - begin, log.read_text(encoding="utf-8", errors="replace")


def options_of(tool):
    """What its command line has after the tool's name."""
    if tool != "racecheck":
        return TOOL_OPTIONS.get(tool, [])
    return [word for name in WITHOUT_SHARED for word in ("--kernel-name-exclude", f"kns={name}")]


def run_part(arguments, tool, number, tests):
    command = [arguments.sanitizer, "--tool", tool, *options_of(tool), "--print-limit", "100000", arguments.program,
               "--gtest_filter=" + ":".join(tests)]
    gpu = arguments.gpus.get()
    environment = dict(os.environ, VERNIER_TEST_UNDER_TOOL=tool, CUDA_VISIBLE_DEVICES=gpu,
                       NV_COMPUTE_SANITIZER_MAX_RACECHECK_HAZARDS=str(MOST_HAZARDS))
    result = run_command(arguments, arguments.logs / f"{tool}-{number}.log", command, environment)
    arguments.gpus.put(gpu)
    return (tool, number, *result)


def count_races(text, misread=()):
    """{misread kernel: reports}; under "" those of all others."""
    reports = re.findall(r"Race reported between .*? access at (.*)", text)
    return collections.Counter(next((name for name in misread if name in report), "") for report in reports)


def read_part(result, misread, status, text):
    """Adds what a part's output says to the counts of its tool. Returns [(test, seconds)]."""
    for key, pattern in (("passed", r"^\[  PASSED  \] (\d+) test"), ("skipped", r"^\[  SKIPPED \] (\d+) test"),
                         ("failed", r"^\[  FAILED  \] (\d+) test"),
                         ("leaks", r"LEAK SUMMARY: \d+ bytes leaked in (\d+)")):
        result[key] += sum(int(count) for count in re.findall(pattern, text, re.MULTILINE))
    races = count_races(text, misread)
    findings = sum(int(count) for count in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text))
    for name in misread:
        result["reports of " + name] += races[name]
        findings -= races[name]
    result["findings"] += max(findings, races[""]) + text.count("Internal Sanitizer Error")
    result["parts_not_looked_at_whole"] += "Maximum number of hazards reached" in text
    ended = re.search(r"(ERROR|RACECHECK) SUMMARY", text) and re.search(r"test suites? ran\.", text)
    result["parts"] += 1
    result["parts_not_ended"] += not ended
    result["parts_that_failed"] += status not in (0, None)
    return [(name, int(ms) / 1000)
            for name, ms in re.findall(r"^\[       OK \] (\S+?),? .*\((\d+) ms\)$", text, re.MULTILINE)]


def is_clean(result):
    return result["passed"] > 0 and not any(
        result[key] for key in ("failed", "findings", "leaks", "parts_not_ended", "parts_that_failed",
                                "parts_not_looked_at_whole"))


def list_patterns(arguments):
    """[(name, "ordered" or "unordered")]; none where the program wasn't built."""
    if not os.path.exists(arguments.patterns_program):
        return []
    listed = subprocess.run([arguments.patterns_program], capture_output=True, text=True, check=True).stdout
    return [tuple(line.split()) for line in listed.splitlines()]


def run_pattern(arguments, name, kind):
    command = [arguments.sanitizer, "--tool", "racecheck", arguments.patterns_program, name]
    status, _, text = run_command(arguments, arguments.logs / f"pattern-{name}.log", command, os.environ, 30)
    ended = status == 0 and "RACECHECK SUMMARY" in text
    reports = count_races(text)[""]
    return {"pattern": name, "order": kind, "ended": ended, "reports": reports,
            "is_right": ended and (reports > 0) == (kind == "unordered")}


def find_misread(arguments, pool):
    """The kernels that use patterns which racecheck names though they are ordered: {name: {pattern: reports}}."""
    used = {pattern for patterns in PATTERNS.values() for pattern in patterns}
    runs = pool.map(lambda pattern: run_pattern(arguments, *pattern),
                    [pattern for pattern in list_patterns(arguments) if pattern[0] in used])
    wrong = {run["pattern"]: run["reports"] for run in runs if run["ended"] and run["reports"] > 0}
    found = {kernel: {pattern: wrong[pattern] for pattern in patterns if pattern in wrong}
             for kernel, patterns in PATTERNS.items()}
    return {kernel: patterns for kernel, patterns in found.items() if patterns}


def check_without_shared():
    for kernel, path in WITHOUT_SHARED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        if kernel not in text or "__shared__" in text:
            sys.exit(f"error: {path} isn't as WITHOUT_SHARED has it")


def run_all(arguments):
    """{tool: counts}, {tool: {test: seconds}}, and the kernels that racecheck misreads, as find_misread()."""
    results = {tool: collections.Counter() for tool in arguments.tools}
    seconds = {tool: {} for tool in arguments.tools}
    misread = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        if "racecheck" in arguments.tools:
            check_without_shared()
            misread = find_misread(arguments, pool)
        parts = []
        for tool in [name for name in TOOLS if name in arguments.tools]:
            tests = list_tests(arguments, tool)
            results[tool]["tests"] = len(tests)
            dealt = deal(tests, arguments.known_seconds.get(tool, {}), arguments.jobs * PARTS_A_JOB)
            parts += [(expected, tool, number, names) for number, (expected, names) in enumerate(dealt)]
        parts.sort(key=lambda part: -part[0])
        running = [pool.submit(run_part, arguments, *part[1:]) for part in parts]
        for part in concurrent.futures.as_completed(running):
            tool, number, status, took, text = part.result()
            results[tool]["process_seconds"] += round(took)
            seconds[tool].update(read_part(results[tool], misread if tool == "racecheck" else {}, status, text))
            print(f"{tool} part {number}: status {status}, {took:.0f} s", file=sys.stderr, flush=True)
    return results, seconds, misread


def describe(arguments, tool, result, seconds, misread):
    run = {
        "command": " ".join(["compute-sanitizer", "--tool", tool, *options_of(tool), "conformance_test",
                             f"--gtest_filter='{arguments.filter}'"]),
        "tool": tool,
        "clean": is_clean(result),
        **{key: result[key] for key in ("tests", "passed", "skipped", "failed", "findings", "leaks", "parts",
                                        "parts_not_ended", "parts_that_failed", "parts_not_looked_at_whole",
                                        "process_seconds")},
    }
    if tool in LEFT_OUT:
        run |= {"tests_left_out": LEFT_OUT[tool], "why_tests_are_left_out": WHY_LEFT_OUT}
    if tool == "racecheck":
        run |= {"kernels_without_shared_memory": list(WITHOUT_SHARED),
                "kernels_misread": {name: {"reports_of_patterns": patterns, "reports": result["reports of " + name]}
                                    for name, patterns in misread.items()}}
    run["seconds"] = {name: took for name, took in sorted(seconds.items(), key=lambda item: -item[1])
                      if took > 2 * SHORT_SECONDS}
    return run


def frame(arguments, took):
    return {
        "target": "gpu-sanitizer",
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        **describe_machine(True),
        "compute_sanitizer": version_of(arguments.sanitizer),
        "gpus": len(arguments.gpu_names),
        "jobs": arguments.jobs,
        "seconds": round(took),
    }


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}


def known_seconds(paths):
    """{tool: {test: seconds}}; of tests that a tool hasn't ended yet twice those that they took another one."""
    known = {}
    for path in paths:
        for run in read_json(path).get("runs", []):
            known.setdefault(run["tool"], {}).update(run.get("seconds", {}))
    most = {}
    for tests in known.values():
        for name, took in tests.items():
            most[name] = max(2 * took, most.get(name, 0.0))
    return {tool: {**most, **tests} for tool, tests in known.items()}


def write_json(path, data):
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def record_runs(arguments, runs, took):
    """Writes them, beside those of other tools that the file has of the same commit and tool version."""
    data = {**frame(arguments, took), "command": "bench/sanitize_cuda.py", "runs": runs}
    before = read_json(arguments.json)
    if all(before.get(key) == data[key] for key in ("commit", "device", "compute_sanitizer")):
        kept = [run for run in before["runs"] if run["tool"] not in arguments.tools]
        if kept:
            data["seconds"] += before["seconds"]
        runs = sorted(runs + kept, key=lambda run: TOOLS.index(run["tool"]))
        data["runs"] = runs
    write_json(arguments.json, data)


def run_patterns(arguments):
    """All patterns under racecheck. True if it was right about each."""
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = list(pool.map(lambda pattern: run_pattern(arguments, *pattern), list_patterns(arguments)))
    for run in runs:
        print(f"{run['pattern']:40} {run['order']:10} {run['reports']} reports{'' if run['is_right'] else ': MISREAD'}")
    if arguments.json:
        write_json(arguments.json, {**frame(arguments, time.monotonic() - begin), "target": "gpu-racecheck-patterns",
                                    "command": "bench/sanitize_cuda.py --patterns", "runs": runs})
    return all(run["is_right"] for run in runs)


def find_gpus():
    """What CUDA_VISIBLE_DEVICES may name."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    if not shutil.which("nvidia-smi"):
        return ["0"]
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return [str(i) for i in range(max(1, listed.count("GPU ")))]


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS), help="separated by commas (all)")
    parser.add_argument("--patterns", action="store_true", help="the patterns instead of the tests")
    parser.add_argument("--filter", default=FILTER, help=f"which tests, as GoogleTest's filters say it ({FILTER})")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"processes at a time ({JOBS})")
    parser.add_argument("--most-seconds", type=float, default=86400, help="after so many, what still runs is stopped")
    parser.add_argument("--logs", type=pathlib.Path, default=ROOT / "build/logs/sanitizer", help="folder of the output")
    parser.add_argument("--slowest", type=int, default=0, help="name so many tests that took longest under each tool")
    parser.add_argument("--json", type=pathlib.Path, help="write the counts there")
    arguments = parser.parse_args()
    arguments.tools = arguments.tools.split(",")
    if not set(arguments.tools) <= set(TOOLS):
        parser.error(f"tools are {', '.join(TOOLS)}")
    arguments.program = os.environ.get("CONFORMANCE_TEST", str(ROOT / "build/cuda/tests/conformance/conformance_test"))
    arguments.patterns_program = os.environ.get("RACECHECK_PATTERNS", str(ROOT / "build/cuda/bench/racecheck_patterns"))
    needed = arguments.patterns_program if arguments.patterns else arguments.program
    if not os.path.exists(needed):
        parser.error(f"no {needed}: cmake --preset cuda && cmake --build --preset cuda -t {os.path.basename(needed)}")
    arguments.sanitizer = find_sanitizer()
    arguments.known_seconds = known_seconds((RESULTS, arguments.json))
    arguments.logs.mkdir(parents=True, exist_ok=True)
    arguments.deadline = time.monotonic() + arguments.most_seconds
    arguments.gpu_names = find_gpus()
    arguments.gpus = queue.SimpleQueue()
    for job in range(arguments.jobs):
        arguments.gpus.put(arguments.gpu_names[job % len(arguments.gpu_names)])
    return arguments


def main():
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    begin = time.monotonic()
    if arguments.patterns:
        sys.exit(not run_patterns(arguments))
    results, seconds, misread = run_all(arguments)
    for tool in arguments.tools:
        counts = results[tool]
        print(f"{tool}: {'clean' if is_clean(counts) else 'NOT CLEAN'}: "
              f"{counts['passed']} of {counts['tests']} passed, {counts['skipped']} skipped, "
              f"{counts['failed']} failed; {counts['findings']} findings, "
              f"{counts['leaks']} leaks; {counts['parts_not_ended']} of {counts['parts']} parts not ended"
              + (f"; left out: {len(LEFT_OUT[tool])} tests" if tool in LEFT_OUT else "")
              + ("; of misread kernels, which mean nothing: "
                 + ", ".join(f"{counts['reports of ' + name]} reports of {name}" for name in misread)
                 if tool == "racecheck" and misread else ""))
        for name, took in sorted(seconds[tool].items(), key=lambda item: -item[1])[:arguments.slowest]:
            print(f"  {took:8.1f} s  {name}")
    if arguments.json:
        runs = [describe(arguments, tool, results[tool], seconds[tool], misread)
                for tool in TOOLS if tool in arguments.tools]
        record_runs(arguments, runs, time.monotonic() - begin)
    print(f"logs: {arguments.logs}", file=sys.stderr)
    sys.exit(not all(is_clean(results[tool]) for tool in arguments.tools))


if __name__ == "__main__":
    main()
