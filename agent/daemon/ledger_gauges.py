"""Reads the present content of the ledger for the gauges of `GET /metrics`: tasks by state and host, with their age.

`snapshot` reads the rows of the ledger at each request for metrics, over a new database connection.  Counts made from
events would be wrong after the first restart, and events of other hosts are not received.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent import clock
from agent.observe.gauges import Group, Snapshot
from agent.wiring.wiring import Wiring

if TYPE_CHECKING:
    from agent.config import Settings


def snapshot(settings: Settings) -> Snapshot:
    """The rows of the ledger, counted by status and host, with their ages.  Raises LedgerError, HostError or DiskError
    if the ledger cannot be read."""
    with closing(Wiring(settings)) as wiring:
        ledger = wiring.ledger
        now = ledger.now()
        groups = tuple(
            Group(str(row["status"]), str(row["host"]), int(row["count"]), _age(row["since"], now.timestamp()))
            for row in ledger.count_groups()
        )
        workers = sum(1 for row in ledger.running_here() if ledger.is_mine(row, wiring.owner))
    return Snapshot(groups, workers)


def _age(since: str | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - clock.parse(since).timestamp())
