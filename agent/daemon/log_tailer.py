"""Reads the events of workers from their growing log files, and announces them in the daemon.

The supervisor calls `read_new` in each step and `finish` when a worker has ended; a status line or the metrics listen
to `heard`. A worker sends nothing to the daemon, and does not wait for any listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.observe.log_follower import LogFollower

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.observe.events import Events

SECONDS = 0.5


class LogTailer:
    """Follows the logs of the workers of one base_dir. Lines that a log had before the call of `start` are skipped."""

    def __init__(self, base_dir: Path, heard: Events) -> None:
        self.base_dir = base_dir
        self.follower = LogFollower(heard)
        self.looked_at = -SECONDS

    def start(self, uuid: str) -> None:
        """Skip the present lines of a log, because a worker is about to start."""
        self.follower.skip(uuid, self._log("running", uuid))

    def read_new(self, uuids: Iterable[str]) -> None:
        """Announce the new lines of the workers' logs, at most a few times a second."""
        now = clock.monotonic()
        if now - self.looked_at < SECONDS:
            return
        self.looked_at = now
        for uuid in uuids:
            self._read(uuid)

    def finish(self, uuid: str) -> None:
        """Announce the remaining lines in the log of a worker that has ended."""
        while self._read(uuid):
            pass
        self.follower.forget(uuid)

    def _read(self, uuid: str) -> int:
        """Announce the new lines of one log; its folder may have been moved, which does not change the offset in the
        file."""
        return sum(self.follower.read(uuid, self._log(parent, uuid)) for parent in ("running", "completed"))

    def _log(self, parent: str, uuid: str) -> Path:
        return self.base_dir / parent / uuid / "worker.log"
