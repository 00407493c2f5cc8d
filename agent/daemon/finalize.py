"""Ends a task that no process works on: moves the task's folder, sets its label, and posts its final comment.

The module ends the tasks of rows that no worker closed: for example, a person stopped the task while it waited, or the
ledger gave the task up because its workers died repeatedly. The module also posts every end that a worker could not
post, mostly because the forge could not be reached. The ledger lists the rows for which a notification on the issue is
due (`tell_at`) and gives each row to one notifier at a time. The marker in a comment shows whether a notifier that was
killed had already posted the comment. All steps of this module can be repeated without a further effect, and none sends
a request to a model.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock, durable_files, filetree
from agent.context import EffectStore
from agent.context.folder import sweep, write_end
from agent.errors import ForgeError, IssueUnreadable, LockHeld, MakimonoError
from agent.forge.markers import marker
from agent.forge.what_starts import how_to_ask, start_of
from agent.issue.answers import Reply, asking_comment, headed, post_replies
from agent.issue.claims import ENDS, FINAL, LABELS, PROGRESS, home_of, with_claim_markers
from agent.issue.comments import post_once, truncate
from agent.issue.publish_filter import PublishFilter
from agent.issue.status import show_status
from agent.values import CLOSED_STATUSES, End, Outcome, Status
from agent.wiring.folders import set_aside
from agent.wiring.recorded_templates import recorded_templates
from agent.worker import unpublished_work
from agent.worker.final_state import FinalState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.forge.base import Forge
    from agent.taskqueue import Row
    from agent.values import Public
    from agent.wiring.wiring import Wiring

SOONEST, LATEST = 60.0, 3600.0
"""Bounds in seconds of the wait after a failed notification; within them the wait is as long as the task has been
closed."""


def close_from_outside(wiring: Wiring, row: Row) -> bool:
    """Show on the issue that the task of a closed row has ended, move the issue's label, and move the task's folder to
    `completed/`.  Returns False, with nothing done, if another process holds the folder's lock; True also if the forge
    did not answer."""
    folder = wiring.settings.base_dir / "running" / row.uuid
    if not durable_files.is_real_dir(folder):
        notify_closed(wiring, row, None)
        return True
    try:
        lock = durable_files.lock(folder / "lock")
    except LockHeld:
        return False
    try:
        notify_closed(wiring, row, folder)
        _move_to_completed(wiring, row, folder)
    finally:
        durable_files.unlock(lock)
    return True


def send_pending_notifications(wiring: Wiring, mine: Callable[[Row], bool] = lambda _row: True) -> list[str]:
    """Post all due notifications for the rows for which `mine` returns True: notifications about ends, and about
    waiting tasks (`issue/status.py`).

    Returns the uuids of those tasks of which the due notification was posted, or can never be posted. A slow forge
    delays the calling thread."""
    if not (rows := wiring.ledger.due_notifications()):
        return []
    told, items = [], wiring.items("tell")
    for row in rows:
        with items.handling(row.uuid):
            told += [row.uuid] if mine(row) and _notify_row(wiring, row) else []
    items.finish()
    return told


def _notify_row(wiring: Wiring, row: Row) -> bool:
    if row.status in CLOSED_STATUSES:
        return notify_closed(wiring, row, None)
    return show_status(wiring.settings, wiring.ledger, lambda: wiring.forge_of(row.key), wiring.events, row)


def move_leftovers(wiring: Wiring, rows: Iterable[Row] | None = None) -> list[str]:
    """Move folders of closed rows out of `running/`, where they are because of a crash between the change of the row
    and the move, or because the row was closed from outside. Returns the uuids of the tasks with a moved folder.

    `rows` are the rows that run on this host; if it is None, the ledger is queried."""
    running = wiring.settings.base_dir / "running"
    moved = []
    items = wiring.items("move_leftovers")
    # one query to the ledger for all tasks instead of one query for each of hundreds
    busy = {row.uuid for row in (wiring.ledger.running_here() if rows is None else rows)}
    for folder in sorted(running.iterdir()) if durable_files.is_real_dir(running) else ():
        if folder.name in busy:
            continue
        with items.handling(folder.name):
            row = wiring.ledger.get(folder.name) if durable_files.is_real_dir(folder) else None
            if row is None or row.status not in CLOSED_STATUSES:
                continue
            with suppress(LockHeld):
                lock = durable_files.lock(folder / "lock")
                try:
                    _move_to_completed(wiring, row, folder)
                finally:
                    durable_files.unlock(lock)
                moved.append(row.uuid)
    items.finish()
    return moved


def notify_closed(wiring: Wiring, row: Row, folder: Path | None) -> bool:
    """Post the final comment of a closed row, write its end into the progress comment, and move its label; returns
    False when that failed, or when no notification of the row is due or another notifier posts it. If the account
    cannot read the issue (any more), nothing is posted, the notification is no longer due, and the result is True.

    `folder`: the folder of the task, of which the caller holds the lock. If the forge cannot be reached, the error is
    reported and does not delay other tasks.
    """
    now = clock.now()
    closed = (now - clock.parse(row.completed_at)).total_seconds() if row.completed_at else 0.0
    until = now + timedelta(seconds=min(LATEST, max(SOONEST, closed)))
    if not wiring.ledger.begin_notification(row.uuid, until):
        return False
    try:
        _notify(wiring, wiring.forge_of(row.key), row, folder)
    except IssueUnreadable as error:  # the issue is gone or hidden, so nothing can be posted on it
        wiring.events.emit("effect_failed", uuid=row.uuid, effect="final", error=str(error))
    except MakimonoError as error:
        wiring.events.emit("effect_failed", uuid=row.uuid, effect="final", error=str(error))
        return False
    wiring.ledger.mark_notified(row.uuid, until)
    return True


def _notify(wiring: Wiring, forge: Forge, row: Row, folder: Path | None) -> None:
    ending = _final_state(wiring, forge, row)
    effects = EffectStore(folder) if folder is not None else None
    try:
        post_replies(forge, row.key, row.uuid, ending.replies, wiring.events, effects)
        if not (ending.quiet and _show_end(wiring, forge, row, ending)):
            text = ending.progress if ending.quiet else ending.final
            post_once(forge, row.key, row.uuid, FINAL, lambda: text, effects)
    finally:
        if effects is not None:
            effects.file.close()
    if not ending.quiet:
        _show_end(wiring, forge, row, ending)
    if row.status is Status.COMPLETED and row.outcome == End.FINISHED and row.branch:
        _make_ready(forge, row, row.branch)
    newest = wiring.ledger.latest(row.key)
    if newest is None or newest.uuid == row.uuid:  # if the issue has a later task, that task sets the label
        forge.move_label(row.key, LABELS[row.status])
    wiring.events.emit("effect_done", uuid=row.uuid, effect="final")


def _show_end(wiring: Wiring, forge: Forge, row: Row, ending: FinalState) -> bool:
    """Write the task's end into the progress comment; returns whether that comment now shows the end."""
    if (progress := forge.find_comment(row.key, marker(row.uuid, PROGRESS))) is None:
        return False
    home = home_of(wiring.settings)
    words = with_claim_markers(ending.progress, row.uuid, row.started_by, home, ends=ending.quiet)
    try:
        forge.edit_comment(row.key, progress, words)
    except ForgeError:  # if the progress comment cannot be edited, the final comment shows the end
        return False
    return True


def _make_ready(forge: Forge, row: Row, branch: str) -> None:
    """Mark the pull request of finished work as ready, since an older attempt may have made it a draft.  Work that the
    reviewers did not approve has another outcome than `finished`, and stays a draft. An error of the forge is
    ignored."""
    with suppress(ForgeError):
        pull = forge.find_pull(row.key, branch)
        if pull is not None and pull.state == "open" and pull.draft:
            forge.update_pull(row.key, pull, draft=False)


def _final_state(wiring: Wiring, forge: Forge, row: Row) -> FinalState:
    """The task's end from the file that the task's own process wrote, if its status is that of the row; otherwise an
    end made from the row."""
    where = ""
    door = PublishFilter.for_task(wiring.settings, wiring.events, forge.instance, row.uuid)
    # `running/` is searched before `completed/`, since the folder may be moved to `completed/` between the two searches
    for place in ("running", "completed"):
        folder = wiring.settings.base_dir / place / row.uuid
        kept = FinalState.load(folder)
        if kept is not None and kept.status is row.status:
            replies = tuple(replace(one, text=door.filter_again(one.text)) for one in kept.replies)
            progress, final = door.filter_again(kept.progress), door.filter_again(kept.final)
            return replace(kept, progress=progress, final=final, replies=replies)
        if row.status is not Status.COMPLETED and unpublished_work.has_work(folder) and not where:
            where = unpublished_work.describe_kept_work(folder)
    said = row.error_message or ""
    where = "" if where in said else where
    outcome = Outcome(ENDS[row.status], code=row.error_code or "", summary=f"{said} {where}".strip())
    note = said if row.status is Status.STOPPED else ""
    closed = row.status is Status.STOPPED and forge.read_issue(row.key).state == "closed"
    facts = {"closed": closed, "pull": row.url or "", "ask": how_to_ask(start_of(forge))}
    with recorded_templates(wiring.settings, wiring.events, row.uuid):
        progress = door.render("progress", state=str(outcome.end), uuid=row.uuid, plan=[], last="", facts={}, note=note)
        final = door.render("final", outcome=outcome, report=None, uuid=row.uuid, facts=facts)
    progress, final = (truncate(text, forge, row.uuid) for text in (progress, final))
    replies = _there(wiring, forge, row, door, final)
    code = outcome.code
    return FinalState(row.status, code, outcome.summary, outcome, progress, final, replies, quiet=bool(replies))


def _there(wiring: Wiring, forge: Forge, row: Row, door: PublishFilter, final: Public) -> tuple[Reply, ...]:
    """The final comment as an answer to the comment on the pull request that has started the task; () if somebody asked
    for the task on the issue, or if that comment cannot be read."""
    parent = wiring.ledger.get(row.parent_uuid) if row.parent_uuid else None
    urls = [url for url in (row.url, parent.url if parent is not None else None) if url]
    with suppress(ForgeError):
        asked = asking_comment(forge, row.key, row.started_by, urls) if urls else None
        if asked is not None:
            with recorded_templates(wiring.settings, wiring.events, row.uuid):
                text = truncate(headed(door, asked, final), forge, row.uuid)
            return (Reply.for_comment(asked, text, settled=False),)
    return ()


def _move_to_completed(wiring: Wiring, row: Row, folder: Path) -> None:
    """Record the end in the task's folder and move the folder to `completed/`.

    If `completed/` has a folder of this task already, that folder is not replaced. A task has folders in `running/` and
    `completed/` if a process worked on it after its row was closed, for example because of a repeated broker message.
    If a task has both, its folder in `running/` is removed if it contains only a lock, otherwise moved to
    quarantine."""
    target = wiring.settings.base_dir / "completed" / row.uuid
    if target.is_dir():
        if os.listdir(folder) == ["lock"]:  # noqa: PTH208 - the names of the entries suffice
            filetree.remove(folder)
            return
        place = set_aside(wiring.settings, folder)
        why = f"{target} is there already"
        wiring.events.emit("folder_quarantined", name=row.uuid, place=str(place), why=why)
        return
    sweep(folder)  # the function `sweep` removes temporary files of a worker that was killed
    write_end(folder, row.status, outcome=row.outcome, error_code=row.error_code, error_message=row.error_message)
    durable_files.make_dir(target.parent)
    durable_files.move_dir(folder, target)
    wiring.events.emit("folder_moved", uuid=row.uuid, status=str(row.status))
