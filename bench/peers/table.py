"""The results of a run as Markdown: for docs/performance.md, and a summary for the README.

  table.py RESULTS.json [--summary]

In: a results file of run.py. Out: text on standard output. A ratio is time of the peer over time of
poise, median over the rounds of ratios taken within a round: above 1 poise is faster. Derivatives
have tables of their own, with the memory of a call.
Must not happen here: a figure that is not in the file.
"""

import argparse
import json

from shapes import GROUPS


def _three_digits(value):
    return f"{value:.{max(0, 3 - len(str(int(value))))}f}"


def _duration(seconds):
    """Three digits with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            return f"{_three_digits(seconds / size)} {unit}"
    raise AssertionError


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _table(head, rows):
    return "\n".join([_row(head), _row(["---"] * len(head)), *map(_row, rows)])


def _timed(records):
    return {name: record for name, record in records.items() if "best_seconds" in record}


def _best_peer(records):
    """(name, record) of the peer with the smallest ratio, None when none ran."""
    peers = {name: record for name, record in _timed(records).items()
             if name != "poise" and record["ratio_to_poise"] is not None}
    return min(peers.items(), key=lambda item: item[1]["ratio_to_poise"], default=None)


def _memory(record):
    """What a call adds, "?" where it was not to be had."""
    size = record.get("memory_bytes")
    return "?" if size is None else f"{_three_digits(size / 2**20)} MiB"


def _has_memory(run):
    return any("memory_bytes" in record
               for records in run["shapes"].values() for record in records.values())


def _groups(results, run):
    """The run cut into one per group of shapes.GROUPS, empty ones left out."""
    for works in GROUPS.values():
        shapes = {name: records for name, records in run["shapes"].items()
                  if results["shapes"][name].get("work", "forward") in works}
        if shapes:
            yield run | {"shapes": shapes}


def _threads(run):
    return "one thread" if run["threads"] == 1 else f"{run['threads']} threads"


def summary(results, run):
    """poise beside the best peer of every shape; with memory where it was measured."""
    rows, with_memory = [], _has_memory(run)
    for name, records in run["shapes"].items():
        title = results["shapes"][name]["title"]
        poise, peer = records.get("poise", {}), _best_peer(records)
        if "best_seconds" not in poise or peer is None:
            rows.append([title, poise.get("refused", "no peer ran"), "", "", "",
                         *([_memory(poise), ""] if with_memory else [])])
            continue
        rows.append([
            title,
            f"{_duration(poise['best_seconds'])} ({_duration(poise['median_seconds'])})", peer[0],
            f"{_duration(peer[1]['best_seconds'])} ({_duration(peer[1]['median_seconds'])})",
            f"{peer[1]['ratio_to_poise']:.2f}"])
        if with_memory:
            rows[-1] += [_memory(poise), _memory(peer[1])]
    return _table(["B,Hq,Hkv,Lq,Lk,D", f"poise, {_threads(run)}: best (median)", "best peer",
                   "best (median)", "peer / poise"]
                  + (["memory, poise", "memory, peer"] if with_memory else []), rows)


def matrix(results, run):
    """Ratios of every peer (and memory), and what each of them ran or why it did not."""
    names = [name for name in next(iter(run["shapes"].values())) if name != "poise"]
    rows, reasons = [], {}
    for shape, records in run["shapes"].items():
        cells = [results["shapes"][shape]["title"]]
        for name in names:
            record = records.get(name, {"refused": "not started"})
            if "refused" in record or record.get("ratio_to_poise") is None:
                note = (name, record.get("refused", "poise did not run"))
                reasons.setdefault(note, len(reasons) + 1)
                cells.append(f"({reasons[note]})")
            else:
                cells.append(f"{record['ratio_to_poise']:.2f}"
                             + (f" ({_memory(record)})" if "memory_bytes" in record else ""))
        rows.append(cells)
    notes = [f"({number}) {name}: {reason}" for (name, reason), number in reasons.items()]
    return _table([f"peer / poise, {_threads(run)}", *names], rows) + "\n\n" + "\\\n".join(notes)


def ran(run):
    """What each contestant ran, with the number of shapes."""
    lines = []
    for name in dict.fromkeys(name for records in run["shapes"].values() for name in records):
        ways = {}
        for records in run["shapes"].values():
            if "ran" in records.get(name, {}):
                ways[records[name]["ran"]] = ways.get(records[name]["ran"], 0) + 1
        if ways:
            lines.append(f"- {name}: " + "; ".join(f"{way} ({n})" for way, n in ways.items()))
    return "\n".join(lines)


def _header(results):
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    load = results["load_average"]
    machine = results["machine"]
    return (f"`{results['command']}`, {results['date']}, {machine['cores_of_machine']} cores of "
            f"{machine['cpu']}, {machine['system']}; load average {load['start']:.1f} before, "
            f"{load['end']:.1f} after; {versions}.")


def tables(results):
    """Everything, for docs/performance.md."""
    parts = [_header(results)]
    for run in results["runs"]:
        for group in _groups(results, run):
            parts += [summary(results, group), matrix(results, group)]
    if results["runs"]:
        parts += ["What ran, with the number of shapes:\n\n" + ran(results["runs"][0])]
    return "\n\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("results")
    parser.add_argument("--summary", action="store_true", help="the README's tables only")
    arguments = parser.parse_args()
    try:
        with open(arguments.results, encoding="utf-8") as file:
            results = json.load(file)
    except (OSError, ValueError) as problem:
        parser.error(f"{arguments.results}: {problem}")
    if arguments.summary:
        print("\n\n".join([_header(results), *(summary(results, group) for run in results["runs"]
                                               for group in _groups(results, run))]))
    else:
        print(tables(results))


if __name__ == "__main__":
    main()
