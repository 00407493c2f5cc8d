"""Checks that a task may work on its issue: the task has not ended, no other daemon has the issue, and since a person
asked for the task, nobody has changed the issue or pushed to the fork of a pull request.

The claim of an issue is the first comment that a task writes on it (`issue/claims.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import EndedBefore, IssueUnreadable
from agent.forge.base import ForgeReports
from agent.issue import claims
from agent.security.security_filter import SecurityFilter
from agent.work import work_tree_snapshot

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.forge.base import Comment, IssueText
    from agent.worker.task_run import TaskRun


def blocked_rules(settings: Settings, issue: IssueText) -> tuple[str, ...]:
    """The ids of the rules because of which `security.block` refuses the issue; () if it refuses none of the issue's
    texts."""
    if not settings.security.block:
        return ()
    guard = SecurityFilter(block=True)
    found = [guard.detect_abuse(text) for text in (issue.title, issue.body, *(one.body for one in issue.comments))]
    return tuple(sorted({rule for one in found if one.blocked for rule in one.matched_rules}))


def withheld(settings: Settings, comment: Comment) -> Comment:
    """The comment as the model gets it: with `security.block`, a refused text is replaced by the ids of the rules that
    it matches."""
    if not settings.security.block:
        return comment
    found = SecurityFilter(block=True).detect_abuse(comment.body)
    if not found.blocked:
        return comment
    rules = ", ".join(found.matched_rules)
    return replace(comment, body=f"(The text of this comment is withheld: it matches {rules}.)")


def check_issue(run: TaskRun, issue: IssueText, started_by: str | None) -> None:
    """Check that the task may work on its issue, and claim the issue, unless an earlier attempt did so.

    Raises EndedBefore if the forge shows the end of this task; TakenElsewhere if another daemon has the issue;
    IssueUnreadable if the text of the issue, or the branch of a fork, was changed after a person requested the task, or
    if `security.block` refuses a text that the model has not read yet. For a task of `solve`, `check` accepts changes
    after the request.

    Once the model has read the issue, it gets a later edit of the issue as a comment (`Forge.comments_since`). A later
    push to the branch of a fork does not move the work tree, which stays at the commit at which the task began.
    """
    status = claims.shown_end(run.forge, run.key, run.uuid, issue.labels)
    if status is not None:
        said = f"{run.key} shows that this task has ended ({status}); the row was older, from a backup perhaps"
        raise EndedBefore(said, status=status)
    if run.forge.propagation_delay is not None:
        run.is_final_shown = claims.is_end_shown(run.forge.marked_comments(run.key), run.uuid)
    claims.check(
        run.forge,
        run.key,
        run.uuid,
        lambda: run.progress.compose("started"),
        claims.quiet_of(run.settings),
        home=claims.home_of(run.settings),
        started_by=started_by,
        issue=issue,
        posted=run.progress.is_posted,
        is_over=claims.over_in(run.wiring.ledger),
    )
    is_read = run.context.get_message_store().last_seq > 0
    if not is_read and (rules := blocked_rules(run.settings, issue)):
        raise IssueUnreadable(
            f"{run.key}: a text of the issue or of a comment matches {', '.join(rules)}, and `security.block` is on; "
            f"take it out of the issue, or set `security.block` to false",
            code="text_blocked",
        )
    if run.asked_here:
        return
    since = next((one.created_at for one in issue.comments if one.id == started_by), "")
    if not is_read and (why := run.forge.altered(run.key, since)):
        raise IssueUnreadable(f"{run.key}: {why}", code="issue_altered")
    pull = issue.pull
    if pull is None or not pull.fork or work_tree_snapshot.started_at(run.context.context_dir):
        return
    if why := ForgeReports(run.forge).head_moved(run.key, pull, since):
        raise IssueUnreadable(f"{run.key}: {why}", code="head_moved")
