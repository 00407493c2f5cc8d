"""Hears the events of other processes, from the log files that they write.

Each task has a process of its own and its `worker.log` is a file of events; so a daemon that counts, or a page that
shows, reads what is new in those files.  No pipe that could block a worker or break with the daemon.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from agent.observe.events import EVENTS

if TYPE_CHECKING:
    from pathlib import Path

    from agent.observe.events import Events

MOST = 1 << 20
"""Bytes read at a time; the rest is read by the next call."""


class Follower:
    """Announces what is new in log files to the listeners of `events`, each line once, in the order of the file."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self._places: dict[str, tuple[int, int]] = {}

    def read(self, key: str, path: Path) -> int:
        """Take in the whole lines that were added to `path` since the last call with this `key`, at most `MOST` bytes;
        returns how many events there were.  `key` stays the same when the folder is renamed (the task's uuid).

        A file that is not there has no lines; a new file in its place is read from its beginning; a line that is no
        event of ours is passed over.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
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
            whole = MOST  # one line larger than a block is no line of ours
        self._places[key] = (state.st_ino, offset + whole)
        found = [event for line in block[:whole].splitlines() if (event := _event(line)) is not None]
        for name, fields in found:
            self.events.emit(name, **fields)
        return len(found)

    def skip(self, key: str, path: Path) -> None:
        """Pass over what is there now: it was counted by somebody before us."""
        try:
            state = path.stat()
        except OSError:
            return
        self._places[key] = (state.st_ino, state.st_size)

    def forget(self, key: str) -> None:
        """The task is over; its place in the file is not needed any more."""
        self._places.pop(key, None)


def _event(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    name = fields.pop("event", None) if isinstance(fields, dict) else None
    return (name, fields) if isinstance(name, str) and name in EVENTS else None
