"""Changes single rows of a ledger; each change of status is checked against the table of allowed changes
(`transitions.py`).

A row is read and written in one transaction. A row gets another status only if its status and attempt are still those
that were read; otherwise the ledger reads and writes again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import LedgerError, UsageError
from agent.security.terminal import strip_terminal_controls
from agent.taskqueue import transitions
from agent.taskqueue.base import Row
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.store.base import Database
    from agent.taskqueue.transitions import Request

OBEYED = 50
"""The maximum number of ids of comments with executed or answered commands that a row stores; ids of older comments are
not needed, since the comment cursor is past these comments."""

TRIES = 10


def row_of(db: Database, uuid: str) -> Row | None:
    """The row with this uuid, None if there is none."""
    found = db.run("ledger_get", uuid=uuid)
    return Row.from_record(found[0]) if found else None


def seen_parameters(row: Row) -> dict[str, Any]:
    """The parameters with which a query changes a row only if the row's status and attempt are still those of `row`."""
    return {"uuid": row.uuid, "was": str(row.status), "attempt": row.attempt}


def storable_column(text: str | None) -> str | None:
    """`text` as it is stored in a column: without control characters, since people show rows on terminals with the
    program sqlite3."""
    return None if text is None else strip_terminal_controls(text)


class RowChanges:
    """Changes rows of one database. A method that returns a bool returns False when another process changed the row
    first; the row is then to be read again.

    If `remembers` is True, a row that ends becomes due for long-term memory, if a worker has worked on it.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self.remembers = False

    def change_row(self, uuid: str, change: Callable[[Row], bool]) -> None:
        """Read the row and change it in one transaction, which is repeated while the function `change` returns False:
        another process has changed the row in between, which is possible in a database without a global write lock.
        Raises UsageError if there is no such row, and LedgerError after TRIES vain repetitions."""
        for _ in range(TRIES):
            with self.db.transaction():
                row = row_of(self.db, uuid)
                if row is None:
                    raise UsageError(f"there is no task {uuid}; `tasks` lists them")
                if change(row):
                    return
        raise LedgerError(f"task {uuid} was changed by others {TRIES} times in a row; try again")

    def release_row(self, row: Row, to: Status, *, not_before: str | None, deaths: int) -> bool:
        """Give a running row that its holder puts back, or of which the holder is dead, the status `to`."""
        if to is Status.STOPPED:
            return self.close_row(row, to, deaths=deaths, outcome="stopped")
        back = self.queue(row, not_before=not_before, requested=None, deaths=deaths)
        return back and (to is Status.QUEUED or self.pause(replace(row, status=Status.QUEUED)))

    def stay(self, row: Row, word: Request, requested: str | None) -> bool:
        """Apply a request (`word`) that does not change the status of the row, but may change the reason why a paused
        row waits, or the time when a queued row is due."""
        if _pauses_anew(row, word):
            return self.hold_paused(row)
        if _makes_due(row, word):
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
                **seen_parameters(row),
            )
        )

    def pause(self, row: Row) -> bool:
        """Give the row the status paused, because a pause was requested."""
        transitions.check(row.uuid, row.status, Status.PAUSED)
        return self.hold_paused(row)

    def hold_paused(self, row: Row) -> bool:
        """Make the row `paused` until a resume is requested, with the outcome `paused` unless its work waits for
        publication or notification, and make the notification of people due."""
        return bool(
            self.db.run("ledger_pause", outcome="paused", **seen_parameters(row))
        ) and self.make_notification_due(row)

    def make_notification_due(self, row: Row) -> bool:
        """Make the notification of people about the row's state due now."""
        return bool(self.db.run("ledger_to_tell", uuid=row.uuid, now=clock.stamp()))

    def remember_comment(self, row: Row, comment: str) -> bool:
        """Store the id of a comment with a command that was executed or answered."""
        known = (row.obeyed or "").split()
        return bool(self.db.run("ledger_obeyed", uuid=row.uuid, obeyed=" ".join([*known, comment][-OBEYED:])))

    def close_row(
        self,
        row: Row,
        to: Status,
        *,
        deaths: int | None = None,
        outcome: str | None = None,
        error_message: str | None = None,
        error_code: str | None = None,
    ) -> bool:
        """Give the row a closed status, and store the outcome and the error."""
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
                error_message=storable_column(error_message),
                error_code=error_code,
                lease_until=row.lease_until or "",
                **seen_parameters(row),
            )
        )

    def set_request(self, row: Row, requested: str | None) -> bool:
        """Store the request that the holder of the row has to execute."""
        return bool(self.db.run("ledger_ask", requested=requested, **seen_parameters(row)))


def is_changed_by(row: Row, word: Request, requested: str | None) -> bool:
    """Whether a request (`word`) that leaves the status of the row as it is changes anything else in the row;
    `requested` is the request that stays for the holder."""
    return _pauses_anew(row, word) or _makes_due(row, word) or requested != row.requested


def _pauses_anew(row: Row, word: Request) -> bool:
    return word == "pause" and row.status is Status.PAUSED and row.outcome != "paused"


def _makes_due(row: Row, word: Request) -> bool:
    return word == "resume" and row.status is Status.QUEUED and row.attempt > 0 and row.not_before is not None
