"""Composes the answers to comments at the end of a run, and decides where the last comment of the run stands.

The model names a comment that it answers by the comment's id (`finish`, `answers`). Each answer is posted next to the
comment that it answers. If a comment on the pull request has started the run, the last comment of the run is an answer
to that comment. A run that only answered a question has no other last comment than the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.forge.base import ForgeReports
from agent.issue.answers import Reply, asking_comment, comments_by_id, headed, quoted
from agent.issue.comments import MARGIN
from agent.values import End, Outcome, Public, Status
from agent.worker.pull_text import fitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.forge.base import Comment
    from agent.worker.delivery_report import Report
    from agent.worker.outcome import StatusDecision
    from agent.worker.task_run import TaskRun


@dataclass(frozen=True, slots=True)
class Replies:
    """The answers of a run.

    `asked`: the comment that requested the task; None if no comment requested it, or if the comment cannot be found or
    read. `answered`: the run has answered a question and done nothing else. `lost`: texts of answers to comments that
    do not exist, and of second answers to one comment."""

    replies: tuple[Reply, ...] = ()
    asked: Comment | None = None
    answered: bool = False
    lost: tuple[str, ...] = ()

    def with_final(self, run: TaskRun, final: Public) -> tuple[tuple[Reply, ...], bool]:
        """(the answers; whether one of them is the last comment of the run, which then is not posted on the issue). The
        last comment is added as an answer if a comment on a pull request requested the task."""
        asked = self.asked
        if self.answered or asked is None or not asked.place:
            return self.replies, self.answered
        there = next((one for one in self.replies if one.comment.id == asked.id), None)
        if there is None:
            return (
                *self.replies,
                Reply.for_comment(asked, run.fit_comment(headed(run.publish_filter, asked, final)), settled=False),
            ), True
        both = replace(there, text=run.fit_comment(Public(f"{there.text.rstrip()}\n\n{final}")))
        return tuple(both if one is there else one for one in self.replies), True


def replies_of(run: TaskRun, outcome: Outcome, report: Report | None, decision: StatusDecision) -> Replies:
    """The answers to the comments that the model has answered, cleaned and cut."""
    started_by = run.context.column("started_by")
    if not run.publishing or not (outcome.answers or started_by):
        return Replies(lost=tuple(one.text for one in outcome.answers))
    known = _comments(run)
    changed = report is not None and report.changed
    completed = decision.status is Status.COMPLETED and (decision.ready or not changed)
    asked = known.get(str(started_by)) if started_by else None
    found: dict[str, Reply] = {}
    lost = []
    for one in outcome.answers:
        comment = known.get(_id_in(one.comment))
        if comment is None or comment.id in found:
            lost.append(one.text)
            continue
        found[comment.id] = Reply.for_comment(comment, _text(run, comment, one.text), settled=one.settled and completed)
    answered = asked is not None and not changed and completed and outcome.end in (End.FINISHED, End.ANSWERED)
    if answered and asked is not None and asked.id not in found and outcome.summary:
        found[asked.id] = Reply.for_comment(asked, _text(run, asked, outcome.summary), settled=False)
    answered = answered and asked is not None and asked.id in found and not lost and not run.facts()["reports"]
    return Replies(tuple(found.values()), asked, answered, tuple(lost))


def ask_reviewers(run: TaskRun, replies: Iterable[Reply], report: Report | None, decision: StatusDecision) -> None:
    """When the pull request is ready, ask the authors of the answered comments on the pull request for a review again.

    The person who asked for the run is left out: that person was asked for a review when the pull request became ready
    (`pull_request.py`)."""
    if report is None or report.pull is None or not decision.ready or not run.publishing:
        return
    known = {str(run.context.row.get("user") or "")}
    for one in replies:
        if one.comment.place and one.comment.author not in known:
            known.add(one.comment.author)
            run.check_held()
            try:
                ForgeReports(run.forge).ask_again(run.key, report.pull, one.comment.author)
            except ForgeError as error:
                run.emit("effect_failed", effect="review", error=str(error))


def _id_in(text: str) -> str:
    """The id of a comment in `text`, in which the model may have written "comment" before the id."""
    return text.strip().removeprefix("comment").strip(" #:[]")


def _comments(run: TaskRun) -> Mapping[str, Comment]:
    """Comment id → comment of a person, on the issue and on the pull requests of the task; empty if the comments cannot
    be read."""
    try:
        return comments_by_id(run.forge, run.key, _urls(run))
    except ForgeError as error:
        run.emit("effect_failed", effect="reply", error=str(error))
        return {}


def _urls(run: TaskRun) -> list[str]:
    """The addresses of the pull requests of the task and of the task that it continues."""
    parent = run.wiring.ledger.get(str(run.context.row.get("parent_uuid") or ""))
    return [*run.pull_urls(), *([parent.url] if parent is not None and parent.url else [])]


def _text(run: TaskRun, comment: Comment, words: str) -> Public:
    note = f"\n\n… cut; the whole text is in the folder of task {run.uuid}."
    room = run.forge.max_comment - MARGIN
    return run.fit_comment(Public(fitted(lambda said: quoted(run.publish_filter, comment, said), words, room, note)))


def question_there(run: TaskRun, text: Public, effect: str) -> Reply | None:
    """The question of a task as an answer to the comment on the pull request that has started the task; None if
    somebody asked for the task on the issue."""
    try:
        asked = asking_comment(run.forge, run.key, run.context.row.get("started_by"), _urls(run))
    except ForgeError as error:
        run.emit("effect_failed", effect="question", error=str(error))
        return None
    if asked is None:
        return None
    return Reply(
        replace(asked, body="", hunk=""), run.fit_comment(headed(run.publish_filter, asked, text)), effect=effect
    )
