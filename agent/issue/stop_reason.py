"""Finds out what ended a task on the forge (a closed issue, a label, an assignment), and which account did so; the
final comment of the task contains this reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import IssueUnreadable
from agent.forge.base import ForgeReports
from agent.security.terminal import strip_terminal_controls

if TYPE_CHECKING:
    from agent.forge.base import Act, Forge
    from agent.values import TaskKey


def reason_on_forge(forge: Forge, key: TaskKey) -> str:
    """A sentence about the action on the forge that ended the task, with the account that did it if the forge names the
    account; or a sentence that the issue cannot be read any more. Raises ForgeError."""
    try:
        issue = forge.read_issue(key)
    except IssueUnreadable as error:
        return f"The issue cannot be read any more: {error}."
    act: Act = "unassigned"
    labels, done, passive = forge.labels, "took the account off the issue", "The account was taken off the issue"
    if issue.state != "open":
        act, done, passive = "closed", "closed the issue", "The issue was closed"
    elif labels.stopped and labels.stopped in issue.labels:
        act, done = "labelled", f"set the label {labels.stopped}"
        passive = f"The label {labels.stopped} was set"
    elif labels.requested(issue.labels, "open") == "stop":
        act, done = "unlabelled", f"removed the label {labels.processing or labels.queued}"
        passive = f"The label {labels.processing or labels.queued} was removed"
    return sentence_about(ForgeReports(forge).who_ended(key, act), done, passive)


def sentence_about(who: str, done: str, passive: str) -> str:
    """Make a sentence from the account `who` and the phrase `done`, or from the phrase `passive` alone if the account
    is unknown ("")."""
    return f"{strip_terminal_controls(who)} {done}." if who else f"{passive}."
