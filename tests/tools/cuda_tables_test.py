#!/usr/bin/env python3
"""The table of GPU targets has them all, and a profile's numbers become the words that it shows."""

import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import cuda_targets  # noqa: E402
import profile_cuda  # noqa: E402


def raw_page(*launches):
    """What ncu prints: notes, a line of names, one of units, one a launch."""
    names = ["ID", "Kernel Name", *profile_cuda.metrics().split(",")]
    lines = ["==PROF== Connected", ",".join(f'"{name}"' for name in names), ",".join('""' for _ in names)]
    for i, (kernel, values) in enumerate(launches):
        lines.append(",".join(f'"{value}"' for value in [i, kernel, *(values.get(name, 0) for name in names[2:])]))
    return "\n".join(lines)


def launch(kernel, us=10, blocks=132, stall=None, **shares):
    values = {profile_cuda.SHARES[name.replace("_", " ")]: value for name, value in shares.items()}
    values |= {profile_cuda.OTHERS["us"]: f"{us * 1000:,}", profile_cuda.OTHERS["blocks"]: blocks,
               profile_cuda.OTHERS["multiprocessors"]: 132}
    if stall:
        values[profile_cuda.STALL_METRIC.format(stall)] = 2.5
    return kernel, values


def kernels(*launches):
    return profile_cuda.kernels_of(profile_cuda.launches(raw_page(*launches)))


class Profile(unittest.TestCase):
    def test_a_busy_resource_is_the_limit(self):
        self.assertEqual(kernels(launch("void a(int)", tensor_cores=81, memory=40))[0]["limit"], "tensor cores")

    def test_what_comes_from_memory_is_not_blamed_on_the_cache(self):
        found = kernels(launch("void a(int)", **{"memory": 90, "second-level cache": 93}))
        self.assertEqual(found[0]["limit"], "memory")

    def test_without_one_it_is_what_warps_wait_for(self):
        found = kernels(launch("void a(int)", memory=50, stall="barrier"))
        self.assertEqual(found[0]["limit"], "latency: warps wait for a barrier")

    def test_few_blocks_are_named(self):
        self.assertIn("8 blocks", kernels(launch("void a(int)", blocks=8, issue_slots=90))[0]["limit"])

    def test_the_last_launch_of_each_kernel_and_grid_is_kept_the_longest_first(self):
        found = kernels(launch("unnamed>::a<1>(int)", us=1), launch("void b(int)", us=5), launch("unnamed>::a<1>(int)", us=2),
                        launch("unnamed>::a<1>(int)", us=3, blocks=200))
        self.assertEqual([(k["kernel"], k["us"], k["launches"]) for k in found], [("b", 5, 1), ("a<1>", 3, 1), ("a<1>", 2, 2)])


class Targets(unittest.TestCase):
    def test_none_is_missing(self):
        expected = [f"G{i}" for i in range(1, 22)] + [f"H{i}" for i in range(1, 7)]
        self.assertEqual([target[0] for target in cuda_targets.TARGETS], expected)

    def test_each_has_a_judgement_and_cases_that_exist(self):
        bounds = json.loads((ROOT / "bench" / "bounds.json").read_text())
        for number, _, _, _, cases in cuda_targets.TARGETS:
            self.assertTrue(bounds.get(number), number)
            for case in cases:
                self.assertIn(case, profile_cuda.CASES, number)

    def test_the_table_has_a_line_each(self):
        self.assertEqual(len(cuda_targets.table().splitlines()), 2 + len(cuda_targets.TARGETS))


if __name__ == "__main__":
    unittest.main()
