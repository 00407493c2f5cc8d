"""Finds the queued rows that may start by the limits `limits.at_once`, without reserving any.

The rows are selected with the part of the query `ledger_take` before its UPDATE, so that a page shows what
`Ledger.reserve` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.store.queries import LEDGER, queries

if TYPE_CHECKING:
    from agent.store.base import Database
    from agent.taskqueue.base import AtOnce

ALL = 2**31 - 1
CHANGE = "UPDATE tasks SET reserved_by"
LOCKING = "-- postgresql: FOR UPDATE OF one SKIP LOCKED"


def startable(db: Database, *, server: str, at_once: AtOnce) -> frozenset[str]:
    """The uuids of the due and unreserved rows that `reserve` could select with `at_once` for the model server
    `server`."""
    choice, _, _ = queries(LEDGER)["ledger_take"].partition(CHANGE)
    found = db.execute(
        f"{choice.replace(LOCKING, '')} SELECT uuid FROM next",  # noqa: S608 - both parts of the statement come from this program
        now=clock.stamp(db.now()),
        outcome=None,
        without="",
        depth=ALL,
        limit=ALL,
        limited="yes" if at_once else None,
        of_repository=at_once.repository if at_once.repository is not None else ALL,
        of_person=at_once.person if at_once.person is not None else ALL,
        of_server=at_once.server if at_once.server is not None else ALL,
        server=server,
    )
    return frozenset(record["uuid"] for record in found)
