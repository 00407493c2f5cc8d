"""Where tasks come from: GitHub, GitLab, a folder of Markdown files.

The contract is in `base.py`; one adapter a file.  Called by `run` (producer, worker, handler), which builds the
adapters in `run/wiring.py`.  Not here: what a task does (`loop.py`), what is pushed (`work/publish.py`), what is kept
(`context`).
"""

from __future__ import annotations

from agent.forge.base import FORGES, Comment, Forge, IssueText, Labels, PullRef, Repository
from agent.forge.task import Task, TaskFactory, TaskGetter
from agent.values import TaskKey

__all__ = [
    "FORGES",
    "Comment",
    "Forge",
    "IssueText",
    "Labels",
    "PullRef",
    "Repository",
    "Task",
    "TaskFactory",
    "TaskGetter",
    "TaskKey",
]
