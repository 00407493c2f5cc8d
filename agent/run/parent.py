"""The task that this one goes on from: the label was set again, or a comment asked for more, after its end.

The new task has its own uuid, folder and conversation; it starts on the branch of the earlier one, while its pull
request is open, and its briefing says what was done (design: section 8).  Nothing of the earlier folder is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.run.ending import Ending
from agent.store import jsonl
from agent.values import CLOSED_STATUSES

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.taskqueue import Ledger, Row
    from agent.values import TaskKey

LONGEST = 8000
"""Characters of an earlier summary that a briefing takes over."""


@dataclass(frozen=True, slots=True)
class Parent:
    """An earlier task.  `branch` is None when its work is not to be gone on from (merged, closed, never pushed);
    `cursor` is how far it had read the comments."""

    uuid: str
    status: str
    branch: str | None
    summary: str
    cursor: str | None = None


def parent_of(settings: Settings, ledger: Ledger, key: TaskKey) -> str | None:
    """The newest closed task of the key, while `context_inheritance.expiry_days` have not passed; else None."""
    row = ledger.latest(key)
    if row is None or row.status not in CLOSED_STATUSES or not row.completed_at:
        return None
    age = clock.now() - clock.parse(row.completed_at)
    return row.uuid if age <= timedelta(days=settings.context_inheritance.expiry_days) else None


def read_parent(settings: Settings, ledger: Ledger, forge: Forge, uuid: str | None) -> Parent | None:
    """What the task `uuid` left; None when its row is gone."""
    row = ledger.get(uuid) if uuid else None
    if row is None:
        return None
    summary = _summary(settings.base_dir / "completed" / row.uuid, row)
    return Parent(row.uuid, str(row.status), _branch(forge, row), summary, row.cursor)


def _branch(forge: Forge, row: Row) -> str | None:
    """The branch, if its pull request is still open: a merged or refused one is not pushed to again."""
    if not row.branch:
        return None
    pull = forge.find_pull(row.key, row.branch)
    return row.branch if pull is not None and pull.state == "open" else None


def _summary(folder: Path, row: Row) -> str:
    """What the earlier task said at its end: the summary of `finish`, else its last words, else why it failed.  Of a
    folder that `cleanup` went through only the end is left, which has the same."""
    for _, record in jsonl.backwards(folder / "tools.jsonl"):
        if record.get("tool") == "finish" and record.get("status") == "success":
            return str((record.get("args") or {}).get("summary") or "")[:LONGEST]
        break
    for _, record in jsonl.backwards(folder / "messages.jsonl"):
        if record.get("role") == "assistant" and record.get("content"):
            return str(record["content"])[:LONGEST]
    kept = Ending.kept(folder)
    return str((kept and kept.outcome.summary) or row.error_message or "")[:LONGEST]
