"""Lines of a run log, schema poise.log of docs/run-log.md.

In: poise.Stats with their step and layer. Out: lines appended to a file. Must not happen here: half
a line among those of another process.
"""

import fcntl
import json
import os

_MOST_BYTES = 200


def _runs(counts):
    """Counts one by one; n empty ones in a row are -n."""
    found, empty = [], 0
    for count in counts:
        if count == 0:
            empty += 1
            continue
        if empty:
            found.append(-empty)
            empty = 0
        found.append(count)
    return found + [-empty] if empty else found


def _compact(value):
    """Statistics of Stats.to_json() with sketches and counts in their short form."""
    if isinstance(value, list):
        return [_compact(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"zeros", "first_bin", "bins"}:
        return [value["zeros"], value["first_bin"], *_runs(value["bins"])]
    return {key: _runs(entry) if key == "counts" else _compact(entry)
            for key, entry in value.items()}


def line(step, layer, stats, process=None):
    """One record, with the line end."""
    record = {"schema": "poise.log", "version": 1, "step": step, "layer": layer}
    if process is not None:
        record["process"] = process
    members = json.loads(stats.to_json())
    for name in ("schema", "version"):
        members.pop(name, None)
    record["stats"] = _compact(members)
    return json.dumps(record, separators=(",", ":")) + "\n"


class Log:
    """A file that lines are appended to, each in a single write under a lock."""

    def __init__(self, path, process):
        if process is not None and not (
                isinstance(process, str) and 0 < len(process.encode()) <= _MOST_BYTES):
            raise ValueError(f"[watch] process: {process!r}, expected text of 1 to 200 bytes")
        self._path, self._process = os.fspath(path), process
        with open(self._path, "ab"):
            pass  # what cannot be written is told now

    def take(self, measured, stats=None):
        if stats is None:
            return
        layer = measured.layer.encode()[-_MOST_BYTES:].decode(errors="ignore")
        text = line(measured.step, layer, stats, self._process).encode()
        with open(self._path, "ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if (end := file.seek(0, os.SEEK_END)) > 0:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    text = b"\n" + text  # a process that was killed left half a line
            file.write(text)
