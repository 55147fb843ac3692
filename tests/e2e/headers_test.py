#!/usr/bin/env python3
"""`vernier inspect` on the layouts of published checkpoints, and on the same with one thing wrong.

Builds each checkpoint of tests/data/published as a sparse file (its weights are holes), compares what inspect says with
what a correct reader must report, then breaks it in every way that makes sense and expects exit status 65 with the
culprit's name. Usage: headers_test.py PATH_TO_VERNIER PATH_TO_TESTS_DATA
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KEYS = ("architecture", "container", "dialect", "parameters", "tensors", "formats", "context_length", "vocab_size",
        "layers", "mtp_layers", "experts")


def model_path(folder):
    """The GGUF file that was built, or the folder."""
    return next(iter(sorted(folder.glob("*.gguf"))), folder)


class Checker:
    def __init__(self, vernier, data):
        self.vernier = vernier
        self.failures = []
        self.count = 0
        sys.path.insert(0, str(data))
        import make_sparse

        self.headers = make_sparse

    def check(self, good, what):
        self.count += 1
        if not good:
            self.failures.append(what)
            print("FAIL", what)

    def inspect(self, folder, *flags):
        return subprocess.run([self.vernier, "inspect", model_path(folder), *flags], capture_output=True, text=True,
                              timeout=60, check=False)

    def whole(self, name):
        with tempfile.TemporaryDirectory() as scratch:
            self.headers.build(name, scratch, None)
            done = self.inspect(Path(scratch), "--json", "--fit")
        if name.startswith("refuse-"):
            self.check(done.returncode == 65 and done.stderr.startswith("vernier: error: "), f"{name}: {done.stderr}")
            return
        self.check(done.returncode == 0, f"{name}: exit {done.returncode}: {done.stderr}")
        if done.returncode != 0:
            return
        found, expected = json.loads(done.stdout), self.headers.expect(name)
        for key in KEYS:
            if key == "parameters":  # a reader may keep or leave what is optional
                allowed = (expected[key], expected[key] + expected.get("optional_parameters", 0))
                self.check(found[key] in allowed, f"{name}: {key} is {found[key]}, expected one of {allowed}")
            elif key in expected:
                self.check(found[key] == expected[key], f"{name}: {key} is {found[key]}, expected {expected[key]}")
        self.check(found["fit"]["kv_bytes_per_token"] > 0, f"{name}: fit {found['fit']}")

    def broken(self, name, kind):
        with tempfile.TemporaryDirectory() as scratch:
            culprit = self.headers.build(name, scratch, kind)
            done = self.inspect(Path(scratch))
        named = Path(str(culprit)).name in done.stderr
        self.check(done.returncode == 65 and named, f"{name}, {kind} '{culprit}': exit {done.returncode}: {done.stderr}")
        self.check(re.match(r"(vernier: warning: [^\n]*\n)*vernier: error: [^\n]+\n([^\n]+\n)?$", done.stderr) is not None,
                   f"{name}, {kind}: more than an error and a hint: {done.stderr!r}")


    def too_large(self, name):
        """A model that no machine holds at this context is refused by arithmetic, before any weight is read."""
        with tempfile.TemporaryDirectory() as scratch:
            self.headers.build(name, scratch, None)
            words = [self.vernier, "run", model_path(Path(scratch)), "--ids", "1", "-c", str(1 << 24), "-q"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        self.check(done.returncode == 71 and "are available" in done.stderr, f"{name}: {done.returncode} {done.stderr}")


def main():
    checker = Checker(sys.argv[1], Path(sys.argv[2]) / "published")
    for name in checker.headers.names():
        checker.whole(name)
        if not name.startswith("refuse-"):
            for kind in checker.headers.breaks_of(name):
                checker.broken(name, kind)
    checker.too_large("llama31-70b-fp8-tensor-modelopt")
    print(f"{checker.count - len(checker.failures)} of {checker.count} checks passed")
    return 1 if checker.failures else 0


if __name__ == "__main__":
    sys.exit(main())
