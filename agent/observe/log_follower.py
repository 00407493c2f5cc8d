"""Reads the events of other processes from their log files.

Each task has a process of its own, which writes its events to `worker.log`. The daemon reads the new lines of the
tasks' `worker.log` files for its metrics and its status line. Log files are used because a pipe to the daemon could
block a worker, or break when the daemon ends.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.observe.events import EVENTS

if TYPE_CHECKING:
    from pathlib import Path

    from agent.observe.events import Events

MOST = 1 << 20
"""The maximum number of bytes of a log file that one call of `read` reads; the next call continues."""


class LogFollower:
    """Announces the new lines of log files as events to the listeners of `events`, each line once, in the order of the
    file."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self._places: dict[str, tuple[int, int]] = {}

    def read(self, key: str, path: Path) -> int:
        """Announce the complete lines that were added to `path` since the last call with this `key`, at most `MOST`
        bytes; returns the number of events.

        `key` is the task's uuid, which stays the same when the folder is renamed. A missing log file has no lines. If a
        new file has replaced the file at `path`, or the file has become shorter, it is read from its beginning. A line
        of a log file that is not an event of this program is skipped.
        """
        try:
            descriptor = durable_files.open_regular(path)
        except OSError:
            return 0
        try:
            state = os.fstat(descriptor)
            inode, offset = self._places.get(key, (state.st_ino, 0))
            if inode != state.st_ino or offset > state.st_size:
                offset = 0
            block = os.pread(descriptor, MOST, offset)
        finally:
            os.close(descriptor)
        whole = block.rfind(b"\n") + 1
        if not whole and len(block) == MOST:
            whole = MOST  # a block of MOST bytes without a line end: no event is so long, so it is skipped
        self._places[key] = (state.st_ino, offset + whole)
        found = [event for line in block[:whole].splitlines() if (event := _event(line)) is not None]
        for name, fields in found:
            self.events.emit(name, **fields)
        return len(found)

    def skip(self, key: str, path: Path) -> None:
        """Skip the present content of a log file, which an earlier process has counted."""
        try:
            state = path.stat()
        except OSError:
            return
        self._places[key] = (state.st_ino, state.st_size)

    def forget(self, key: str) -> None:
        """Discard the position in the log file of a task that has ended."""
        self._places.pop(key, None)


def _event(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    name = fields.pop("event", None) if isinstance(fields, dict) else None
    return (name, fields) if isinstance(name, str) and name in EVENTS else None
