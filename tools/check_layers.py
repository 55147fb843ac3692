#!/usr/bin/env python3
"""Holds the #include lines and CMake DEPENDS of src/ and include/vernier/ against the table in tools/layers.txt.

Prints one line for each crossing and exits 1 if there is any.
"""

import argparse
import fnmatch
import re
import sys
from pathlib import Path

SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# The C++ standard library has neither ".h" nor a folder in its names; these C, POSIX, Linux and compiler ones do.
SYSTEM = re.compile(
    r"^[a-z_]+$|^(sys|linux|netinet|arpa|net)/|^(assert|cpuid|ctype|cxxabi|dlfcn|errno|execinfo|fcntl|fenv|float"
    r"|getopt|glob|immintrin|inttypes|limits|locale|malloc|math|netdb|poll|pthread|pwd|sched|setjmp|signal|spawn|stdalign"
    r"|stdarg|stdbool|stddef|stdint|stdio|stdlib|string|syscall|termios|time|unistd|wchar|x86intrin)\.h$"
)
CUDA = re.compile(r"^(cuda|mma|cooperative_groups|nv/|nvrtc|cub/|vector_types|driver_types)")


class Table:
    """The rows of layers.txt."""

    def __init__(self, text):
        self.rows = {}  # folder, file or pattern -> list of targets
        self.third_party = {}  # "fmt" -> list of folders or files
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#", 1)[0].strip()
            if not line:
                continue
            key, colon, targets = line.partition(":")
            if not colon:
                raise SystemExit(f"layers.txt:{number}: expected 'row : targets'")
            key = key.strip()
            rows = self.third_party if key.startswith("<") else self.rows
            key = key.strip("<>")
            if key in rows:
                raise SystemExit(f"layers.txt:{number}: a second row for '{key}'")
            rows[key] = targets.split()

    def row_of(self, file):
        """The most specific row for a path such as backend/cpu/gemm.cc, as (its folder or file, its targets)."""
        path = Path(file)
        for candidate in [path, *path.parents]:
            name = candidate.as_posix()
            if name in self.rows:
                return name, self.rows[name]
            for pattern, targets in self.rows.items():
                is_folder = candidate != path
                if "*" in pattern and is_folder and same_depth(pattern, name) and fnmatch.fnmatch(name, pattern):
                    return name, targets
        return None, []


def same_depth(a, b):
    return a.count("/") == b.count("/")


def covers(target, file):
    """True if the target of a row (folder, file or folder/*.h) names this file."""
    if "*" in target:
        return same_depth(target, file) and fnmatch.fnmatch(file, target)
    return file == target or file.startswith(target + "/")


def check_include(table, file, bracket, included, known):
    """The complaint about one include of one file, or None."""
    row, targets = table.row_of(file)
    if row is None:
        return "this folder has no row in layers.txt"
    if bracket == '"' or included in known:
        if included not in known:
            return f'"{included}" is no file of src/ or include/; includes are written from there'
        # A row on a single file adds to what its folder may see, so the folder is its own in both cases.
        own = row if row != file else Path(file).parent.as_posix()
        if covers(own, included) and table.row_of(included)[0] in (own, included):
            return None
        if any(covers(target, included) for target in targets):
            return None
        return f'"{included}" is outside what {row} may include ({" ".join(targets) or "nothing"})'
    package = included.split("/")[0]
    if package in table.third_party:
        if any(covers(target, file) for target in table.third_party[package]):
            return None
        return f"<{included}> may only be included by {' '.join(table.third_party[package])}"
    if CUDA.match(included):
        return None if file.startswith("backend/cuda/") else f"<{included}> may only be included by backend/cuda"
    if SYSTEM.match(included):
        return None
    return f"<{included}> belongs to no package listed in layers.txt"


def check_includes(root, table):
    """Yields 'path:line: complaint' for the whole tree."""
    sources = {}
    for base, prefix in ((root / "src", ""), (root / "include", "")):
        for path in sorted(base.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                sources[prefix + path.relative_to(base).as_posix()] = path
    for file, path in sources.items():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                complaint = check_include(table, file, match[1], match[2], sources)
                if complaint:
                    yield f"{path.relative_to(root).as_posix()}:{number}: {complaint}"


def check_links(root, table):
    """Yields complaints about DEPENDS vernier_<folder> (or target_link_libraries) that the table does not allow."""
    folders = {}
    lists = sorted((root / "src").rglob("CMakeLists.txt"))
    for path in lists:
        folder = path.parent.relative_to(root / "src").as_posix()
        if folder != ".":
            folders["vernier_" + folder.replace("/", "_")] = folder
    call = re.compile(r"(vernier_library|target_link_libraries|vernier_executable)\s*\(([^)]*)\)")
    for path in lists:
        text = re.sub(r"#.*", "", path.read_text())
        own = path.parent.relative_to(root / "src").as_posix()
        if own == ".":
            continue
        for match in call.finditer(text):
            words = match[2].split()
            for word in words[1:]:
                target = folders.get(word)
                if target is None or target == own:
                    continue
                row, targets = table.row_of(own + "/CMakeLists.txt")
                # Linking a folder's library is allowed as soon as any of its files may be included.
                if row is None or not any(t == target or t.startswith(target + "/") or covers(t, target) for t in targets):
                    yield f"{path.relative_to(root).as_posix()}: {own} may not link {word}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="tree to check")
    parser.add_argument("--table", type=Path, help="layers.txt to use (default: the tree's own)")
    arguments = parser.parse_args()
    table = Table((arguments.table or arguments.root / "tools" / "layers.txt").read_text())
    complaints = [*check_includes(arguments.root, table), *check_links(arguments.root, table)]
    for complaint in complaints:
        print(complaint)
    print(f"layers: {len(complaints)} crossings")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
