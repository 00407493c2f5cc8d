"""Whether the disk of base_dir can be written, and has room: no task is started without, and what waited goes on with.

A task that cannot write pauses with the outcome `disk` (`handler.py`).  The daemon tries it again by itself: at once
when a shortage that was seen here is over, else after a while that doubles (the place that could not be written may be
another one than base_dir).  Called by `Supervisor`; `shortage` also by `solve` and `doctor`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent import clock, disk
from agent.config.kinds import size_text
from agent.errors import DiskError
from agent.taskqueue.identity import of_another_host
from agent.values import Status

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

SECONDS = 5.0
FIRST_SECONDS, LONGEST_SECONDS = 20.0, 1200.0
"""How long a task that could not write waits for the next try, at first and at most."""

OUTCOME = "disk"
"""Outcome of a paused row that the daemon resumes by itself."""

LEAST_FILES = 10_000
"""Files that a file system must still take, or a hundredth of those it has room for, whichever is less."""

_PROBE = 64 << 10


class Room:
    """The room of one base_dir.  `why` says why no task can be started, "" when one can."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.why = ""
        self.looked_at = -SECONDS
        self.tries: dict[str, tuple[int, float]] = {}  # uuid → (resumed so often, not again before)

    def look(self) -> None:
        """A look, every five seconds at most: announce a shortage and its end, resume what waits for that."""
        now = clock.monotonic()
        if now - self.looked_at < SECONDS:
            return
        self.looked_at = now
        waiting = self._waiting()
        before, self.why = self.why, shortage(self.wiring.settings, probe=bool(self.why or waiting))
        if self.why and not before:
            self.wiring.events.emit("disk_low", why=self.why)
        elif before and not self.why:
            self.wiring.events.emit("disk_free", free=free(self.wiring.settings.base_dir))
        if not self.why:
            items = self.wiring.items("disk_free")
            for row in waiting:
                with items.one(row.uuid):
                    self._resume(row, now, at_once=bool(before))
            items.end()

    def _waiting(self) -> list[Row]:
        rows = self.wiring.ledger.paused_for(OUTCOME)
        waiting = [row for row in rows if not of_another_host(row)]
        self.tries = {row.uuid: self.tries[row.uuid] for row in rows if row.uuid in self.tries} if waiting else {}
        return waiting

    def _resume(self, row: Row, now: float, *, at_once: bool) -> None:
        count, until = self.tries.setdefault(row.uuid, (0, now + FIRST_SECONDS))
        if now < until and not at_once:
            return
        self.tries[row.uuid] = (count + 1, now + min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (count + 1)))
        if self.wiring.ledger.request(row.uuid, "resume", waiting=OUTCOME) is not Status.QUEUED:
            return  # a person paused or stopped it meanwhile
        self.wiring.events.emit("task_resumed", uuid=row.uuid, why="the disk can be written again")


def shortage(settings: Settings, *, probe: bool = False) -> str:
    """Why base_dir has no room for another task, "" when it has; with `probe` a few bytes are written to know it."""
    folder, least = settings.base_dir, settings.scheduling.min_free
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror}"
    left = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        return f"the file system of {folder} is read-only; make it writable"
    if least is not None and left < least:
        return (
            f"{left / (1 << 20):,.0f} MiB are free for {folder}, `scheduling.min_free` is {size_text(least)}; "
            f"free some space (`cleanup` removes old tasks)"
        )
    if found.f_favail < min(LEAST_FILES, found.f_files // 100):  # some file systems count none: 0 of 0
        return (
            f"{found.f_favail:,} more files are possible on the file system of {folder}, which has room for "
            f"{found.f_files:,}; remove some (`cleanup` removes old tasks)"
        )
    return _refused(folder) if probe else ""


def _refused(folder: Path) -> str:
    """What a write says: a quota or a permission shows no other way."""
    try:
        disk.write_file(folder / ".room", b"\0" * _PROBE)
        (folder / ".room").unlink()  # ours
    except (DiskError, OSError) as error:
        return str(error)
    return ""


def free(folder: Path) -> int:
    """Bytes that this user may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
