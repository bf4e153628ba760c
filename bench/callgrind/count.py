#!/usr/bin/env python3
"""Instructions of four forward calls, counted by callgrind and compared with baseline.json.

    count.py build/release/bench/poise_one_call             compare; growth above 3 % fails
    count.py build/release/bench/poise_one_call --update    write a new baseline

In: poise_one_call, built with the flags of the release preset. Out: a table; exit code 0 when no
count has grown by more than 3 %, 1 when one has, 2 when a run failed, 77 when the counts cannot be
compared: no valgrind here, or another compiler or C library than the baseline's. Only avx2 and
scalar are counted, since valgrind 3.19 knows no AVX-512. Counts do not vary between runs.
Must not happen here: a new baseline without a reason in the commit that brings it.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

BASELINE = pathlib.Path(__file__).with_name("baseline.json")
ISAS = ("avx2", "scalar")
SHAPES = ("full_128", "causal_192", "gqa_decode_600", "short_64")
ALLOWED_GROWTH = 0.03
NOT_COMPARABLE = 77


def circumstances(program):
    """What counts depend on beside the source: the compiler that made the program, and libc."""
    # Compilers write their name into .comment of what they compile.
    comment = subprocess.run(["readelf", "-p", ".comment", program], capture_output=True, text=True,
                             check=True).stdout
    compilers = sorted(set(re.findall(r"\]\s+(.*\S)", comment)))
    return {"compiler": " + ".join(compilers), "libc": " ".join(platform.libc_ver())}


def count(program, isa, shape):
    """Instructions inside counted_call()."""
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder, "profile")
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=counted_call",
             f"--callgrind-out-file={profile}", program, shape],
            env={**os.environ, "POISE_ISA": isa}, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"{isa} {shape}: exit code {run.returncode}\n{run.stderr}")
        found = re.search(r"^(?:summary|totals): (\d+)", profile.read_text(), re.MULTILINE)
    counted = int(found.group(1)) if found else 0
    if counted == 0:
        raise RuntimeError(f"{isa} {shape}: nothing was counted, is counted_call() still there?")
    return counted


def compare(counts, baseline):
    """Prints the table; the names of what grew too much."""
    grown = []
    print(f"{'':24}{'baseline':>12}{'now':>12}{'growth':>10}")
    for isa in ISAS:
        for shape in SHAPES:
            before, now = baseline[isa][shape], counts[isa][shape]
            growth = now / before - 1
            print(f"{isa + ' ' + shape:24}{before:>12}{now:>12}{100 * growth:>9.2f}%")
            if growth > ALLOWED_GROWTH:
                grown.append(f"{isa} {shape}")
    return grown


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="poise_one_call of a release build")
    parser.add_argument("--update", action="store_true", help="write a new baseline")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("instruction counts were not compared: valgrind is not installed")
        return NOT_COMPARABLE
    here = circumstances(arguments.program)
    if not arguments.update:
        baseline = json.loads(BASELINE.read_text())
        if baseline["circumstances"] != here:
            print(f"instruction counts were not compared: the baseline has "
                  f"{baseline['circumstances']}, here are {here}")
            return NOT_COMPARABLE
    try:
        counts = {isa: {shape: count(arguments.program, isa, shape) for shape in SHAPES}
                  for isa in ISAS}
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.update:
        BASELINE.write_text(
            json.dumps({"circumstances": here, "instructions": counts}, indent=2) + "\n")
        print(f"wrote {BASELINE}; say in the commit why the counts changed")
        return 0
    grown = compare(counts, baseline["instructions"])
    if grown:
        print("grown by more than 3 %: " + ", ".join(grown))
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
