"""Finds workers of this base_dir that an earlier daemon left running, so that a daemon that drains can drain them too.

An inherited worker gets SIGTERM once, and then ends at its next turn and releases its row.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import proc
from agent.errors import DiskError, LedgerError
from agent.taskqueue.row_holder import living_holder

if TYPE_CHECKING:
    from collections.abc import Container

    from agent.wiring.wiring import Wiring


class InheritedWorkers:
    """The inherited workers that got SIGTERM; `owners` maps the uuid of the task to its lease owner."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.owners: dict[str, str] = {}

    def pids(self) -> dict[str, int]:
        """Task → pid of each inherited worker that still lives; workers that have ended are dropped."""
        found = {uuid: pid for uuid, owner in self.owners.items() if (pid := _living(owner)) is not None}
        self.owners = {uuid: self.owners[uuid] for uuid in found}
        return found

    def drain(self, own: Container[str]) -> None:
        """Send SIGTERM to each inherited worker, once; `own` are the tasks of this daemon's own workers, which get no
        signal from `drain`.

        When the ledger cannot be read, no signal is sent, and the next sweep of the supervisor calls `drain` again. A
        `solve` that runs beside this daemon is not a worker of the daemon.
        """
        ledger = self.wiring.ledger
        with suppress(LedgerError, DiskError):
            for row in ledger.running_here():
                if row.uuid in own or row.uuid in self.owners or not ledger.is_mine(row, self.wiring.owner):
                    continue
                pid = _living(row.lease_owner)
                if row.lease_owner is not None and pid is not None and proc.has_title(pid, f"makimono: {row.uuid}"):
                    self.owners[row.uuid] = row.lease_owner
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGTERM)


def _living(lease_owner: str | None) -> int | None:
    """The pid in the text of a lease owner, if that process lives, else None; a zombie counts as dead."""
    pid = living_holder(lease_owner)
    return None if pid is None or proc.wait_gone(pid, 0, collect=False) else pid
