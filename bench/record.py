#!/usr/bin/env python3
"""Writes one measurement as JSON: what was run, where, of which commit, and what it printed.

Standard input holds the JSON lines that `vernier bench --jsonl` printed, each preceded where there are several commands
by a line `# COMMAND`. COMMIT in the environment names the commit on machines that have no repository.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys


def cpu_field(key):
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    return None


def output_of(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def commit():
    named = os.environ.get("COMMIT")
    if named:
        return named
    return output_of("git", "rev-parse", "--short", "HEAD") + (
        "+" if output_of("git", "status", "--porcelain", "src") else "")


def describe_machine(gpu):
    machine = {
        "cpu": cpu_field("model name"),
        "cpu_number": f"family {cpu_field('cpu family')} model {cpu_field('model')} stepping {cpu_field('stepping')}",
    }
    if gpu:
        query = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
        machine["device"] = query[0] if query else "unknown GPU"
    return machine


def read_runs(lines):
    """[(command or None, [result])] of the lines."""
    runs = []
    for line in lines:
        if line.startswith("# "):
            runs.append((line[2:].strip(), []))
        elif line.strip():
            if not runs:
                runs.append((None, []))
            runs[-1][1].append(json.loads(line))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("out", help="the file to write")
    parser.add_argument("--command", help="what printed the lines, where they don't say")
    parser.add_argument("--gpu", action="store_true", help="name the GPU")
    options = parser.parse_args()
    runs = read_runs(sys.stdin)
    record = {
        "target": options.name,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **describe_machine(options.gpu),
    }
    if options.command:
        record |= {"command": options.command, "results": [result for _, results in runs for result in results]}
    else:
        record["runs"] = [{"command": command, "results": results} for command, results in runs]
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
