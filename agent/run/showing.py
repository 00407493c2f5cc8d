"""Show on the issue what became of a task that nobody works on: it is paused, or waits to go on.

The row says first that this is to be told (`tell_at`, written with the change itself), so whoever dies before the label
has moved, or finds the forge away, is stood in for by the poller.  Ends are told by `closing.py` in the same way.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, IssueUnreadable, MakimonoError
from agent.forge.marks import marker
from agent.run.claims import PROGRESS, home_of, signed
from agent.run.comments import fit
from agent.run.publishable import Door
from agent.run.room import OUTCOME as DISK
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row

AGAIN = timedelta(seconds=60)
"""How long a teller has before another one may take over, and between two tries at a forge that is away."""

WAITING = (Status.PAUSED, Status.QUEUED)


def show(
    settings: Settings, ledger: Ledger, forge: Callable[[], Forge], events: Events, row: Row, note: str = ""
) -> bool:
    """Label and progress comment of an open row, if that is to be told; False when it could not be done now.

    `note`: one more sentence, who ordered it.  `forge` is only asked for when there is something to tell.
    """
    until = clock.now() + AGAIN
    if not ledger.telling(row.uuid, until):
        return False
    now = ledger.get(row.uuid)
    if now is None or now.status not in WAITING:
        return False  # it ended or began meanwhile, and that is told elsewhere
    try:
        _show(settings, forge(), events, now, note)
    except IssueUnreadable as error:  # deleted: there is nobody to tell
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))
    except MakimonoError as error:  # the order is obeyed all the same
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))
        return False
    if ledger.told(row.uuid, until):
        return True
    if (then := ledger.get(row.uuid)) is not None and then.status is Status.RUNNING:
        forge().move_label(row.key, "processing")  # a worker took it while this said that it waits
    return True


def _show(settings: Settings, forge: Forge, events: Events, row: Row, note: str) -> None:
    paused = row.status is Status.PAUSED
    forge.move_label(row.key, "paused" if paused else "processing")
    if (progress := forge.find_comment(row.key, marker(row.uuid, PROGRESS))) is None:
        return
    if paused and row.outcome == DISK:
        note = for_the_disk(row.error_message or "the disk cannot be written")
    text = Door.of(settings, events, forge.instance, row.uuid).render(
        "progress",
        state="paused" if paused else "drained",
        uuid=row.uuid,
        plan=[],
        last="",
        note=note,
        facts={},
    )
    words = fit(text, forge, row.uuid)
    try:
        forge.edit_comment(row.key, progress, signed(words, row.uuid, row.started_by, home_of(settings)))
    except IssueUnreadable:
        raise
    except ForgeError as error:  # a person deleted it, say; the label tells the same
        events.emit("effect_failed", uuid=row.uuid, effect="progress", error=str(error))


def for_the_disk(why: str) -> str:
    """The note of a task that waits for room."""
    return f"{why}. It goes on by itself when that is mended."


def announce(events: Events, uuid: str, status: Status, attempt: int, why: str) -> None:
    """What became of a row that its holder gave back (`Ledger.release`)."""
    if status is Status.QUEUED:
        events.emit("task_requeued", uuid=uuid, attempt=attempt, why=why)
    elif status is Status.PAUSED:
        events.emit("task_paused", uuid=uuid, why="paused")
    else:
        events.emit("task_ended", uuid=uuid, status=str(status), end=str(status), code=str(status))
