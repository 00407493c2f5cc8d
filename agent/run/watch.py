"""What workers announce, heard by the daemon: each worker's log is read on as it grows.

The supervisor calls `look` while it steps and `end` when a worker is gone; whoever wants to know (a status line,
metrics) listens to `heard`.  Nothing is sent by a worker and nothing waits for a listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.observe.follow import Follower

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.observe.events import Events

SECONDS = 0.5


class Watch:
    """The logs of the workers of one base_dir.  A line that was there before `begin` is no news."""

    def __init__(self, base_dir: Path, heard: Events) -> None:
        self.base_dir = base_dir
        self.follower = Follower(heard)
        self.looked_at = -SECONDS

    def begin(self, uuid: str) -> None:
        """A worker is about to start."""
        self.follower.skip(uuid, self._log("running", uuid))

    def look(self, uuids: Iterable[str]) -> None:
        """Tell what is new, a few times a second at most."""
        now = clock.monotonic()
        if now - self.looked_at < SECONDS:
            return
        self.looked_at = now
        for uuid in uuids:
            self._read(uuid)

    def end(self, uuid: str) -> None:
        """A worker is gone: tell the rest."""
        while self._read(uuid):
            pass
        self.follower.forget(uuid)

    def _read(self, uuid: str) -> int:
        """The folder may just have been moved; the place in the file stays the same."""
        return sum(self.follower.read(uuid, self._log(parent, uuid)) for parent in ("running", "completed"))

    def _log(self, parent: str, uuid: str) -> Path:
        return self.base_dir / parent / uuid / "worker.log"
