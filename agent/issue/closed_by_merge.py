"""Distinguishes a person's wish to stop a task from an issue that its own merged pull request has closed.

A host closes an issue when a pull request with a closing word is merged.  That happens by itself, so it is no order: a
task that goes on works to its end, and what comes after the merge goes into another pull request.  The worker calls
this module while the model works, `intake/comment_poller.py` for a task that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import IssueUnreadable

if TYPE_CHECKING:
    from agent.forge.base import Forge
    from agent.values import TaskKey


def is_closed_by_merge(forge: Forge, key: TaskKey, branch: str | None) -> bool:
    """Whether the only reason to stop is that the issue is closed, and the pull request of `branch` was merged.

    Called when `Forge.requested` has returned "stop".  Raises ForgeError."""
    if not branch:
        return False
    try:
        issue = forge.read_issue(key)
    except IssueUnreadable:
        return False
    if issue.state == "open" or forge.labels.requested(issue.labels, "open") == "stop":
        return False
    pull = forge.find_pull(key, branch)
    return pull is not None and pull.state == "merged"
