"""Forges, the sources of tasks: GitHub, GitLab, Forgejo, and a folder of Markdown files.

The contract is in `base.py`; each adapter is a package of its own.  `wiring/wiring.py` builds the adapters; `issue`,
`worker`, `intake`, `daemon` and `commands` call them.  This package does not work on a task (`loop.py`), push its
result (`work/publish.py`) or store its files (`context`).
"""

from __future__ import annotations

from agent.forge.base import FORGES, Comment, Forge, IssueText, Labels, PullRef, Repository, Task, TaskGetter
from agent.forge.task_factory import TaskFactory
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
