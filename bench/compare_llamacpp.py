#!/usr/bin/env python3
"""Time vernier and llama.cpp on the same GGUF file, in turn, and print one table of ratios.

    compare_llamacpp.py MODEL.gguf --llama-bench PATH          # a build of llama.cpp
    compare_llamacpp.py MODEL.gguf --peer-python               # the llama.cpp inside the Python package xllamacpp
    compare_llamacpp.py MODEL.gguf --llama-bench PATH --vernier-flag=--device=cuda --llama-flag=-ngl --llama-flag=99 \
        --llama-flag=-fa --llama-flag=on                       # on a GPU

Each round runs vernier and then llama.cpp (A-B-A-B), so that a machine whose speed drifts treats both alike; figures are
medians over the rounds with the least and the greatest beside them, and the ratio is the median of the rounds' own
ratios. Tests are written as `vernier bench` takes them. llama-bench has no test of several sequences: tg64x16 needs
--batched-bench PATH. The Python module serves one sequence, so it times pp and tg only, and its model must have a
tokenizer. Between rounds nothing is averaged away: --json FILE keeps every figure.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

TEST = re.compile(r"^(?:pp(\d+))?\+?(?:tg(\d+))?(?:x(\d+))?$")


class Peer:
    """What runs tests at one depth and gives each one's tokens a second, or None for a test that it can't run."""

    def __init__(self, arguments):
        self.arguments = arguments

    def rates(self, tests, depth):
        return {test: self.rate(test, depth) for test in tests}

    def rate(self, test, depth):
        raise NotImplementedError


class Vernier(Peer):
    """All tests of a depth in one process: loading a model takes longer than most tests."""

    def rates(self, tests, depth):
        a = self.arguments
        words = [a.vernier, "bench", a.model, "--tests", ",".join(tests), "--depth", str(depth)]
        words += ["--repeat", str(a.repeat), "--jsonl", "-q"]
        words += ["--threads", str(a.threads)] if a.threads else []
        results = [json.loads(line) for line in output_of(words + a.vernier_flag).splitlines()]
        return {r["test"]: 1.0 / r["cpu_s_per_tok"] if a.clock == "cpu" else r["tok_s"]["median"] for r in results}


class LlamaBench(Peer):
    """llama-bench, one process for all tests of one sequence, and llama-batched-bench for each test of several."""

    def rates(self, tests, depth):
        found = {test: self.batched(test, depth) for test in tests if parse(test)[2] > 1}
        single = [test for test in tests if test not in found]
        if single:
            found.update(self.single(single, depth))
        return found

    def single(self, tests, depth):
        a = self.arguments
        words = [a.llama_bench, "-m", a.model, "-r", str(a.repeat), "-o", "jsonl", "-d", str(depth), *self.common()]
        prompts, generated = "0", "0"
        for test in tests:
            prompt, count, _ = parse(test)
            if prompt and count:
                words += ["-pg", f"{prompt},{count}"]
            elif prompt:
                prompts += f",{prompt}"
            else:
                generated += f",{count}"
        words += ["-p", prompts, "-n", generated]
        rates = {}
        for line in output_of(words).splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                rates[row["n_prompt"], row["n_gen"]] = statistics.median(row["samples_ts"])
        return {test: rates[parse(test)[:2]] for test in tests}

    def batched(self, test, depth):
        a = self.arguments
        prompt, generated, sequences = parse(test)
        if not a.batched_bench or prompt:
            return None
        words = [a.batched_bench, "-m", a.model, "-npp", str(max(depth, 1)), "-ntg", str(generated), "-npl", str(sequences)]
        words += ["-c", str((depth + generated + 32) * sequences), "--output-format", "jsonl", *self.common()]
        return json.loads(last_json(output_of(words)))["speed_tg"]

    def common(self):
        a = self.arguments
        return (["-t", str(a.threads)] if a.threads else []) + a.llama_flag


class PythonModule(Peer):
    """xllamacpp in a process of its own: its threads spin, and must not be there while vernier is measured."""

    CODE = """
import json, sys, time
import xllamacpp
model, clock = sys.argv[1], sys.argv[2]
threads, prompt, generated, depth = map(int, sys.argv[3:7])
params = xllamacpp.CommonParams()
params.model.path = model
params.n_ctx = depth + prompt + generated + 64
params.n_parallel = 1
params.warmup = True
if threads:
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
ask = {"cache_prompt": True, "temperature": 0.0, "ignore_eos": True}
def complete(ids, count):
    answer = server.handle_completions({**ask, "prompt": ids, "n_predict": count})
    return (answer if isinstance(answer, dict) else json.loads(answer))["timings"]
ids = [(7 * i + 11) % 1000 + 300 for i in range(depth + max(prompt, 1))]
if depth:
    complete(ids[:depth], 1)
complete([5, 6, 7], 2)  # warms up
start = time.process_time()
timings = complete(ids, generated + 1)
rate = timings["predicted_per_second"] if generated else timings["prompt_per_second"]
if clock == "cpu":
    rate = (generated or prompt) / (time.process_time() - start)
print(json.dumps(rate))
"""

    def rate(self, test, depth):
        a = self.arguments
        prompt, generated, sequences = parse(test)
        if sequences > 1 or (prompt and generated):
            return None
        words = [sys.executable, "-c", self.CODE, a.model, a.clock, a.threads or 0, prompt, generated, depth]
        return float(output_of([str(word) for word in words]).splitlines()[-1])


def parse(test):
    match = TEST.match(test)
    if not match or not (match[1] or match[2]):
        raise SystemExit(f"'{test}' is no test: pp512, tg128, tg64x16 or pp512+tg128")
    return int(match[1] or 0), int(match[2] or 0), int(match[3] or 1)


def output_of(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{os.path.basename(words[0])} failed ({done.returncode}): {done.stderr.strip()[-500:]}")
    return done.stdout


def last_json(text):
    return [line for line in text.splitlines() if line.startswith("{")][-1]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--vernier", default="build/release/vernier", help="the program (default: %(default)s)")
    parser.add_argument("--vernier-flag", action="append", default=[], help="a further flag for it, as --vernier-flag=--kv=f32")
    peers = parser.add_mutually_exclusive_group(required=True)
    peers.add_argument("--llama-bench", help="path of llama-bench")
    peers.add_argument("--peer-python", action="store_true", help="use the Python module xllamacpp")
    parser.add_argument("--llama-flag", action="append", default=[], help="a further word for llama.cpp's programs, as --llama-flag=-ngl")
    parser.add_argument("--batched-bench", help="path of llama-batched-bench")
    parser.add_argument("--tests", default="pp512,tg128")
    parser.add_argument("--depth", default="0")
    parser.add_argument("--threads", type=int, default=0, help="default: each program's own")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: tokens a second of CPU time (with --threads 1, on a machine that others use too)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1, help="repetitions of a test in a round, of which the median counts (default: 1)")
    parser.add_argument("--json", help="write all figures here")
    arguments = parser.parse_args()

    if arguments.clock == "cpu" and not arguments.peer_python:
        parser.error("llama-bench doesn't tell its CPU time; --clock cpu needs --peer-python")
    ours = Vernier(arguments)
    theirs = PythonModule(arguments) if arguments.peer_python else LlamaBench(arguments)
    print(f"{'test':<16} {'depth':>6} {'vernier':>10} {'min':>9} {'max':>9} {'llama.cpp':>10} {'min':>9} {'max':>9} {'ratio':>6}")
    rows = []
    tests = arguments.tests.split(",")
    for test in tests:
        parse(test)
    for depth in map(int, arguments.depth.split(",")):
        rounds = [(ours.rates(tests, depth), theirs.rates(tests, depth)) for _ in range(arguments.rounds)]
        for test in tests:
            pairs = [(mine[test], other[test]) for mine, other in rounds]
            row = {"test": test, "depth": depth, "vernier": spread([p[0] for p in pairs])}
            text = "{median:10.2f} {min:9.2f} {max:9.2f}".format(**row["vernier"])
            if pairs[0][1] is None:
                print(f"{test:<16} {depth:>6} {text} {'not run':>10}")
            else:
                row["llama.cpp"] = spread([p[1] for p in pairs])
                row["ratio"] = statistics.median(p[0] / p[1] for p in pairs)
                other_text = "{median:10.2f} {min:9.2f} {max:9.2f}".format(**row["llama.cpp"])
                print(f"{test:<16} {depth:>6} {text} {other_text} {row['ratio']:6.2f}")
            row["pairs"] = pairs
            rows.append(row)
            sys.stdout.flush()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"model": os.path.basename(arguments.model), "threads": arguments.threads, "clock": arguments.clock, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
