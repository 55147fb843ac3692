#!/usr/bin/env python3
"""docs/hostile-inputs.md names a test for each row: all of them must exist, and all rows must be there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/hostile-inputs.md"


def existing_tests():
    names = set()
    for path in (ROOT / "tests").rglob("*_test.cc"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", path.read_text(), re.MULTILINE):
            names.add(f"{suite}.{name}")
    for path in (ROOT / "tests").rglob("*_test.py"):
        suite = ""
        for kind, name in re.findall(r"^(class|    def) (\w+)", path.read_text(), re.MULTILINE):
            if kind == "class":
                suite = name
            else:
                names.add(f"{suite}.{name}")
    return names


class HostilePage(unittest.TestCase):
    def test_named_tests_exist(self):
        named = set(re.findall(r"`([A-Z]\w+\.(?:test_)?\w+)`", PAGE.read_text()))
        self.assertGreater(len(named), 80)
        self.assertEqual(sorted(named - existing_tests()), [], "named on the page, but not in tests/")

    def test_all_rows_are_there(self):
        rows = set()
        for first, last in re.findall(r"([CKP]\d+)(?:-([CKP]\d+))?", re.sub(r"`[^`]*`", "", PAGE.read_text())):
            kind, end = first[0], int((last or first)[1:])
            rows.update(f"{kind}{i}" for i in range(int(first[1:]), end + 1))
        wanted = {f"{kind}{i}" for kind, count in (("C", 50), ("K", 13), ("P", 18)) for i in range(1, count + 1)}
        self.assertEqual(sorted(wanted - rows), [])


if __name__ == "__main__":
    unittest.main()
