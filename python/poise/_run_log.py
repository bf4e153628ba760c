"""Lines of a run log, schema poise.log of docs/run-log.md.

In: poise.Stats with their step and layer. Out: the library's lines appended to a file. Must not
happen here: half a line among those of another process.
"""

import fcntl
import os

from . import _core

_MOST_BYTES = 200


class Log:
    """A file that lines are appended to, each in a single write under a lock."""

    def __init__(self, path, process):
        if process is not None and not (
                isinstance(process, str)
                and 0 < len(process.encode(errors="ignore")) <= _MOST_BYTES
                and process.encode(errors="ignore").decode() == process):
            raise ValueError(f"[watch] process: {process!r}, expected text of 1 to 200 bytes")
        self._path, self._process = os.fspath(path), process
        with open(self._path, "ab"):
            pass  # what cannot be written is told now

    def is_of(self, sink):
        """Whether the other sink writes to the same file."""
        return isinstance(sink, Log) and os.path.samefile(sink._path, self._path)

    def take(self, measured, stats):
        text = _core.log_line(measured.step, measured.layer, stats, self._process or "").encode()
        with open(self._path, "ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if (end := file.seek(0, os.SEEK_END)) > 0:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    text = b"\n" + text  # a process that was killed left half a line
            while text:
                text = text[file.write(text):]  # a full disk takes a part first
