"""Issues that show that somebody has them, and of which the ledger knows no task: their rows were lost.

A row that is lost with its folder, or before there was one, leaves an issue that shows `processing` or `paused` for
ever.  So issues with these labels are compared with the ledger: at the start of a daemon, when its ledger was lost, a
few times a day, and by `doctor --repair`.  An issue may also be a task of another daemon with a ledger of its own.  Who
has it is told by the claim on it (`claims.py`), which names the home of its ledger:

| claim | the issue is taken up |
|---|---|
| made from this home | under the uuid of the claim: at once where the ledger is known to be lost, else after `quiet_of`
|
| none | at once where the ledger is known to be lost, else after a day without a stir |
| of another home, or of an older version | after a day without a stir, and only where the label is `processing` |

A daemon that comes back to such an issue finds the claim of another task there and ends (`claims.check`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent.run import claims
from agent.run.starting import start
from agent.values import CLOSED_STATUSES

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.forge import Task
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.observe.items import Items
    from agent.taskqueue import Ledger
    from agent.values import TaskKey

SECONDS = 6 * 3600.0
"""How often issues are compared with the ledger."""

ABANDONED = timedelta(days=1)


def take_up(
    settings: Settings, ledger: Ledger, forge: Forge, events: Events, items: Items, *, surely: bool
) -> list[str]:
    """Queue what was lost; the uuids.  `surely`: the ledger is known to be lost.  ForgeError when the forge as a whole
    cannot be read."""
    found: list[str] = []
    for task in forge.getter().get_left_list():
        with items.one(str(task.get_task_key())):
            uuid = _take_up(settings, ledger, forge, events, task, surely=surely)
            found += [uuid] if uuid is not None else []
    return found


def _take_up(
    settings: Settings, ledger: Ledger, forge: Forge, events: Events, task: Task, *, surely: bool
) -> str | None:
    key = task.get_task_key()
    row = ledger.latest(key)
    if row is not None and (row.status not in CLOSED_STATUSES or row.tell_at is not None):
        return None
    marks, over = forge.marked_comments(key), claims.over_in(ledger)
    own = claims.lost(marks, claims.home_of(settings), over)
    foreign = own is None and claims.is_claimed(marks, over)
    quiet = ABANDONED if own is None else claims.quiet_of(settings)
    at_once = surely and not foreign
    issue = forge.read(key)
    if not at_once and not claims.is_quiet(issue, marks, quiet):
        return None
    if foreign and forge.labels.processing not in issue.labels:
        return None
    uuid, _ = start(
        settings,
        ledger,
        forge,
        key,
        events,
        user=task.get_user(),
        title=task.title,
        parent_uuid=row.uuid if row is not None else None,
        take=lambda: _take(forge, key),
        uuid=own,
        quiet=quiet,
    )
    if uuid is not None:
        events.emit("issue_taken_up", uuid=uuid, task=str(key), known=own is not None)
    return uuid


def _take(forge: Forge, key: TaskKey) -> bool:
    """Show that it is worked on; False: people have changed their minds meanwhile."""
    issue = forge.read(key)
    if issue.state != "open" or forge.labels.can_start(issue.labels):
        return False
    forge.move_label(key, "processing")
    return True
