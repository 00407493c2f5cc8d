"""What the ledger holds at this moment, for the gauges of `GET /metrics`: how many tasks in which state, on which host,
since when.

Read from the rows when somebody asks, over a connection of its own: what is counted from events is wrong after the
first restart, and of other hosts nothing is heard.  Called by `cli/progress.py`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent import clock
from agent.observe.gauges import Group, Snapshot
from agent.run.wiring import Wiring

if TYPE_CHECKING:
    from agent.config import Settings


def snapshot(settings: Settings) -> Snapshot:
    """The rows of the ledger in groups.  LedgerError, SurroundingsError or DiskError where it cannot be asked."""
    with closing(Wiring(settings)) as wiring:
        ledger = wiring.ledger
        now = ledger.now()
        groups = tuple(
            Group(str(row["status"]), str(row["host"]), int(row["count"]), _age(row["since"], now.timestamp()))
            for row in ledger.groups()
        )
        workers = sum(1 for row in ledger.running_here() if ledger.is_mine(row, wiring.owner))
    return Snapshot(groups, workers)


def _age(since: str | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - clock.parse(since).timestamp())
