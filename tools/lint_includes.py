#!/usr/bin/env python3
"""The include law and the file rules of HACKING.md, checked on the source tree.

In: the root of a checkout (default: the one this file stands in). Out: one line per violation,
`path:line: sentence`; exit code 0 when there is none, 1 otherwise. `--self-test` makes a small tree
in which every rule is broken once and checks that each is reported, and that a clean tree is not.
Must not happen here: reading files git would not list as sources, depending on anything but Python.
"""

import argparse
import pathlib
import re
import sys
import tempfile

ROOMS = ("include", "src", "lab", "cli", "python", "tests", "bench", "examples", "tools")
CPP_SUFFIXES = {".h", ".cpp", ".inl"}
SUFFIXES = CPP_SUFFIXES | {".py"}
MAX_COLUMNS = 100
MAX_LINES = 500
MAX_KERNEL_LINES = 600
# Spelled in halves so that this file does not break its own rule.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Headers the judging rooms may use: any engine's statistics can be judged, so nothing here may know
# how attention was computed.
JUDGING = {
    "poise/advice.h", "poise/stats.h", "poise/health.h", "poise/report.h", "poise/error.h",
    "poise/theory.h", "poise/series.h", "poise/run_log.h"}
# The files of those rooms in src, by the first word of their names, and of these the ones that look
# at query and key.
JUDGING_FILES = {
    "advice", "stats", "sketch", "theory", "moments", "health", "thresholds", "verdicts", "wording"}
TENSOR_FILES = {"theory", "moments"}
# The report's drawing and typesetting, which other rooms' pictures share.
REPORT_DRAWS = {"report/svg.h", "report/words.h"}
# How those look: views are checked and read by the same lines as everywhere.
TENSOR_PRIVATE = {"check_view.h", "view_values.h", "widen.h"}


def is_std(target):
    """C++ and C standard headers: no slash, and no suffix but the C library's .h."""
    if "/" in target:
        return False
    return not target.endswith(".h") or target in {
        "assert.h", "errno.h", "fenv.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h",
        "stdio.h", "stdlib.h", "string.h"}


def is_posix(target):
    return target.startswith("sys/") or target in {
        "fcntl.h", "langinfo.h", "pthread.h", "sched.h", "signal.h", "unistd.h"}


def is_intrinsics(target):
    return target in {"immintrin.h", "x86intrin.h", "arm_neon.h", "cpuid.h"}


def is_public(target):
    return target.startswith("poise/")


def is_json(target):
    return target.startswith("nlohmann/")


def first_word(path):
    return pathlib.PurePath(path).stem.split("_")[0]


def room_of(path):
    """The room a file stands in, by its path from the root."""
    parts = path.parts
    if parts[:2] == ("include", "poise"):
        return "include/poise"
    if parts[0] == "src" and len(parts) > 2:
        return "/".join(parts[:2])
    if parts[0] == "src":
        return "judging" if first_word(path) in JUDGING_FILES else "src"
    return parts[0]


def allowed(path, quoted, target):
    """None when the include is lawful, else what this room may include."""
    room = room_of(path)
    if room == "include/poise":
        if is_public(target) or (is_std(target) and not quoted):
            return None
        return "the standard library and <poise/...>"
    if room == "src/kernels":
        c_header = is_std(target) and target.endswith(".h")
        if c_header or (quoted and target.startswith("kernels/")) or target == "kernels.h":
            return None
        return "kernels.h, other kernel files and freestanding C headers"
    if room == "src/isa":
        if path.stem == "dispatch" and (is_public(target) or is_posix(target)):
            return None
        if is_std(target) or is_intrinsics(target):
            return None
        if quoted and (target.startswith(("kernels/", "isa/")) or "/" not in target):
            return None
        return "kernels, other isa files, intrinsics and the standard library"
    if room in ("judging", "src/report"):
        sees_tensors = room == "judging" and first_word(path) in TENSOR_FILES
        if is_public(target):
            if target in JUDGING or (sees_tensors and target == "poise/tensor.h"):
                return None
        elif is_std(target) and not quoted:
            return None
        elif room == "src/report" and (is_json(target) or quoted and target.startswith("report/")):
            return None
        elif quoted and "/" not in target and first_word(target) in JUDGING_FILES:
            return None
        elif sees_tensors and target in TENSOR_PRIVATE:
            return None
        return "poise/{advice,stats,theory,health,report,error}.h and the headers of its own room"
    if room == "src/io":
        if target in {"poise/tensor.h", "poise/error.h"} or is_json(target) or target == "zlib.h":
            return None
        if (is_std(target) and not quoted) or is_posix(target):
            return None
        if quoted and (target.startswith("io/") or target == "kernels/half.h"):
            return None
        return "poise/{tensor,error}.h, io/, kernels/half.h, nlohmann, zlib, POSIX and the " \
            "standard library"
    if room == "src/timing":
        if (is_std(target) and not quoted) or is_posix(target) or target == "malloc.h":
            return None
        if quoted and target.startswith("timing/"):
            return None
        return "its own headers, POSIX and the standard library"
    if room == "src":
        if is_public(target) or (is_std(target) and not quoted) or is_posix(target):
            return None
        if target.startswith(("tbb/", "oneapi/")):
            return None if path.stem == "executor" else "oneTBB only in executor.cpp"
        if quoted and target in {
                "kernels/kernels.h", "kernels/philox.h", "isa/dispatch.h", "timing/series.h"}:
            return None
        if quoted and "/" not in target and target.endswith(".h") \
                and not target.startswith("simd_"):
            return None
        return "include/poise, src/*.h, kernels/kernels.h, kernels/philox.h, isa/dispatch.h and " \
            "timing/series.h"
    if room == "lab":
        if target.startswith("Eigen/"):
            return None if path.parts[1] == "training" else "Eigen only in lab/training"
        if is_public(target) or (is_std(target) and not quoted):
            return None
        if quoted and (target.startswith("lab/") or target in REPORT_DRAWS):
            return None
        return "include/poise, its own headers, report/{svg,words}.h, Eigen in lab/training"
    if room == "cli":
        if is_public(target) or target.startswith(("CLI/", "io/", "lab/")) or is_json(target):
            return None
        if (is_std(target) and not quoted) or is_posix(target):
            return None
        if quoted and ("/" not in target or target in {"timing/series.h", "report/svg.h"}):
            return None
        return ("include/poise, io/, lab/, timing/series.h, report/svg.h, CLI11, nlohmann, its own "
                "files")
    if room == "python":
        if is_public(target) or (is_std(target) and not quoted) or is_posix(target):
            return None
        if target.startswith(("nanobind/", "io/")) or (quoted and "/" not in target):
            return None
        return "include/poise, io/, nanobind and its own files"
    if room == "examples":
        if is_public(target) or (is_std(target) and not quoted):
            return None
        return "what an installed poise offers: <poise/...> and the standard library"
    return None  # tests, bench and tools may include everything


def head_comment_lines(path, lines):
    """Lines of the comment that opens the file."""
    if path.suffix == ".py":
        text = "\n".join(lines)
        match = re.match(r'(?:#!.*\n)?(?:"""(.*?)""")', text, re.DOTALL)
        return match.group(1).count("\n") + 1 if match else 0
    count = 0
    for line in lines:
        if not line.startswith("//"):
            break
        count += 1
    return count


def check_file(root, path):
    """All violations of one file as (line, sentence)."""
    try:
        text = (root / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield 1, "not UTF-8"
        return
    lines = text.splitlines()
    cap = MAX_KERNEL_LINES if path.parts[:2] in (("src", "kernels"), ("src", "isa")) else MAX_LINES
    if len(lines) > cap:
        yield cap, f"{len(lines)} lines, the cap is {cap}: split by meaning"
    if head_comment_lines(path, lines) < 2:
        yield 1, "no head comment: say what lives here, what goes in and out, what must not happen"
    # Headers of src/isa are included once per instruction set.
    once = path.parts[:2] != ("src", "isa") or path.stem == "dispatch"
    if path.suffix == ".h" and once and not re.search(r"^#pragma once$", text, re.MULTILINE):
        yield 1, "no #pragma once"
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield number, "a tab"
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, the limit is {MAX_COLUMNS}"
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if UNFINISHED.search(line):
            yield number, f"an unfinished mark: {UNFINISHED.search(line).group(0)}"
        if path.suffix in CPP_SUFFIXES:
            match = INCLUDE.match(line)
            if match:
                quoted, target = match.group(1) == '"', match.group(2)
                rule = allowed(path, quoted, target)
                if rule is not None:
                    yield number, f"{room_of(path)} may not include {target}: it may include {rule}"


def check_tree(root):
    """Every violation in the tree, in order of path and line."""
    found = []
    for room in ROOMS:
        for file in sorted((root / room).rglob("*")):
            path = file.relative_to(root)
            if file.is_file() and file.suffix in SUFFIXES and "__pycache__" not in path.parts:
                found += [f"{path}:{line}: {what}" for line, what in check_file(root, path)]
    return found


HEAD = "// What lives here.\n// In, out, and what must not happen.\n"
CLEAN = {
    "include/poise/stats.h": HEAD + "#pragma once\n#include <poise/error.h>\n#include <vector>\n",
    "src/check.cpp": HEAD + '#include "check.h"\n#include <poise/attention.h>\n',
    "src/theory.cpp": HEAD + '#include <poise/tensor.h>\n#include "wording.h"\n',
    "src/isa/simd_avx2.h": HEAD,
    "src/isa/avx2.cpp": HEAD + '#include <immintrin.h>\n#include "kernels/forward.inl"\n',
    "src/kernels/forward.inl": HEAD + '#include "kernels/kernels.h"\n#include <stdint.h>\n',
    "src/io/npy.cpp": HEAD + '#include <sys/mman.h>\n#include <zlib.h>\n#include "io/npy.h"\n',
    "src/timing/series.cpp": HEAD + '#include <malloc.h>\n#include "timing/series.h"\n',
    "src/limits.cpp": HEAD + '#include "timing/series.h"\n',
    "src/report/html.cpp": HEAD + "#include <poise/report.h>\n#include <nlohmann/json.hpp>\n",
    "lab/units.cpp": HEAD + '#include <poise/attention.h>\n#include <thread>\n',
    "lab/chart.cpp": HEAD + '#include "lab/units.h"\n#include "report/svg.h"\n',
    "lab/training/model.cpp": HEAD + '#include <Eigen/Dense>\n',
    "cli/main.cpp": HEAD + '#include <CLI/CLI.hpp>\n#include "io/npy.h"\n',
    "cli/bench.cpp": HEAD + '#include "timing/series.h"\n#include "report/svg.h"\n',
    "python/array.cpp": HEAD + '#include <nanobind/ndarray.h>\n#include <poise/tensor.h>\n',
    "examples/first.cpp": HEAD + "#include <poise/poise.h>\n",
    "tools/tool.py": '"""What lives here.\n\nIn, out.\n"""\n',
}
BROKEN = [  # path, text, part of the sentence
    ("include/poise/a.h", HEAD + "#pragma once\n#include <immintrin.h>\n", "may not include"),
    ("include/poise/b.h", HEAD + '#pragma once\n#include "check.h"\n', "may not include"),
    ("include/poise/c.h", HEAD, "no #pragma once"),
    ("src/stats.cpp", HEAD + "#include <poise/attention.h>\n", "may not include"),
    ("src/health.cpp", HEAD + "#include <poise/tensor.h>\n", "may not include"),
    ("src/verdicts_a.cpp", HEAD + '#include "check_view.h"\n', "may not include"),
    ("src/report/svg.cpp", HEAD + '#include "plan.h"\n', "may not include"),
    ("src/plan.cpp", HEAD + '#include "kernels/forward.inl"\n', "may not include"),
    ("src/plan2.cpp", HEAD + '#include "isa/simd_avx2.h"\n', "may not include"),
    ("src/plan3.cpp", HEAD + "#include <tbb/task_arena.h>\n", "executor.cpp"),
    ("src/isa/avx512.cpp", HEAD + '#include <poise/tensor.h>\n', "may not include"),
    ("src/kernels/mask.inl", HEAD + "#include <vector>\n", "may not include"),
    ("src/io/npz.cpp", HEAD + "#include <poise/attention.h>\n", "may not include"),
    ("src/timing/clock.cpp", HEAD + '#include <poise/tensor.h>\n', "may not include"),
    ("lab/json.cpp", HEAD + "#include <nlohmann/json.hpp>\n", "may not include"),
    ("lab/draws.cpp", HEAD + '#include "kernels/philox.h"\n', "may not include"),
    ("lab/mean.cpp", HEAD + "#include <Eigen/Dense>\n", "only in lab/training"),
    ("cli/face.cpp", HEAD + '#include "report/html_parts.h"\n', "may not include"),
    ("cli/attend.cpp", HEAD + '#include "kernels/kernels.h"\n', "may not include"),
    ("python/bind.cpp", HEAD + '#include "report/svg.h"\n', "may not include"),
    ("examples/second.cpp", HEAD + '#include "io/npy.h"\n', "may not include"),
    ("tests/a_test.cpp", "int x;\n", "no head comment"),
    ("tools/headless.py", "x = 1\n", "no head comment"),
    ("bench/a.cpp", HEAD + "int\tx;\n", "a tab"),
    ("bench/b.cpp", HEAD + "int x; \n", "blanks at the end"),
    ("bench/c.cpp", HEAD + "// " + "x" * MAX_COLUMNS + "\n", "columns"),
    ("bench/d.cpp", HEAD + "// TO" + "DO: later\n", "unfinished mark"),
    ("bench/e.cpp", HEAD + "\n" * MAX_LINES, "the cap is 500"),
    ("src/kernels/f.inl", HEAD + "\n" * MAX_KERNEL_LINES, "the cap is 600"),
]


def self_test():
    """Checks that a clean tree passes and that each broken file is reported, once, by its rule."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)

        def write(path, text):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")

        for path, text in CLEAN.items():
            write(path, text)
        failures = [f"clean tree: {line}" for line in check_tree(root)]
        for path, text, expected in BROKEN:
            write(path, text)
            found = check_tree(root)
            if len(found) != 1 or not found[0].startswith(path) or expected not in found[0]:
                failures.append(f"{path}: expected one line with '{expected}', got {found}")
            (root / path).unlink()
        for line in failures:
            print(line)
        return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    found = check_tree(arguments.root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
