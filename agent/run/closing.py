"""End a task that no process works on: its folder, its label, its last comment.

For rows that were closed from outside (stopped while they waited, given up by the ledger because their workers died
again and again), and for every end that could not be told when it came, because the forge was away.  The ledger knows
which rows those are (`tell_at`) and lets one teller at a time have a row; a marker finds what a killed one had written.
Doing it again does nothing, and no model is asked.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock, disk, filetree
from agent.context import EffectStore
from agent.context.folder import sweep, write_end
from agent.errors import ForgeError, IssueUnreadable, LockHeld, MakimonoError
from agent.forge.marks import marker
from agent.run import later
from agent.run.claims import FINAL, LABELS, PROGRESS, home_of, signed
from agent.run.comments import fit, post_once
from agent.run.ending import Ending
from agent.run.folders import set_aside
from agent.run.publishable import Door
from agent.run.showing import show
from agent.values import CLOSED_STATUSES, End, Outcome, Status

if TYPE_CHECKING:
    from pathlib import Path

    from agent.forge.base import Forge
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

ENDS: dict[Status, End] = {
    Status.STOPPED: End.STOPPED,
    Status.FAILED: End.FAILED,
    Status.COMPLETED: End.FINISHED,
}
SOONEST, LATEST = 60.0, 3600.0
"""Seconds until a telling that failed is tried again: as long as the task has been closed, within these bounds."""


def close_from_outside(wiring: Wiring, row: Row) -> bool:
    """Tell the person, move label and folder of a closed row; False when somebody holds its lock."""
    folder = wiring.settings.base_dir / "running" / row.uuid
    if not disk.is_real_dir(folder):
        tell_closed(wiring, row, None)
        return True
    try:
        lock = disk.lock(folder / "lock")
    except LockHeld:
        return False
    try:
        tell_closed(wiring, row, folder)
        _move(wiring, row, folder)
    finally:
        disk.unlock(lock)
    return True


def tell_untold(wiring: Wiring) -> list[str]:
    """Everything that is due to be told: ends, and what waits (`showing.py`); returns the uuids of what is told now.
    Called where a slow forge holds nobody up."""
    if not (rows := wiring.ledger.untold()):
        return []
    told, items = [], wiring.items("tell")
    for row in rows:
        with items.one(row.uuid):
            told += [row.uuid] if _tell_row(wiring, row) else []
    items.end()
    return told


def _tell_row(wiring: Wiring, row: Row) -> bool:
    if row.status in CLOSED_STATUSES:
        return tell_closed(wiring, row, None)
    return show(wiring.settings, wiring.ledger, lambda: wiring.forge_of(row.key), wiring.events, row)


def move_leftovers(wiring: Wiring) -> list[str]:
    """Folders in `running/` whose row is closed: a crash came between the row and the move, or it was closed from
    outside.  Returns the uuids."""
    running = wiring.settings.base_dir / "running"
    moved = []
    items = wiring.items("move_leftovers")
    busy = {row.uuid for row in wiring.ledger.running_here()}  # not one question for each of hundreds
    for folder in sorted(running.iterdir()) if disk.is_real_dir(running) else ():
        if folder.name in busy:
            continue
        with items.one(folder.name):
            row = wiring.ledger.get(folder.name) if disk.is_real_dir(folder) else None
            if row is None or row.status not in CLOSED_STATUSES:
                continue
            with suppress(LockHeld):
                lock = disk.lock(folder / "lock")
                try:
                    _move(wiring, row, folder)
                finally:
                    disk.unlock(lock)
                moved.append(row.uuid)
    items.end()
    return moved


def tell_closed(wiring: Wiring, row: Row, folder: Path | None) -> bool:
    """Final comment, progress comment and label of a closed row, unless it is told; False when it could not be done.

    `folder`: the task's, whose lock the caller holds.  A forge that is away is reported and does not hold up the rest.
    """
    now = clock.now()
    closed = (now - clock.parse(row.completed_at)).total_seconds() if row.completed_at else 0.0
    until = now + timedelta(seconds=min(LATEST, max(SOONEST, closed)))
    if not wiring.ledger.telling(row.uuid, until):
        return False
    try:
        _tell(wiring, wiring.forge_of(row.key), row, folder)
    except IssueUnreadable as error:  # deleted: there is nobody to tell
        wiring.events.emit("effect_failed", uuid=row.uuid, effect="final", error=str(error))
    except MakimonoError as error:
        wiring.events.emit("effect_failed", uuid=row.uuid, effect="final", error=str(error))
        return False
    wiring.ledger.told(row.uuid, until)
    return True


def _tell(wiring: Wiring, forge: Forge, row: Row, folder: Path | None) -> None:
    ending = _ending(wiring, forge, row)
    effects = EffectStore(folder) if folder is not None else None
    try:
        post_once(forge, row.key, row.uuid, FINAL, lambda: ending.final, effects)
    finally:
        if effects is not None:
            effects.file.close()
    if (progress := forge.find_comment(row.key, marker(row.uuid, PROGRESS))) is not None:
        with suppress(ForgeError):  # the final comment tells the same
            forge.edit_comment(
                row.key, progress, signed(ending.progress, row.uuid, row.started_by, home_of(wiring.settings))
            )
    if row.status is Status.COMPLETED and row.branch:
        _make_ready(forge, row, row.branch)
    newest = wiring.ledger.latest(row.key)
    if newest is None or newest.uuid == row.uuid:  # else the label is that of a later task
        forge.move_label(row.key, LABELS[row.status])
    wiring.events.emit("effect_done", uuid=row.uuid, effect="final")


def _make_ready(forge: Forge, row: Row, branch: str) -> None:
    """The pull request of a completed task is no draft; an older attempt may have made it one."""
    with suppress(ForgeError):
        pull = forge.find_pull(row.key, branch)
        if pull is not None and pull.state == "open" and pull.draft:
            forge.update_pull(row.key, pull, draft=False)


def _ending(wiring: Wiring, forge: Forge, row: Row) -> Ending:
    """The end as the task's own process has put it in words, if that is the one of the row; else what the row says."""
    where = ""
    door = Door.of(wiring.settings, wiring.events, forge.instance, row.uuid)
    for place in ("running", "completed"):  # in this order: it may be moved meanwhile
        folder = wiring.settings.base_dir / place / row.uuid
        kept = Ending.kept(folder)
        if kept is not None and kept.status is row.status:
            return replace(kept, progress=door.again(kept.progress), final=door.again(kept.final))
        if row.status is not Status.COMPLETED and later.has_work(folder) and not where:
            where = later.kept_where(folder)
    said = row.error_message or ""
    where = "" if where in said else where
    outcome = Outcome(ENDS[row.status], code=row.error_code or "", summary=f"{said} {where}".strip())
    note = said if row.status is Status.STOPPED else ""
    progress = door.render("progress", state=str(outcome.end), uuid=row.uuid, plan=[], last="", facts={}, note=note)
    final = door.render("final", outcome=outcome, report=None, uuid=row.uuid, facts={})
    progress, final = (fit(text, forge, row.uuid) for text in (progress, final))
    return Ending(row.status, outcome.code, outcome.summary, outcome, progress, final)


def _move(wiring: Wiring, row: Row, folder: Path) -> None:
    """Record the end in the folder and move it.  Nothing replaces the folder that `completed/` has already: then this
    one is of a process that came too late for the row (a broker repeats, say), and holds a lock, or is set aside."""
    target = wiring.settings.base_dir / "completed" / row.uuid
    if target.is_dir():
        if os.listdir(folder) == ["lock"]:  # noqa: PTH208 - names only
            filetree.remove(folder)
            return
        place = set_aside(wiring.settings, folder)
        why = f"{target} is there already"
        wiring.events.emit("folder_quarantined", name=row.uuid, place=str(place), why=why)
        return
    sweep(folder)  # of a worker that was killed
    write_end(folder, row.status, outcome=row.outcome, error_code=row.error_code, error_message=row.error_message)
    disk.make_dir(target.parent)
    disk.move_dir(folder, target)
    wiring.events.emit("folder_moved", uuid=row.uuid, status=str(row.status))
