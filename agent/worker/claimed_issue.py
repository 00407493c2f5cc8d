"""Reads the issue of a task, checks that the task may work on it, and shows on the issue that the task works on it.

`read_and_claim` is the first part of `preparation.prepare` and may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent import clock, deadline
from agent.forge.base import ForgeReports
from agent.forge.what_starts import start_of
from agent.worker.ci_failures import CiFailures, read_failures
from agent.worker.earlier_task import read_parent
from agent.worker.issue_checks import check_issue
from agent.worker.task_facts import may_author_ask

if TYPE_CHECKING:
    from agent.forge.base import Forge, IssueText
    from agent.worker.earlier_task import ParentTask
    from agent.worker.task_run import TaskRun


@dataclass(frozen=True, slots=True)
class ClaimedIssue:
    """The result of `read_and_claim`.

    `read_at` is the time of the monotonic clock just before the issue and its comments were read.  `trusts_author`:
    whether the author of the issue may request work.  `parent` is the earlier task that this one continues, None if
    there is none.  `ci` has the red checks for which the task was started; it is empty if the briefing is written
    already.
    """

    issue: IssueText
    read_at: float
    trusts_author: bool
    parent: ParentTask | None
    ci: CiFailures


def read_and_claim(run: TaskRun) -> ClaimedIssue:
    """Read the issue with its comments, check that the task may work on it, set the processing label if the issue still
    has the label of an earlier state, and claim the issue by the progress comment. A run that publishes nothing
    (`replay`) skips the check and the claim.

    Raises TakenElsewhere, EndedBefore or IssueUnreadable if the task may not work on the issue, ForgeError if the forge
    does not answer."""
    context, forge = run.context, run.forge
    parent = read_parent(run.settings, run.wiring.ledger, forge, context.row.get("parent_uuid"))
    started_by = context.row.get("started_by")
    read_at = clock.monotonic()
    with ForgeReports(forge).single_reads():
        issue = _with_pull(forge, forge.read_issue(run.key), parent)
        context.set_columns(title=issue.title)
        if run.publishing:
            check_issue(run, issue, started_by)
        trusts_author = may_author_ask(run, issue)
        deadline.is_stopping()  # looks for a request to stop now, while `single_reads` still has the issue
        is_first = context.row.get("parent_uuid") is None
        present = set(issue.labels) - forge.labels.without_effect(start_of(forge))
        if forge.labels.is_left_behind(present, by_comment=started_by is not None, is_first=is_first):
            run.move_label("processing")
        if run.publishing:
            run.progress.start()
        ci = CiFailures() if run.is_briefed() else read_failures(run)
    return ClaimedIssue(issue, read_at, trusts_author, parent, ci)


def _with_pull(forge: Forge, issue: IssueText, parent: ParentTask | None) -> IssueText:
    """The issue, together with the comments on the earlier task's pull request."""
    cursor = ForgeReports(forge).with_pull(issue.cursor, parent.url) if parent is not None else issue.cursor
    if cursor is None or cursor == issue.cursor:
        return issue
    more, cursor = forge.comments_since(issue.key, cursor)
    comments = sorted((*issue.comments, *more), key=lambda one: one.created_at)
    return replace(issue, comments=tuple(comments), cursor=cursor)
