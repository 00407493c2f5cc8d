"""Forges, the sources of tasks: GitHub, GitLab, Forgejo, and a folder of Markdown files.

The contract that every adapter of a forge implements is in `base.py`; each adapter is a package of its own.  The
package `forge` does not work on a task (`loop.py`), push the result of a task (`work/publish.py`) or store the files of
a task (`context`).
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
