"""tools/reviewer_checks.py must find each kind of broken promise in a small bad tree."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "tools" / "reviewer_checks.py"
GOOD = {
    "include/vernier/v.h": "#pragma once\n#include <string>\n",
    "src/model/llama.cc": "// runs on the cpu like anywhere\nconst Architecture kLlama{};\n",
    "src/backend/cpu/gemm.cc": "int gemm;\n",
    "docs/from-bytes-to-tokens.md": "Open `src/model/llama.cc` first.\n",
}


class ReviewerChecks(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, "--root", folder], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def assert_broken(self, files, culprit):
        status, output = self.run_on(GOOD | files)
        self.assertEqual(status, 1, output)
        self.assertIn(culprit, output)
        self.assertIn(" 1 broken", output)

    def test_good_tree(self):
        status, output = self.run_on(GOOD)
        self.assertEqual(status, 0, output)

    def test_formats_named_all_over(self):
        self.assert_broken({f"src/base/f{i}.cc": "// NVFP4\n" for i in range(13)}, "src/base/f12.cc")

    def test_long_model(self):
        self.assert_broken({"src/model/llama.cc": "const Architecture kLlama{};\n" * 181}, "src/model/llama.cc: 181 lines")

    def test_model_that_names_a_backend(self):
        self.assert_broken({"src/model/llama.cc": "auto* b = get(Cuda);\n"}, "src/model/llama.cc:1: names 'Cuda'")

    def test_mask_in_a_kernel(self):
        kernel = {"src/backend/cpu/gemm.cc": "int code = byte & 0x0f;\n"}
        self.assert_broken(kernel, "src/backend/cpu/gemm.cc:1")
        allowed = {"tools/mask_allow.txt": "# why\nsrc/backend/cpu/gemm.cc: byte & 0x0f\n"}
        self.assertEqual(self.run_on(GOOD | kernel | allowed)[0], 0)
        folder = {"tools/mask_allow.txt": "src/backend/cpu/:\n"}
        self.assertEqual(self.run_on(GOOD | kernel | folder)[0], 0)
        fragment = {"src/backend/cuda/fragment/f.cuh": "int code = byte & 0x0f;\n"}
        self.assertEqual(self.run_on(GOOD | fragment)[0], 0)

    def test_public_header_that_needs_another(self):
        self.assert_broken({"include/vernier/v.h": "#pragma once\nstd::string s();\n"}, "vernier/v.h (g++)")

    def test_public_header_that_leaks(self):
        with_leak = "#pragma once\n#include <fmt/core.h>\n"
        self.assert_broken({"include/vernier/v.h": with_leak}, "includes fmt/core.h")

    def test_tour_to_nowhere(self):
        page = {"docs/from-bytes-to-tokens.md": "`src/model/gone.cc`\n"}
        self.assert_broken(page, "src/model/gone.cc: no such file")

    def test_long_file(self):
        self.assert_broken({"src/base/long.cc": "int x;\n" * 501}, "src/base/long.cc: 501 lines")

    def test_unfinished_work(self):
        self.assert_broken({"tests/t.cc": "// TODO" + " later\n"}, "tests/t.cc:1")


if __name__ == "__main__":
    unittest.main()
