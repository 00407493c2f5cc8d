"""Distinguishes two reasons for a closed issue: a person who wants to stop the task, and the merge of the task's own
pull request, which closes the issue.

A forge closes an issue when a pull request with a closing keyword ("closes #7") is merged.  If a merge has closed the
issue, nobody has asked to stop: the task continues to its end, and changes after the merge go into another pull
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import IssueUnreadable

if TYPE_CHECKING:
    from agent.forge.base import Forge
    from agent.values import TaskKey


MERGED = "merged"
"""The receipt in effects.jsonl of a task that its pull request was merged while the task ran. When the task has opened
another pull request for its branch, `Forge.find_pull` no longer shows that the first one was merged, so this receipt
records the merge."""


def is_closed_by_merge(forge: Forge, key: TaskKey, branch: str | None, *, merged: bool = False) -> bool:
    """Whether the closed issue is the only reason to stop the task, and the pull request of `branch`, or an earlier
    pull request of the task (`merged`), was merged.

    `is_closed_by_merge` is called when `Forge.requested` has returned "stop".  Raises ForgeError."""
    if not branch:
        return False
    try:
        issue = forge.read_issue(key)
    except IssueUnreadable:
        return False
    if issue.state == "open" or forge.labels.requested(issue.labels, "open") == "stop":
        return False
    if merged:
        return True
    pull = forge.find_pull(key, branch)
    return pull is not None and pull.state == "merged"
