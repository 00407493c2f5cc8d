"""Reads the events of workers from their growing log files, and emits them again in the daemon. A worker sends no
events to the daemon, and so does not wait for the daemon's listeners."""

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
    """Emits the events in the logs of the workers of one base_dir to the listeners of `heard`, except for the lines
    that a log had before the call of `start`."""

    def __init__(self, base_dir: Path, heard: Events) -> None:
        self.base_dir = base_dir
        self.follower = LogFollower(heard)
        self.looked_at = -SECONDS

    def start(self, uuid: str) -> None:
        """Skip the present lines of the task's log, because a worker is about to start."""
        self.follower.skip(uuid, self._log("running", uuid))

    def read_new(self, uuids: Iterable[str]) -> None:
        """Emit the events in the new lines of the logs of the tasks `uuids`; does nothing if the last call was less
        than SECONDS ago."""
        now = clock.monotonic()
        if now - self.looked_at < SECONDS:
            return
        self.looked_at = now
        for uuid in uuids:
            self._read(uuid)

    def finish(self, uuid: str) -> None:
        """Emit the events in the remaining lines of the log of a worker that has ended."""
        while self._read(uuid):
            pass
        self.follower.forget(uuid)

    def _read(self, uuid: str) -> int:
        """Emit the events in new lines of one task's log, and return their number. The task's folder may have been
        moved to `completed/`; the offset in the file stays the same."""
        return sum(self.follower.read(uuid, self._log(parent, uuid)) for parent in ("running", "completed"))

    def _log(self, parent: str, uuid: str) -> Path:
        return self.base_dir / parent / uuid / "worker.log"
