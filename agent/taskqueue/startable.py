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
"""The limit of a query that shall find all rows."""
CHANGE = "UPDATE tasks SET reserved_by"
LOCKING = "-- postgresql: FOR UPDATE OF one SKIP LOCKED"


def limit_or_all(limit: int | None) -> int:
    """The value of a limit in a query; ALL for None."""
    return ALL if limit is None else max(0, limit)


def startable(db: Database, *, server: str, at_once: AtOnce) -> frozenset[str]:
    """The uuids of the due rows that `reserve` could select with `at_once` for the model server `server`, and of those
    that are reserved, which no limit holds back any more."""
    choice, _, _ = queries(LEDGER)["ledger_take"].partition(CHANGE)
    found = db.execute(
        f"{choice.replace(LOCKING, '')} SELECT uuid FROM next UNION ALL "  # noqa: S608 - no text from outside is inserted
        "SELECT uuid FROM tasks WHERE status = 'queued' AND reserved_until > :now",
        now=clock.stamp(db.now()),
        outcome=None,
        without="",
        depth=ALL,
        limit=ALL,
        limited="yes" if at_once else None,
        of_repository=limit_or_all(at_once.repository),
        of_person=limit_or_all(at_once.person),
        of_server=limit_or_all(at_once.server),
        server=server,
    )
    return frozenset(record["uuid"] for record in found)
