"""Detects at each sweep that rows were lost from the ledger while the daemon ran, and restores these rows from the
folders of tasks.

The module `self_check.py` detects that the file of the ledger was replaced; `lost_rows.py` detects that single rows, or
the table, are missing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import RowUnreadable
from agent.intake.restore_rows import restore_rows
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

NEWEST = 16
"""The number of newest rows of the ledger that a sweep reads, and compares with those of the sweep before."""


class LostRows:
    """Remembers at each sweep of the daemon which rows of one ledger must still exist at the next sweep."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.staying: dict[str, Row] = {}  # uuid → row that the last sweep read and that must still exist

    def restore(self) -> bool:
        """Restore lost rows from the folders of tasks in this base_dir; returns whether rows were lost."""
        rows = self.wiring.ledger.list(limit=NEWEST)
        lost = self._is_lost(rows)
        if lost:
            with suppress(RowUnreadable):
                restore_rows(self.wiring, lost=True)
        elif not rows:
            lost = bool(restore_rows(self.wiring))
        self.staying = {row.uuid: row for row in rows if _stays(row)}
        return lost

    def _is_lost(self, newest: list[Row]) -> bool:
        """Whether rows were lost since the last sweep: a row that must still exist is missing, or the row with its uuid
        has another time of creation."""
        now = {row.uuid: row for row in newest}
        with suppress(RowUnreadable):
            replaced = any(uuid in now and now[uuid].created_at != row.created_at for uuid, row in self.staying.items())
            # One missing row is looked up in the ledger as a sample, since an accident that removes rows usually
            # removes all of them.
            gone = (row for uuid, row in self.staying.items() if uuid not in now)
            missing = next((row for row in gone if not newest or self._would_stay(row)), None)
            return replaced or (missing is not None and self.wiring.ledger.get(missing.uuid) is None)
        return False

    def _would_stay(self, row: Row) -> bool:
        """Whether a row of the last sweep must still exist: it was queued, or its folder is in `running/` of this
        base_dir. A task without a folder there may have ended on another host since the last sweep, and a cleanup may
        have removed its row."""
        return row.status is Status.QUEUED or (self.wiring.settings.base_dir / "running" / row.uuid).is_dir()


def _stays(row: Row) -> bool:
    """Whether the row must exist until its task ends. An open row that was never offered to workers need not, since
    `intake/enqueue.py` may withdraw it."""
    return row.status not in CLOSED_STATUSES and (row.attempt > 0 or row.not_before is None)
