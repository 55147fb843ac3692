"""tools/check_layers.py must refuse what it is there to refuse: each test feeds it a small bad tree."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tools" / "check_layers.py"


def run_on(files):
    """Runs the script on a tree of {path: text} with the project's own table; returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, SCRIPT, "--root", folder, "--table", ROOT / "tools" / "layers.txt"]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class CheckLayers(unittest.TestCase):
    def assert_refused(self, files, *words):
        status, output = run_on(files)
        self.assertEqual(status, 1, output)
        for word in words:
            self.assertIn(word, output)

    def test_accepts_a_downward_include(self):
        status, output = run_on({"src/base/a.h": "#include <vector>\n", "src/text/b.cc": '#include "base/a.h"\n'})
        self.assertEqual(status, 0, output)

    def test_refuses_an_upward_include(self):
        self.assert_refused(
            {"src/text/b.h": "", "src/base/a.h": '// x\n#include "text/b.h"\n'}, "src/base/a.h:2:", "text/b.h"
        )

    def test_refuses_another_backend_but_not_the_interface(self):
        files = {"src/backend/backend.h": "", "src/backend/cpu/c.h": "", "src/backend/cuda/d.cc": ""}
        self.assertEqual(run_on(files | {"src/backend/cuda/d.cc": '#include "backend/backend.h"\n'})[0], 0)
        self.assertEqual(run_on(files | {"src/backend/backend_list.cc": '#include "backend/cpu/c.h"\n'})[0], 0)
        self.assert_refused(files | {"src/backend/cuda/d.cc": '#include "backend/cpu/c.h"\n'}, "cpu/c.h")
        self.assert_refused(files | {"src/backend/backend.h": '#include "backend/cpu/c.h"\n'}, "cpu/c.h")

    def test_refuses_a_format_or_concrete_backend_in_a_model(self):
        files = {"src/backend/backend.h": "", "src/backend/cpu/c.h": "", "src/format/f.h": ""}
        self.assertEqual(run_on(files | {"src/model/m.cc": '#include "backend/backend.h"\n'})[0], 0)
        self.assert_refused(files | {"src/model/m.cc": '#include "format/f.h"\n'}, "format/f.h")
        self.assert_refused(files | {"src/model/m.cc": '#include "backend/cpu/c.h"\n'}, "backend/cpu/c.h")

    def test_refuses_a_private_header_in_the_public_api(self):
        self.assert_refused({"src/base/a.h": "", "include/vernier/v.h": '#include "base/a.h"\n'}, "vernier/v.h:1:")

    def test_refuses_third_party_headers_elsewhere(self):
        self.assertEqual(run_on({"src/base/json.cc": "#include <nlohmann/json.hpp>\n"})[0], 0)
        self.assert_refused({"src/text/t.cc": "#include <nlohmann/json.hpp>\n"}, "base/json.cc")
        self.assert_refused({"src/text/t.cc": "#include <absl/strings/str_cat.h>\n"}, "absl")
        self.assert_refused({"src/text/t.cc": "#include <cuda_runtime.h>\n"}, "backend/cuda")

    def test_refuses_a_folder_without_a_row_and_an_unknown_file(self):
        self.assert_refused({"src/novel/n.cc": "#include <vector>\n"}, "no row")
        self.assert_refused({"src/base/a.cc": '#include "a.h"\n', "src/base/a.h": ""}, "no file of src/")

    def test_refuses_a_link_upward(self):
        files = {"src/base/CMakeLists.txt": "", "src/text/CMakeLists.txt": "vernier_library(vernier_text DEPENDS vernier_base)"}
        self.assertEqual(run_on(files)[0], 0)
        self.assert_refused(
            files | {"src/base/CMakeLists.txt": "vernier_library(vernier_base\n DEPENDS vernier_text)"}, "may not link"
        )


if __name__ == "__main__":
    unittest.main()
