"""Queues issues that have the label `processing` or `paused` but no open task in the ledger, since their rows were
lost.

If a task's row is lost together with the task's folder, or before the task had a folder, its issue would show
`processing` or `paused` for ever. To find issues without a row, issues with the label `processing` or `paused` are
compared with the ledger: when the ledger is known to be lost, a few times a day, and by `doctor --repair`. An issue
with the label `processing` or `paused` may also belong to a task of another daemon with another ledger. The claim on
the issue (`issue/claims.py`) names the ledger of its task by an id (its home), which decides what happens:

- The claim on the issue is from this ledger: the issue is queued under the uuid of the claim, and continues from the
  task's replica if there is one; at once if the ledger is known to be lost, otherwise after the issue was without a
  change for `quiet_of`.
- The issue has no claim: it is queued at once if the ledger is known to be lost, otherwise after a day without a
  change.
- The claim on the issue is from another ledger, or was made by an older version of this program: the issue is queued
  after a day without a change, and only if it has the label `processing`.
- The claim on the issue is from a task of this ledger of which the end was already posted: unless the ledger is known
  to be lost, the issue is not queued, but the end is shown again. An ended task's issue has the label `processing` if
  an older attempt was suspended between its check that it still owns the task and its write to the issue, and so wrote
  after the end.

If a daemon later continues its task on an issue that another daemon has queued again meanwhile, it finds the claim of
the other daemon's task and ends its own task (`claims.check`).
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import ReplicaAway
from agent.intake.enqueue import Intake, claim_issue, enqueue_task, priority_of
from agent.intake.restore_rows import record_elsewhere
from agent.issue import claims
from agent.values import CLOSED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.forge import Task
    from agent.forge.base import Forge
    from agent.observe.error_tolerant_loop import ItemLoop
    from agent.observe.events import Events
    from agent.taskqueue import Ledger
    from agent.values import TaskKey

SECONDS = 6 * 3600.0
"""The interval in seconds at which issues are compared with the ledger."""

OTHERS_SECONDS = 45.0
"""Seconds to wait after the loss of a shared ledger before issues are compared with the ledger.

In the OTHERS_SECONDS after the loss of a ledger each host restores its rows from its folders, and workers without
a row notice this and end. A task that was queued under its old uuid before OTHERS_SECONDS have passed would start from
the beginning although its conversation exists on another host.
"""

AWAY_SECONDS = 60.0
"""Seconds until issues are compared with the ledger again, while a replica or a part of the forge does not answer."""

ABANDONED = timedelta(days=1)


def enqueue_orphans(
    settings: Settings,
    ledger: Ledger,
    forge: Forge,
    events: Events,
    items: ItemLoop,
    *,
    surely: bool,
    waits: Callable[[str, str], object] = lambda _key, _why: None,
) -> list[str]:
    """Queue the issues of which the tasks have lost their rows in the ledger; returns the uuids of the queued tasks.

    `surely`: the ledger is known to be lost. If the storage with the replica of an issue's task does not answer,
    `waits` is called with the issue's key and the error, and the issue is left unchanged until the storage answers. If
    a part of the forge does not answer, `waits` is called with the name of the forge and the error. Raises ForgeError
    when the forge as a whole cannot be read.
    """
    found: list[str] = []
    getter = forge.task_getter()
    for task in getter.get_left_list():
        key = str(task.get_task_key())
        with items.handling(key):
            try:
                uuid = _take_up(settings, ledger, forge, events, task, surely=surely)
            except ReplicaAway as error:
                waits(key, str(error))
                raise
            found += [uuid] if uuid is not None else []
    if (failed := getattr(getter, "failed", None)) is not None:
        waits(f"{forge.source} {forge.instance}", str(failed))
    return found


def _take_up(
    settings: Settings, ledger: Ledger, forge: Forge, events: Events, task: Task, *, surely: bool
) -> str | None:
    key = task.get_task_key()
    row = ledger.latest(key)
    if row is not None and (row.status not in CLOSED_STATUSES or row.tell_at is not None):
        return None
    marks, over = forge.marked_comments(key), claims.over_in(ledger)
    own = claims.lost_claim(marks, claims.home_of(settings), over)
    foreign = own is None and claims.is_claimed(marks, over)
    if row is not None and own is None and not foreign and not surely and claims.is_end_shown(marks, row.uuid):
        if not forge.labels.can_start(forge.read_issue(key).labels):
            ledger.notify_again(row.uuid)
        return None
    quiet = ABANDONED if own is None else claims.quiet_of(settings)
    at_once = surely and not foreign
    issue = forge.read_issue(key)
    if not at_once and not claims.is_quiet(issue, marks, quiet):
        return None
    if foreign and forge.labels.processing not in issue.labels:
        return None
    take = partial(_mark_taken, forge, key)
    intake = Intake(settings, ledger, forge, events)
    record = record_elsewhere(settings, key, own) if own is not None else None
    if own is not None and record is not None:
        if not claim_issue(intake, key, own, None, take, quiet) or not ledger.restore(record):
            return None
        events.emit("issue_taken_up", uuid=own, task=str(key), known=True)
        return own
    task.confirm()
    uuid, _ = enqueue_task(
        intake,
        key,
        user=task.get_user(),
        title=task.title,
        priority=priority_of(settings, task.labels),
        parent_uuid=row.uuid if row is not None else None,
        take=take,
        uuid=own,
        quiet=quiet,
    )
    if uuid is not None:
        events.emit("issue_taken_up", uuid=uuid, task=str(key), known=own is not None)
    return uuid


def _mark_taken(forge: Forge, key: TaskKey) -> bool:
    """Set the processing label; returns False when the issue was closed or its labels were changed in the meantime."""
    issue = forge.read_issue(key)
    if issue.state != "open" or forge.labels.can_start(issue.labels):
        return False
    forge.move_label(key, "processing")
    return True
