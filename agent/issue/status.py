"""Shows on the issue the state of a task without a worker: paused, or queued to resume.

When the ledger changes the status of a row, it also records that the issue must be updated (the column `tell_at`). If
the process dies before it has changed the label, or the forge cannot be reached, the daemon updates the issue's label
later. `daemon/finalize.py` shows on the issue that a task has ended.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, IssueUnreadable, MakimonoError
from agent.forge.markers import marker
from agent.issue.claims import PROGRESS, home_of, with_claim_markers
from agent.issue.comments import truncate
from agent.issue.publish_filter import PublishFilter
from agent.values import Status
from agent.wiring.disk_space import OUTCOME as DISK
from agent.wiring.recorded_templates import recorded_templates

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row

AGAIN = timedelta(seconds=60)
"""The time for which a process that has begun to update the issue excludes other processes, and after which a failed
update is tried again."""

WAITING = (Status.PAUSED, Status.QUEUED)


def show_status(
    settings: Settings, ledger: Ledger, forge: Callable[[], Forge], events: Events, row: Row, note: str = ""
) -> bool:
    """Set the label and the progress comment of an open task, if the issue must be updated; returns False if nothing
    was updated or the update failed. An issue that the account cannot read (any more) counts as updated.

    `note` is a sentence that is added to the progress comment, for example about the person who paused the task.  The
    function `forge` is called only if the issue must be updated.
    """
    until = clock.now() + AGAIN
    if not ledger.begin_notification(row.uuid, until):
        return False
    now = ledger.get(row.uuid)
    if now is None or now.status not in WAITING:
        return False  # the task ended or started meanwhile; the process that did so updates the issue
    try:
        _show(settings, forge(), events, now, note)
    except IssueUnreadable as error:  # the issue is gone or hidden, so nothing can be shown on it
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))
    # the update of the issue is tried again later; the caller's command has taken effect already
    except MakimonoError as error:
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))
        return False
    if ledger.mark_notified(row.uuid, until):
        return True
    if (then := ledger.get(row.uuid)) is not None and then.status is Status.RUNNING:
        # A worker claimed the task meanwhile, so the label must say that it is being processed.
        forge().move_label(row.key, "processing")
    return True


def _show(settings: Settings, forge: Forge, events: Events, row: Row, note: str) -> None:
    paused = row.status is Status.PAUSED
    forge.move_label(row.key, "paused" if paused else "processing")
    if (progress := forge.find_comment(row.key, marker(row.uuid, PROGRESS))) is None:
        return
    if paused and row.outcome == DISK:
        note = for_the_disk(row.error_message or "the disk cannot be written")
    state = "paused" if paused else "drained"
    door = PublishFilter.for_task(settings, events, forge.instance, row.uuid)
    with recorded_templates(settings, events, row.uuid):
        text = door.render("progress", state=state, uuid=row.uuid, plan=[], last="", note=note, facts={})
    words = truncate(text, forge, row.uuid)
    try:
        forge.edit_comment(row.key, progress, with_claim_markers(words, row.uuid, row.started_by, home_of(settings)))
    except IssueUnreadable:
        raise
    # a failed edit of the progress comment (which a person may have deleted) is ignored, since the label shows the same
    # state
    except ForgeError as error:
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))


def for_the_disk(why: str) -> str:
    """The note in the progress comment of a task that waits for disk space."""
    return f"{why}. It goes on by itself when that is mended."


def announce(events: Events, uuid: str, status: Status, attempt: int, why: str) -> None:
    """Emit the event for the new status of a row that its worker has released (`Ledger.release`)."""
    if status is Status.QUEUED:
        events.emit("task_requeued", uuid=uuid, attempt=attempt, why=why)
    elif status is Status.PAUSED:
        events.emit("task_paused", uuid=uuid, why="paused")
    else:
        events.emit("task_ended", uuid=uuid, status=str(status), end=str(status), code=str(status))
