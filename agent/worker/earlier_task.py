"""Reads the earlier task that a new task continues, for example because somebody set the label again after its end, or
asked for more work in a comment.

The new task has a uuid, a folder and a conversation of its own.  The new task starts on the branch of the earlier task
if the pull request of that branch is open, and its briefing contains the earlier summary (docs/forges.md, "Talk").
Unpublished commits of the earlier task are taken from its folder, if the folder still exists (`UnpublishedCommits`).
The folder of the earlier task is not changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import GitError, WorkError
from agent.store import jsonl
from agent.values import CLOSED_STATUSES
from agent.work import gitdir, refs
from agent.worker.final_state import FinalState

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.taskqueue import Ledger, Row
    from agent.values import TaskKey

LONGEST = 8000
"""Maximum number of characters of an earlier summary in a briefing."""
GENERATIONS = 20
"""The earlier work is looked for in at most this number of consecutive tasks that ended before they had a work tree."""


@dataclass(frozen=True, slots=True)
class UnpublishedCommits:
    """Unpublished commits of an earlier task: the commits after `start` up to `commit`, in that task's own `git_dir`.

    `pushed`: the last commit that the earlier task has pushed, None if it has pushed none. `refused`: a check
    before the push, the repository or the forge has refused these commits, so they may not be published as they are."""

    git_dir: Path
    commit: str
    base: str
    start: str
    pushed: str | None
    refused: bool


@dataclass(frozen=True, slots=True)
class ParentTask:
    """An earlier task that a new task continues.

    `branch` is None if there is no branch to continue (merged, closed, never pushed); `url` is the address of its pull
    request, "" without one; `cursor` is the position up to which the task has read comments; `kept` are its unpublished
    commits, None if there are none.
    """

    uuid: str
    status: str
    branch: str | None
    summary: str
    cursor: str | None = None
    kept: UnpublishedCommits | None = None
    url: str = ""

    @property
    def is_gone_on_from(self) -> bool:
        """Whether the earlier task has left a branch that the next task can continue, or unpublished commits without
        having pushed any."""
        return self.branch is not None or (self.kept is not None and self.kept.pushed is None)


def parent_of(settings: Settings, ledger: Ledger, key: TaskKey) -> str | None:
    """The uuid of the newest closed task for the same issue, if it ended within `context_inheritance.expiry_days`; else
    None."""
    row = ledger.latest(key)
    if row is None or row.status not in CLOSED_STATUSES or not row.completed_at:
        return None
    age = clock.now() - clock.parse(row.completed_at)
    return row.uuid if age <= timedelta(days=settings.context_inheritance.expiry_days) else None


def read_parent(settings: Settings, ledger: Ledger, forge: Forge, uuid: str | None) -> ParentTask | None:
    """The task `uuid` with its branch, summary and unpublished commits; None if `uuid` is None or has no row any more.
    Raises ForgeError if the pull request of the task cannot be looked up."""
    row = ledger.get(uuid) if uuid else None
    if row is None:
        return None
    folders = settings.base_dir / "completed"
    kept, summary = _unpushed_commits(_worked(folders, ledger, row)), summary_of(folders / row.uuid, row)
    return ParentTask(row.uuid, str(row.status), _branch(forge, row), summary, row.cursor, kept, row.url or "")


def _worked(folders: Path, ledger: Ledger, row: Row) -> Path:
    """The folder of the earlier task; if that task never had a work tree, the folder of the newest task before it that
    had one."""
    now: Row | None = row
    for _ in range(GENERATIONS):
        if now is None or now.parent_uuid is None or os.path.lexists(folders / now.uuid / "git"):
            break
        now = ledger.get(now.parent_uuid)
    return folders / (now or row).uuid


def _unpushed_commits(folder: Path) -> UnpublishedCommits | None:
    """The commits in the earlier task's own git directory that the task has not pushed.

    Returns None if no commit is unpublished, if the commits need content of Git LFS (which no commit contains), or if
    the directory cannot be read.
    """
    git_dir = folder / "git"
    try:
        state = gitdir.read_state(git_dir)
        if state is None or state.start is None or any((git_dir / "lfs").glob("*")):
            return None
        commit = refs.read_ref(git_dir, f"refs/heads/{state.branch}")
    except (WorkError, GitError, OSError):
        return None
    if commit is None or commit in (state.start, state.pushed):
        return None
    return UnpublishedCommits(git_dir, commit, state.base, state.start, state.pushed, state.refused == commit)


def _branch(forge: Forge, row: Row) -> str | None:
    """The branch of the earlier task if its pull request is still open, else None: after the pull request was merged or
    closed, nothing more is pushed to its branch."""
    if not row.branch:
        return None
    pull = forge.find_pull(row.key, row.branch)
    return row.branch if pull is not None and pull.state == "open" else None


def summary_of(folder: Path, row: Row) -> str:
    """The final text of the earlier task, at most LONGEST characters: the summary of its `finish` if this was its last
    tool call, else the model's last text, else the summary in the stored end (`cleanup` may have left only this file),
    else the reason of its failure; "" if there is none of them."""
    for _, record in jsonl.backwards(folder / "tools.jsonl"):
        if record.get("tool") == "finish" and record.get("status") == "success":
            return str((record.get("args") or {}).get("summary") or "")[:LONGEST]
        break
    for _, record in jsonl.backwards(folder / "messages.jsonl"):
        if record.get("role") == "assistant" and record.get("content"):
            return str(record["content"])[:LONGEST]
    kept = FinalState.load(folder)
    return str((kept and kept.outcome.summary) or row.error_message or "")[:LONGEST]
