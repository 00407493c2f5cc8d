"""Carries out commands about a task that people give outside of its issue: stop, pause, resume, and retry.

Commands from the command line and from the page of the command `dashboard` have the same effect. Stop, pause and resume
are written to the row of the task, where its worker or the daemon finds them, and the issue shows them; retry queues a
new task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.commands.retry import retry_task, start_description, why_not
from agent.daemon.finalize import close_from_outside
from agent.errors import UsageError
from agent.issue.status import show_status
from agent.values import CLOSED_STATUSES

if TYPE_CHECKING:
    from agent.taskqueue.transitions import Request
    from agent.values import Status
    from agent.wiring.wiring import Wiring

COMMAND_LINE = "command line"
OPEN_ADVICE = {
    "queued": "`run` works it off; `stop {uuid}` takes it out of the queue",
    "running": "`show {uuid}` tells how far it is; `stop {uuid}` ends it",
    "paused": "`resume {uuid}` puts it back in the queue; `stop {uuid}` ends it",
}
"""Status of a task that has not ended → advice on what a person can do with the task."""


def give_order(wiring: Wiring, prefix: str, word: Request, who: str = COMMAND_LINE) -> tuple[str, Status]:
    """Request a stop, pause or resume of the task with a uuid that begins with `prefix`; returns (uuid, the status of
    its row after that).  A running task keeps the status `running` until its worker obeys the request.

    `who` is the person who gave the command: the row stores the name in `requested_by`, and the event `order_given`
    contains it. Raises UsageError when no such task exists, or its state does not allow the command.
    """
    uuid = wiring.ledger.resolve(prefix)
    row = wiring.ledger.get(uuid)
    if word == "resume" and row is not None and row.status == "running" and row.requested != "pause":
        raise UsageError(f"task {uuid} is running and nobody paused it; there is nothing to resume")
    status = wiring.ledger.request(uuid, word, who=who)
    wiring.events.emit("order_given", uuid=uuid, order=word, by=who)
    row = wiring.ledger.get(uuid)
    if status == "stopped" and row is not None:
        close_from_outside(wiring, row)  # no worker runs that would update the status on the forge
    elif row is not None:
        show_status(wiring.settings, wiring.ledger, lambda: wiring.forge_of(row.key), wiring.events, row)
    return uuid, status


@dataclass(frozen=True, slots=True)
class Retried:
    """A new task that continues an ended task: the uuids of both, and a sentence about where the new one begins."""

    uuid: str
    parent_uuid: str
    begins: str


def retry_by_prefix(wiring: Wiring, prefix: str, priority: int | None = None, who: str = COMMAND_LINE) -> Retried:
    """Queue a task that continues the newest task of the issue of the task with a uuid that begins with `prefix`.

    Raises UsageError when no such task exists, when the newest task has not ended, or when it cannot be tried again.
    """
    ledger = wiring.ledger
    row = ledger.get(ledger.resolve(prefix))
    assert row is not None, "it was resolved just now"
    newest = ledger.latest(row.key) or row
    if newest.status not in CLOSED_STATUSES:
        which = "" if newest.uuid == row.uuid else f", a later one of the same issue as {row.uuid},"
        raise UsageError(
            f"task {newest.uuid}{which} is {newest.status}; only what has ended can be tried again. "
            f"{OPEN_ADVICE[newest.status].format(uuid=newest.uuid)}"
        )
    begins = start_description(wiring, newest)
    made, refused = retry_task(wiring, newest, priority)
    if made is None:
        raise UsageError(f"task {newest.uuid} cannot be tried again: {why_not(refused)}")
    wiring.events.emit("order_given", uuid=made, order="retry", by=who)
    return Retried(made, newest.uuid, begins)
