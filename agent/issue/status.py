"""Shows on the issue the state of a task without a worker: paused, or queued to resume.

The change of the row also records that a notification is due (`tell_at`).  If the process dies before the label was
changed, or the forge cannot be reached, the poller sends the notification later.  `daemon/finalize.py` does the same
for tasks that have ended.
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
"""The time after which another process may send a notification, and between two attempts if the forge cannot be
reached."""

WAITING = (Status.PAUSED, Status.QUEUED)


def show_status(
    settings: Settings, ledger: Ledger, forge: Callable[[], Forge], events: Events, row: Row, note: str = ""
) -> bool:
    """Write the label and the progress comment of an open row, if a notification is due; returns False if that failed
    now.

    `note` is one more sentence, for example about the person who paused the task.  `forge` is called only if a
    notification is due.
    """
    until = clock.now() + AGAIN
    if not ledger.begin_notification(row.uuid, until):
        return False
    now = ledger.get(row.uuid)
    if now is None or now.status not in WAITING:
        return False  # the task ended or started meanwhile; another notification covers that
    try:
        _show(settings, forge(), events, now, note)
    except IssueUnreadable as error:  # the issue was deleted
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))
    except MakimonoError as error:  # the command takes effect even if its notification fails
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))
        return False
    if ledger.mark_notified(row.uuid, until):
        return True
    if (then := ledger.get(row.uuid)) is not None and then.status is Status.RUNNING:
        forge().move_label(row.key, "processing")  # a worker claimed the task meanwhile
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
    except ForgeError as error:  # for example a person deleted the comment; the label shows the same state
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))


def for_the_disk(why: str) -> str:
    """The note on a task that waits for disk space."""
    return f"{why}. It goes on by itself when that is mended."


def announce(events: Events, uuid: str, status: Status, attempt: int, why: str) -> None:
    """Emit the event for a row that its worker released (`Ledger.release`)."""
    if status is Status.QUEUED:
        events.emit("task_requeued", uuid=uuid, attempt=attempt, why=why)
    elif status is Status.PAUSED:
        events.emit("task_paused", uuid=uuid, why="paused")
    else:
        events.emit("task_ended", uuid=uuid, status=str(status), end=str(status), code=str(status))
