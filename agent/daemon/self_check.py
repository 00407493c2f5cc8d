"""Regularly checks what the daemon depends on: base_dir and its folders of tasks, its own lock in it, tasks.db, and the
schema of the rows.

A person may remove or replace base_dir, the lock or tasks.db while a daemon runs, and another host of a shared ledger
may install a newer schema. Files that the daemon has open continue to work when somebody removes or replaces them, so
that no error occurs: the daemon would poll, look healthy, and start nothing. `dead_rows.py` makes the checks at each
sweep (a regular pass over the rows); while `why` is set, `Supervisor` starts no tasks.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from agent import durable_files, filetree
from agent.daemon.program_version import lock_of
from agent.errors import DiskError, LockHeld
from agent.store import migrate

if TYPE_CHECKING:
    from pathlib import Path

    from agent.wiring.wiring import Wiring

SHARED = "another daemon works on it now; stop one of the two"


def is_lost(wiring: Wiring) -> bool:
    """Whether a daemon has worked in this base_dir before although the ledger has no row.

    `is_lost` must be called before this daemon writes its record beside the lock.
    """
    there = lock_of(wiring.settings).with_suffix(".json").is_file()
    return there and not any(wiring.ledger.counts().values())


class SelfCheck:
    """`lock` is the descriptor of the daemon's lock, which `close` releases; None if there is no daemon (in tests).

    `why` is the reason, found by the self check, why no task can be started, "" when there is none. `lost` is set at
    the start if rows are known to be lost, and by `dead_rows.py`; `intake/orphaned_issues.py` then compares the issues
    with the ledger."""

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

    def check(self) -> bool:
        """Make all checks, and set `why`; returns whether base_dir or the database file was replaced, so that rows and
        folders must be reconciled."""
        replaced = self._replaced()
        before, self.why = self.why, self._failure_reason()
        if self.why and self.why != before:
            self.wiring.events.emit("ground_unfit", why=self.why)
        elif before and not self.why:
            self.wiring.events.emit("ground_fit")
        return replaced

    def close(self) -> None:
        """Release the daemon's lock."""
        if self.lock is not None:
            durable_files.unlock(self.lock)
            self.lock = None

    def _identities(self) -> dict[Path, filetree.Identity | None]:
        return {path: durable_files.identity(path) for path in (self.base_dir, self.database) if path is not None}

    def _replaced(self) -> bool:
        lost = [path for path, known in self.seen.items() if known != durable_files.identity(path)]
        for path in lost:
            self.wiring.events.emit("ground_replaced", path=str(path))
        if not lost:
            return False
        durable_files.claim_dir(self.base_dir, durable_files.passable())
        self.wiring.ledger.counts()  # any read of the ledger opens the database file that is there now, or creates it
        self.seen = self._identities()
        return True

    def _failure_reason(self) -> str:
        return self._lost_lock() or self._unusable() or migrate.newer(self.wiring.db)

    def _unusable(self) -> str:
        """The reason why no folder of a task can be made in running/ or moved to completed/; "" if there is none."""
        for path in (self.base_dir, self.base_dir / "running", self.base_dir / "completed"):
            if not os.path.lexists(path):
                continue  # a missing folder is no fault, since a worker makes it
            if not path.is_dir():
                return f"{path} is no folder: move it away"
            if not os.access(path, os.W_OK | os.X_OK):
                return f"{path} cannot be written: mend its permissions, or the file system"
        return ""

    def _lost_lock(self) -> str:
        """Take the daemon's lock again when the lock file was replaced; returns the reason if the lock cannot be taken,
        else ""."""
        path = lock_of(self.wiring.settings)
        if self.lock is None or durable_files.identity(path) == filetree.identity_of(self.lock):
            return ""
        try:
            taken = durable_files.lock(path)
        except LockHeld:
            return f"{path} was replaced: {SHARED}"
        except DiskError as error:
            return f"{error}: the daemon's lock is gone"
        durable_files.unlock(self.lock)
        self.lock = taken
        return ""
