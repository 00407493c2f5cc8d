"""End a task that no process works on: its folder, its label, its last comment.

For rows that were closed from outside: stopped while they waited, or given up by the ledger because their workers died
again and again.  The folder's lock is taken first, so that nobody can be working on it.  Doing it again does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import disk
from agent.context import EffectStore
from agent.errors import LockHeld, MakimonoError
from agent.prompts import render
from agent.run.comments import fit, post_once
from agent.security.redact import Redactor
from agent.values import CLOSED_STATUSES, End, Outcome, Status

if TYPE_CHECKING:
    from pathlib import Path

    from agent.forge.base import LabelState
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

LABELS: dict[Status, LabelState] = {Status.STOPPED: "stopped", Status.FAILED: "failed", Status.COMPLETED: "done"}


def close_from_outside(wiring: Wiring, row: Row) -> bool:
    """Tell the person, move label and folder of a closed row; False when somebody holds its lock.

    A folder that lies in `completed/` already is left alone: everything was done before it was moved.
    """
    base_dir = wiring.settings.base_dir
    folder = base_dir / "running" / row.uuid
    if (base_dir / "completed" / row.uuid).is_dir():
        return True
    if not folder.is_dir():
        _tell(wiring, row, None)
        return True
    try:
        lock = disk.lock(folder / "lock")
    except LockHeld:
        return False
    try:
        _tell(wiring, row, folder)
        disk.make_dir(base_dir / "completed", disk.passable())
        disk.move_dir(folder, base_dir / "completed" / row.uuid)
    finally:
        disk.unlock(lock)
    return True


def close_leftovers(wiring: Wiring) -> list[str]:
    """Folders in `running/` whose row is closed: a crash came between the row and the move.  Returns the uuids."""
    running = wiring.settings.base_dir / "running"
    moved = []
    for folder in sorted(running.iterdir()) if running.is_dir() else ():
        row = wiring.ledger.get(folder.name)
        if row is not None and row.status in CLOSED_STATUSES and close_from_outside(wiring, row):
            moved.append(row.uuid)
    return moved


def _tell(wiring: Wiring, row: Row, folder: Path | None) -> None:
    """Final comment and label; a forge that is away is reported and does not hold up the rest."""
    end = {Status.STOPPED: End.STOPPED, Status.COMPLETED: End.FINISHED}.get(row.status, End.FAILED)
    outcome = Outcome(end, code=row.error_code or "", summary=row.error_message or "")
    try:
        forge = wiring.forge_of(row.key)

        def body() -> str:
            text = render("final", outcome=outcome, report=None, uuid=row.uuid, facts={})
            return fit(text, forge, row.uuid, Redactor(wiring.settings.secrets()))

        effects = EffectStore(folder) if folder is not None else None
        post_once(forge, row.key, row.uuid, "final", body, effects)
        forge.move_label(row.key, LABELS[row.status])
    except MakimonoError as error:
        wiring.events.emit("effect_failed", uuid=row.uuid, effect="final", error=str(error))
