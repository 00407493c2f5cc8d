"""Closes an open row of the ledger if the end of its task was found in the task's folder (`daemon/reconcile.py`) or on
the forge (`intake/comment_poller.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ClaimLost, LedgerError, UsageError
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from agent.taskqueue import Ledger, Row

LEASE_SECONDS = 60.0


def adopt_end(
    ledger: Ledger,
    row: Row,
    owner: str,
    status: str,
    *,
    outcome: str | None = None,
    error_message: str | None = None,
    error_code: str | None = None,
) -> None:
    """Close an open row with the status with which its task has ended.

    `row` is the row as the caller has read it. Raises ClaimLost if another process has claimed or closed the row since
    then, and LedgerError or UsageError if the ledger refuses the change for another reason.
    """
    attempt = row.attempt
    try:
        # the ledger lets only the process that has claimed a row complete the row, so the row is claimed first
        if row.status is not Status.RUNNING:
            ledger.request(row.uuid, "resume")
            ledger.offer(row.uuid)
            attempt = ledger.claim(row.uuid, owner, LEASE_SECONDS).attempt
        ledger.finish(row.uuid, attempt, status, outcome=outcome, error_message=error_message, error_code=error_code)
    except (LedgerError, UsageError) as error:
        newest = ledger.get(row.uuid)
        if newest is None or newest.status in CLOSED_STATUSES or newest.attempt != attempt:
            raise ClaimLost(f"task {row.uuid}: another process has claimed or closed it meanwhile") from error
        raise
