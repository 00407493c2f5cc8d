"""Give an open row the end that is known from elsewhere: its folder (`reconcile.py`), or the forge (`attention.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.values import Status

if TYPE_CHECKING:
    from agent.taskqueue import Ledger, Row

LEASE_SECONDS = 60.0


def settle(
    ledger: Ledger,
    row: Row,
    owner: str,
    status: str,
    *,
    outcome: str | None = None,
    error_message: str | None = None,
    error_code: str | None = None,
) -> None:
    """Close the row.  LedgerError (ClaimLost) when somebody else takes or settles it meanwhile."""
    attempt = row.attempt
    if row.status is not Status.RUNNING:  # the table lets only a holder complete a task
        ledger.request(row.uuid, "resume")
        ledger.offer(row.uuid)
        attempt = ledger.claim(row.uuid, owner, LEASE_SECONDS).attempt
    ledger.end(row.uuid, attempt, status, outcome=outcome, error_message=error_message, error_code=error_code)
