"""Removes the work tree of a task that has ended, according to `workspace.keep`.

The records of the task and its git directory are not removed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import MakimonoError
from agent.values import Status
from agent.work.untrusted_tree import remove

if TYPE_CHECKING:
    from agent.worker.task_run import TaskRun


def remove_work_tree(run: TaskRun, status: Status) -> None:
    """Remove the work tree and the home folder of a task that ended with `status`, unless the run is a replay,
    `workspace.keep` keeps them, or the tree has work that was not pushed. If the work tree cannot be removed now,
    `cleanup` removes it later."""
    keep = run.settings.workspace.keep
    if keep == "always" or (keep == "failed" and status is not Status.COMPLETED):
        return
    if run.publishing and run.workspace is not None:
        with suppress(MakimonoError):
            if run.workspace.discard(run.written_paths()):
                remove(run.context.context_dir / "home")
