"""What a daemon stands on, looked at again and again: base_dir, its own lock in it, tasks.db, and the rows' schema.

A person may remove or replace any of them under a running daemon, and another host of a shared ledger may bring a
newer schema.  Files that were opened before go on working then, so that nothing fails by itself: the daemon would poll,
look healthy, and start nothing.  `Supervisor` looks at each sweep; `why` keeps it from starting tasks.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import disk, filetree
from agent.errors import DiskError, LockHeld
from agent.run.installed import lock_of
from agent.store import migrate

if TYPE_CHECKING:
    from pathlib import Path

    from agent.run.wiring import Wiring

SHARED = "another daemon works on it now; stop one of the two"


def is_lost(wiring: Wiring) -> bool:
    """Whether a base_dir in which a daemon has worked has a ledger without any row.  Before this one has left a
    trace."""
    there = lock_of(wiring.settings).with_suffix(".json").is_file()
    return there and not any(wiring.ledger.counts().values())


class Ground:
    """`lock` is the descriptor of the daemon's lock, which `close` gives back; None where there is no daemon (tests).
    `why` says why no task can be started, "" when one can; `lost` is set when rows are known to be lost, for whoever
    compares issues with the ledger (`left.py`)."""

    def __init__(self, wiring: Wiring, lock: int | None = None, *, lost: bool = False) -> None:
        self.wiring = wiring
        self.lock = lock
        self.why = ""
        self.lost = threading.Event()
        if lost:
            self.lost.set()
        self.base_dir = wiring.settings.base_dir
        self.database: Path | None = getattr(wiring.db, "path", None)
        self.seen = self._identities()

    def look(self) -> bool:
        """Whether something was replaced, so that rows and folders are to be brought together again."""
        replaced = self._replaced()
        before, self.why = self.why, self._why()
        if self.why and self.why != before:
            self.wiring.events.emit("ground_unfit", why=self.why)
        elif before and not self.why:
            self.wiring.events.emit("ground_fit")
        return replaced

    def close(self) -> None:
        """Give the daemon's lock back."""
        if self.lock is not None:
            disk.unlock(self.lock)
            self.lock = None

    def _identities(self) -> dict[Path, filetree.Identity | None]:
        return {path: disk.identity(path) for path in (self.base_dir, self.database) if path is not None}

    def _replaced(self) -> bool:
        lost = [path for path, known in self.seen.items() if known != disk.identity(path)]
        for path in lost:
            self.wiring.events.emit("ground_replaced", path=str(path))
        if not lost:
            return False
        disk.claim_dir(self.base_dir, disk.passable())
        self.wiring.ledger.counts()  # the connection opens the file that is there now, or makes one
        self.seen = self._identities()
        return True

    def _why(self) -> str:
        return self._lost_lock() or migrate.newer(self.wiring.db)

    def _lost_lock(self) -> str:
        """Take the lock again where another file lies in its place, and say who has it when it cannot be had."""
        path = lock_of(self.wiring.settings)
        if self.lock is None or disk.identity(path) == filetree.identity_of(self.lock):
            return ""
        try:
            taken = disk.lock(path)
        except LockHeld:
            return f"{path} was replaced: {SHARED}"
        except DiskError as error:
            return f"{error}: the daemon's lock is gone"
        disk.unlock(self.lock)
        self.lock = taken
        return ""
