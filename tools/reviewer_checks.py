#!/usr/bin/env python3
"""The promises about the shape of the source tree that a reviewer can check by hand, checked by a script.

Prints a line for each promise, the culprits under it, and exits 1 if any is broken. Promises about things that do not
exist yet (a page, a folder) hold. tools/check_layers.py and ./check hold the rest: layers, and a tree without CUDA.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CODE = {".h", ".cc", ".cu", ".cuh", ".inc"}
MAX_FILES_NAMING_BLOCK_FORMATS = 12
MAX_MODEL_LINES = 180  # three screens
MAX_LINES = 500
MAX_TOUR_LINES = 400
TOUR = "docs/from-bytes-to-tokens.md"
# A file of src/model/ that defines an entry of the list of architectures; the others are shared by all of them.
ARCHITECTURE = re.compile(r"^(extern |const |constexpr )*Architecture k?\w+\s*[={(]", re.MULTILINE)
# Words that would tie a model to a backend or a format. "reference" alone is too common a word to be one.
BACKEND_OR_FORMAT = re.compile(
    r"\b(cuda|cpu|reference[_ ]backend|nvfp4|mxfp4|fp8|e4m3|e2m1|e8m0|q[2-8]_[0-9k](_[sml])?|iq4_\w+)\b", re.IGNORECASE
)
# A bit mask or a nibble shift: in a kernel, the sign that it decodes a format by itself.
MASK = re.compile(r"&\s*0[xX][0-9a-fA-F]+|0[xX][0-9a-fA-F]+[uUlL]*\s*&[^&]|>>\s*4\b")
MASK_ALLOWED = "tools/mask_allow.txt"


def sources(root, folder, suffixes=CODE):
    base = root / folder
    return sorted(p for p in base.rglob("*") if p.suffix in suffixes and p.is_file()) if base.is_dir() else []


def name(root, path):
    return path.relative_to(root).as_posix()


def count_lines(path):
    return len(path.read_text(errors="replace").splitlines())


def strip_comments(text):
    """Blanks // and /* */ comments, keeping the line numbers. Good enough for code that is clang-formatted."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def check_block_format_names(root):
    """The names of the block formats occur in few files, so a format has one obvious place."""
    pattern = re.compile("nvfp4|mxfp4", re.IGNORECASE)
    every = [p for p in (root / "src").rglob("*") if p.is_file()] if (root / "src").is_dir() else []
    files = sorted(name(root, p) for p in every if pattern.search(p.read_text(errors="replace")))
    title = f"files under src/ that name nvfp4 or mxfp4: {len(files)} (at most {MAX_FILES_NAMING_BLOCK_FORMATS})"
    return title, files if len(files) > MAX_FILES_NAMING_BLOCK_FORMATS else []


def check_model_files(root):
    """An architecture fits on three screens, and nothing in src/model/ names a backend or a format."""
    culprits = []
    architectures = []
    for path in sources(root, "src/model"):
        text = path.read_text(errors="replace")
        if path.parent.name == "model" and ARCHITECTURE.search(text):
            architectures.append(count_lines(path))
            if architectures[-1] > MAX_MODEL_LINES:
                culprits.append(f"{name(root, path)}: {architectures[-1]} lines")
        for number, line in enumerate(strip_comments(text).splitlines(), 1):
            found = BACKEND_OR_FORMAT.search(line)
            if found:
                culprits.append(f"{name(root, path)}:{number}: names '{found[0]}'")
    title = f"architectures: {len(architectures)} files, the longest {max(architectures, default=0)} lines"
    return f"{title} (at most {MAX_MODEL_LINES}); src/model/ names no backend and no format", culprits


def is_allowed(file, line, path, text):
    return text in line and (file == path or (path.endswith("/") and file.startswith(path)))


def check_masks(root):
    """Kernels do not take formats apart: bit masks live in format/ and backend/cuda/fragment/."""
    allowed = []
    table = root / MASK_ALLOWED
    if table.exists():
        for line in table.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                path, _, text = line.partition(":")
                allowed.append((path.strip(), text.strip()))
    culprits = []
    for path in sources(root, "src/backend"):
        file = name(root, path)
        if file.startswith("src/backend/cuda/fragment/"):
            continue
        for number, line in enumerate(strip_comments(path.read_text(errors="replace")).splitlines(), 1):
            if MASK.search(line) and not any(is_allowed(file, line, *row) for row in allowed):
                culprits.append(f"{file}:{number}: {line.strip()}")
    return "bit masks of a format in src/backend/ outside cuda/fragment/", culprits


def check_public_headers(root):
    """Every public header compiles alone, under each compiler at hand, and includes nothing but the standard library."""
    headers = sources(root, "include", {".h"})
    compilers = [c for c in ("g++", "clang++") if shutil.which(c)]
    culprits = []
    for header in headers:
        for number, line in enumerate(header.read_text(errors="replace").splitlines(), 1):
            included = re.match(r'\s*#\s*include\s*["<]([^">]+)', line)
            if included and not re.match(r"vernier/[a-z_]+\.h$|[a-z_]+$", included[1]):
                culprits.append(f"{name(root, header)}:{number}: includes {included[1]}")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "alone.cc"
            source.write_text(f'#include "{header.relative_to(root / "include").as_posix()}"\n')
            for compiler in compilers:
                flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
                done = subprocess.run(
                    [compiler, *flags, "-I", root / "include", source], capture_output=True, text=True, check=False
                )
                if done.returncode != 0:
                    culprits.append(f"{name(root, header)} ({compiler}): {done.stderr.strip()[:500]}")
    return f"public headers that compile alone: {len(headers)} ({' and '.join(compilers)})", culprits


def check_tour(root):
    """The files that the tour names exist and are short enough to read."""
    page = root / TOUR
    if not page.exists():
        return f"{TOUR}: not there", []
    files = sorted(set(re.findall(r"\b(?:src|include)/[\w./-]+\.(?:h|cc|cuh|cu)\b", page.read_text())))
    culprits = []
    for file in files:
        path = root / file
        if not path.exists():
            culprits.append(f"{file}: no such file")
        elif count_lines(path) > MAX_TOUR_LINES:
            culprits.append(f"{file}: {count_lines(path)} lines")
    return f"files on the tour of {TOUR}: {len(files)}, each at most {MAX_TOUR_LINES} lines", culprits


def check_length(root):
    """No file grows past what one can hold in the head."""
    every = [*sources(root, "src"), *sources(root, "include")]
    culprits = [f"{name(root, p)}: {count_lines(p)} lines" for p in every if count_lines(p) > MAX_LINES]
    return f"source files of at most {MAX_LINES} lines: {len(every)}", culprits


def check_unfinished(root):
    """No marks of unfinished work."""
    pattern = re.compile(r"\b(TODO|FIXME|XXX)\b")
    culprits = []
    for folder in ("src", "include", "tests", "bench"):
        for path in sources(root, folder):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if pattern.search(line):
                    culprits.append(f"{name(root, path)}:{number}: {line.strip()}")
    return "marks of unfinished work", culprits


CHECKS = [
    check_block_format_names,
    check_model_files,
    check_masks,
    check_public_headers,
    check_tour,
    check_length,
    check_unfinished,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="tree to check")
    root = parser.parse_args().root.resolve()
    broken = 0
    for check in CHECKS:
        title, culprits = check(root)
        print(f"{'BROKEN' if culprits else 'holds '} {title}")
        for culprit in culprits:
            print(f"         {culprit}")
        broken += bool(culprits)
    print(f"reviewer checks: {len(CHECKS) - broken} hold, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
