"""`doctor --repair`: a person has looked, and says that rows are missing here.

Rows are made again from all folders that have none, also from those that were put aside, and issues that show that
somebody has them are queued where the ledger knows no task of them.  A start does both by itself where it sees that the
ledger was lost; here nothing has to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.run.left import take_up
from agent.run.restore import restore

if TYPE_CHECKING:
    from agent.run.wiring import Wiring


@dataclass
class Repaired:
    """`rows` that were made again, `issues`: uuids of tasks that were queued, `unasked`: forges that did not answer,
    and why."""

    rows: int = 0
    issues: list[str] = field(default_factory=list)
    unasked: dict[str, str] = field(default_factory=dict)


def repair(wiring: Wiring) -> Repaired:
    """Make rows again, then compare issues with them.  LedgerError, DiskError."""
    done = Repaired(restore(wiring, everything=True))
    items = wiring.items("repair")
    for forge in wiring.forges:
        try:
            done.issues += take_up(wiring.settings, wiring.ledger, forge, wiring.events, items, surely=True)
            items.end()
        except ForgeError as error:
            done.unasked[f"{forge.source} {forge.instance}"] = str(error)
    return done
