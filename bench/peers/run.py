"""poise and its peers in one run: the same inputs, the same cores, turn by turn.

  run.py --workers FOLDER [--threads 1 2] [--quick] [--only GROUP...] [--shapes REGEX]
         [--contestants REGEX] [--seconds S] [--work FOLDER] [--output FILE]

For each thread count every contestant is started once, pinned to as many cores. For each shape all
load the same file, all are checked against float64, and only then the rounds begin (match.py); what
derivatives take of memory is measured apart from them (memory.py). Out: a JSON file (README.md has
its members), and the tables of table.py on standard output.
Must not happen here: a shape or contestant that disappears without a reason in the results.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import shlex
import sys
import time

import machine
import match
import memory
import problem
import protocol
import reference
import registry
import table
from shapes import GROUPS, SHAPES

_HELLO_SECONDS = 120
# Rounds per shape and thread count.
_EFFORT = match.Effort(seconds=6, fewest_rounds=4)
_QUICK_EFFORT = match.Effort(seconds=0.5, fewest_rounds=2)


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--workers", required=True, type=pathlib.Path,
                        help="the folder with poise_worker and blas_worker")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="few rounds: does everything run?")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP",
                        help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--shapes", default="", help="regular expression on the shapes' names")
    parser.add_argument("--contestants", default="", help="regular expression; poise always runs")
    parser.add_argument("--seconds", type=float,
                        help=f"of rounds per shape (default {_EFFORT.seconds:g})")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/peers"),
                        help="folder for inputs, logs and caches")
    parser.add_argument("--output", type=pathlib.Path, help="results (default: in the work folder)")
    arguments = parser.parse_args()
    available = len(os.sched_getaffinity(0))
    for threads in arguments.threads:
        if not 1 <= threads <= available:
            parser.error(f"--threads {threads}: this process may use {available} cores")
    for name in ("shapes", "contestants"):
        try:
            re.compile(getattr(arguments, name))
        except re.error as problem_of_it:
            parser.error(f"--{name} {getattr(arguments, name)!r}: no regular expression, "
                         f"{problem_of_it}")
    if not _chosen_shapes(arguments):
        parser.error(f"--shapes {arguments.shapes!r}: no shape of {', '.join(arguments.only)} has "
                     f"a name like that")
    if arguments.seconds is not None and not 0 < arguments.seconds < math.inf:
        parser.error(f"--seconds {arguments.seconds:g}: not a positive number")
    # Not after an hour of runs.
    if arguments.output is not None and not os.access(arguments.output.parent, os.W_OK):
        parser.error(f"--output {arguments.output}: {arguments.output.parent} is no folder that "
                     f"can be written to")
    return arguments


def _chosen_shapes(arguments):
    return [shape for shape in SHAPES if re.search(arguments.shapes, shape.name)
            and any(shape.work in GROUPS[group] for group in arguments.only)]


def _command(arguments):
    """The command that repeats this run; ./do peers knows the folders."""
    words = iter(arguments)
    kept = [word for word in words if word not in ("--workers", "--work") or next(words) is None]
    return shlex.join(["./do", "peers", *kept])


class Field:
    """The contestants of one thread count; one that died is started again for the next shape."""

    def __init__(self, chosen, arguments, threads, cores):
        self._chosen, self._arguments, self._cores = chosen, arguments, cores
        self._threads = threads
        self._environment = registry.environment(threads, arguments.work, machine.cpu_flags())
        self.versions, self.absent = {}, {}
        self.clients = {}
        for contestant in chosen:
            self._start(contestant)

    def _start(self, contestant):
        command = contestant.command(self._arguments.workers)
        log = self._arguments.work / (re.sub(r"\W+", "_", contestant.name.lower()) + ".log")
        try:
            client = protocol.Client(command, self._cores, self._environment, log)
            hello = client.ask({"verb": "hello"}, _HELLO_SECONDS)
        except FileNotFoundError:
            self.absent[contestant.name] = "its worker was not built"
            return
        except protocol.Died as error:
            self.absent[contestant.name] = f"did not start: {error}; see {log.name}"
            return
        core = hello["versions"].get("openblas core")
        wanted = self._environment.get("OPENBLAS_CORETYPE", core)
        if core is not None and core.lower() != wanted.lower():
            self.absent[contestant.name] = f"OpenBLAS runs its {core} kernels, not {wanted}'s"
            client.close()
            return
        self.versions |= hello["versions"]
        self.clients[contestant.name] = client

    def add_memory(self, shape, inputs, results):
        """Puts the memory of a call into the records of those that passed."""
        for contestant in self._chosen:
            record = results.get(contestant.name, {})
            if "best_seconds" in record:
                record["memory_bytes"] = memory.added_bytes(
                    contestant.command(self._arguments.workers), shape, inputs, self._threads,
                    self._cores, self._environment, self._arguments.work)

    def restart_dead(self, results):
        for contestant in self._chosen:
            client = self.clients.get(contestant.name)
            if client is not None and results.get(contestant.name, {}).get("died"):
                client.close()
                del self.clients[contestant.name]
                self._start(contestant)
        # poise leads, and the others keep their order.
        self.clients = {c.name: self.clients[c.name] for c in self._chosen
                        if c.name in self.clients}

    def close(self):
        for client in self.clients.values():
            client.close()


def _run_threads(threads, cores, chosen, shapes, problems, effort, arguments):
    """All shapes at one thread count. Returns the run's part of the results, and versions."""
    field = Field(chosen, arguments, threads, cores)
    try:
        if "poise" not in field.clients:
            sys.exit(f"poise: {field.absent['poise']}")
        run = {"threads": threads, "cores": cores, "shapes": {}}
        for shape in shapes:
            start = time.monotonic()
            entered = [c for c in chosen if c.runs(shape)]
            clients = {c.name: field.clients[c.name] for c in entered if c.name in field.clients}
            records = match.play(shape, *problems[shape.name], clients, threads, effort,
                                 arguments.work / "answer.bin")
            if shape.work not in GROUPS["forward"]:
                field.add_memory(shape, problems[shape.name][0], records)
            field.restart_dead(records)
            # In the order of the tables, the absent ones with their reason.
            run["shapes"][shape.name] = {
                c.name: records.get(c.name) or {"refused": field.absent[c.name]} for c in entered}
            print(f"{threads} threads, {shape.title()}: {time.monotonic() - start:.0f} s",
                  file=sys.stderr)
        return run, field.versions
    finally:
        field.close()


def main():
    arguments = _arguments()
    effort = _QUICK_EFFORT if arguments.quick else _EFFORT
    if arguments.seconds is not None:
        effort = dataclasses.replace(effort, seconds=arguments.seconds)
    shapes = _chosen_shapes(arguments)
    chosen = [c for c in registry.CONTESTANTS if any(map(c.runs, shapes))
              and (c.name == "poise" or re.search(arguments.contestants, c.name))]
    arguments.work.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    results = {
        "date": datetime.date.today().isoformat(), "command": _command(sys.argv[1:]),
        "machine": machine.describe(), "versions": {}, "bounds": problem.BOUNDS,
        "effort": dataclasses.asdict(effort), "load_average": {"start": machine.load_average()},
        "shapes": {shape.name: shape.__dict__ | {"title": shape.title()} for shape in shapes},
        "runs": []}
    started = time.monotonic()
    problems = {}
    for shape in shapes:
        inputs = problem.make(shape, arguments.work)
        problems[shape.name] = (inputs, reference.answer(shape, inputs))
    print(f"inputs and float64 answers: {time.monotonic() - started:.0f} s", file=sys.stderr)
    for threads in arguments.threads:
        # The last cores: the first one serves most interrupts.
        run, versions = _run_threads(threads, cores[-threads:], chosen, shapes, problems, effort,
                                     arguments)
        results["runs"].append(run)
        results["versions"] |= versions
    results["load_average"]["end"] = machine.load_average()
    results["minutes"] = round((time.monotonic() - started) / 60, 1)
    output = arguments.output or (
        arguments.work / f"{results['date']}-{machine.cpu_slug()}.json")
    print(table.tables(results))
    output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\nresults: {output}", file=sys.stderr)


if __name__ == "__main__":
    main()
