"""`doctor --repair` restores missing rows after a person has looked at the folders.

Rows are made again from all folders without a row, including those in quarantine. Issues with the label of a running or
paused task are queued when the ledger has no task for them. A daemon that detects at its start that the ledger was lost
restores rows and queues issues in the same way; `doctor --repair` does this on a person's request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.intake.orphaned_issues import enqueue_orphans
from agent.intake.restore_rows import restore_rows

if TYPE_CHECKING:
    from agent.wiring.wiring import Wiring


@dataclass
class RepairReport:
    """`rows`: the number of task rows that `doctor --repair` restored from folders.

    `issues`: the uuids of tasks that `doctor --repair` put into the queue, from issues that show `processing` or
    `paused`. `unasked`: forges that refused or did not answer (the whole forge or a part of it), and issues of which
    the replica cannot be reached, each with the reason.
    """

    rows: int = 0
    issues: list[str] = field(default_factory=list)
    unasked: dict[str, str] = field(default_factory=dict)


def repair(wiring: Wiring) -> RepairReport:
    """Make rows again from the folders of tasks, then compare the issues on the forges with the rows. Raises
    LedgerError or DiskError."""
    done = RepairReport(restore_rows(wiring, everything=True))
    items = wiring.items("repair")
    for forge in wiring.forges:
        try:
            done.issues += enqueue_orphans(
                wiring.settings,
                wiring.ledger,
                forge,
                wiring.events,
                items,
                surely=True,
                waits=done.unasked.__setitem__,
            )
            items.finish()
        except ForgeError as error:
            done.unasked[f"{forge.source} {forge.instance}"] = str(error)
    return done
