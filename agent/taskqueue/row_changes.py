"""The changes of one row of a ledger, each on its own and checked against the table of transitions.

Every change reads and writes the row in one transaction, after `transitions.check`, and only if the row has not changed
since it was read; otherwise it is repeated.  `ledger.py` decides which change is due.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import LedgerError, UsageError
from agent.security.terminal import plain
from agent.taskqueue import transitions
from agent.taskqueue.base import Row
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.store.base import Database
    from agent.taskqueue.transitions import Request

OBEYED = 50
"""Number of comments with executed commands that a row stores; older comments are before its cursor."""

TRIES = 10


def row_of(db: Database, uuid: str) -> Row | None:
    """The row with this uuid, None if there is none."""
    found = db.run("ledger_get", uuid=uuid)
    return Row.from_record(found[0]) if found else None


def seen(row: Row) -> dict[str, Any]:
    """The parameters by which a query recognises the row as it was read."""
    return {"uuid": row.uuid, "was": str(row.status), "attempt": row.attempt}


def shown(text: str | None) -> str | None:
    """A text for a row, without control characters, since people read tasks.db with sqlite3."""
    return None if text is None else plain(text)


class RowChanges:
    """Changes rows of one database.  The methods return False when another process changed the row first.

    `remembers`: rows that end are due for long-term memory, if a worker has worked on them.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self.remembers = False

    def change(self, uuid: str, change: Callable[[Row], bool]) -> None:
        """Read the row and change it in one transaction; `change` returns False when another process changed the row in
        between, which is possible in a database without a global write lock."""
        for _ in range(TRIES):
            with self.db.transaction():
                row = row_of(self.db, uuid)
                if row is None:
                    raise UsageError(f"there is no task {uuid}; `tasks` lists them")
                if change(row):
                    return
        raise LedgerError(f"task {uuid} was changed by others {TRIES} times in a row; try again")

    def let_go(self, row: Row, to: Status, *, not_before: str | None, deaths: int) -> bool:
        """Give a running row without a living holder the status `to`."""
        if to is Status.STOPPED:
            return self.end(row, to, deaths=deaths, outcome="stopped")
        back = self.queue(row, not_before=not_before, requested=None, deaths=deaths)
        return back and (to is Status.QUEUED or self.pause(replace(row, status=Status.QUEUED)))

    def stay(self, row: Row, word: Request, requested: str | None) -> bool:
        """Apply a request that does not change the status, but may change the event for which the row waits."""
        if word == "pause" and row.status is Status.PAUSED and row.outcome != "paused":
            return self.hold_paused(row)
        if word == "resume" and row.status is Status.QUEUED and row.attempt > 0 and row.not_before is not None:
            return bool(self.db.run("ledger_offer", uuid=row.uuid))
        return requested == row.requested or self.set_request(row, requested)

    def queue(self, row: Row, *, not_before: str | None, requested: str | None, deaths: int) -> bool:
        """Give the row the status queued, without a lease."""
        transitions.check(row.uuid, row.status, Status.QUEUED)
        return bool(
            self.db.run(
                "ledger_queue",
                not_before=not_before,
                requested=requested,
                deaths=deaths,
                lease_until=row.lease_until or "",
                **seen(row),
            )
        )

    def pause(self, row: Row) -> bool:
        """Give the row the status paused, because a person requested it."""
        transitions.check(row.uuid, row.status, Status.PAUSED)
        return self.hold_paused(row)

    def hold_paused(self, row: Row) -> bool:
        """Let a row wait for a person's `resume`; people have to be notified."""
        return bool(self.db.run("ledger_pause", outcome="paused", **seen(row))) and self.make_notification_due(row)

    def make_notification_due(self, row: Row) -> bool:
        """Make the notification about the row's state due now."""
        return bool(self.db.run("ledger_to_tell", uuid=row.uuid, now=clock.stamp()))

    def remember_comment(self, row: Row, comment: str) -> bool:
        """Store the id of a comment with a command that was executed or answered."""
        known = (row.obeyed or "").split()
        return bool(self.db.run("ledger_obeyed", uuid=row.uuid, obeyed=" ".join([*known, comment][-OBEYED:])))

    def end(
        self,
        row: Row,
        to: Status,
        *,
        deaths: int | None = None,
        outcome: str | None = None,
        error_message: str | None = None,
        error_code: str | None = None,
    ) -> bool:
        """Give the row a closed status, with the reason."""
        transitions.check(row.uuid, row.status, to)
        now = clock.stamp()
        return bool(
            self.db.run(
                "ledger_end",
                status=str(to),
                now=now,
                remember_at=now if self.remembers and row.attempt else None,
                deaths=row.deaths if deaths is None else deaths,
                outcome=outcome,
                error_message=shown(error_message),
                error_code=error_code,
                lease_until=row.lease_until or "",
                **seen(row),
            )
        )

    def set_request(self, row: Row, requested: str | None) -> bool:
        """Store the request for the holder of the row."""
        return bool(self.db.run("ledger_ask", requested=requested, **seen(row)))
