"""Posts on the issue that a run pauses or ends: the progress comment gets its final text, and a further comment has the
question or the result, if no answer to a comment has it.

Every text is cleaned by `issue/publish_filter.py` and cut to the maximum length of a comment.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from agent.errors import ForgeError
from agent.issue.answers import post_replies
from agent.issue.claims import FINAL
from agent.issue.comments import MARGIN, held_text, post_once
from agent.values import End, Outcome, Public, Status
from agent.worker.final_state import FinalState
from agent.worker.pull_text import fitted
from agent.worker.replies import question_there, replies_of

if TYPE_CHECKING:
    from agent.worker.delivery_report import Report
    from agent.worker.outcome import StatusDecision
    from agent.worker.task_run import TaskRun


def notify_paused(run: TaskRun, outcome: Outcome) -> None:
    """Show on the issue that the task waits, post the model's question (if it has one) where the task was asked for,
    and move the label.

    Raises ForgeError.
    """
    if not run.publishing:
        return

    _edit(run, run.progress.compose(str(outcome.end)))
    if outcome.end is End.ASKED:  # a pause on a person's request needs no comment
        # The name of the receipt for a question depends on the task's folder: a task that lost its folder may ask a new
        # question after the answer to the old one.
        folder = crc32(run.context.fence.encode())
        effect = f"question-{folder}-{run.context.get_tool_store().count_tool_calls()}"
        told = {"outcome": outcome, "report": None, "decision": None, "uuid": run.uuid, "facts": run.facts()}
        words = run.fit_comment(run.publish_filter.render("final", **told))
        if (there := question_there(run, words, effect)) is not None:
            post_replies(run.forge, run.key, run.uuid, [there], run.events, run.effects, run.check_held)
        else:
            _post(run, effect, words)
    run.move_label("paused")


def compose(run: TaskRun, outcome: Outcome, report: Report | None, decision: StatusDecision) -> FinalState:
    """Make the final state of the run, with the texts for people; this is possible at any stage of the run. Secrets are
    masked."""
    replies = replies_of(run, outcome, report, decision)
    if replies.lost:
        outcome = replace(outcome, summary="\n\n".join([outcome.summary, *replies.lost]).strip())
    failed = decision.status is Status.FAILED
    state = "failed" if failed and outcome.end is not End.LIMIT else str(outcome.end)
    facts = run.facts()
    if outcome.end is End.STOPPED and run.publishing:
        # After an error of the forge, the comment does not mention whether the issue is closed.
        with suppress(ForgeError):
            facts["closed"] = run.forge.read_issue(run.key).state == "closed"

    def render(words: str) -> Public:
        told = replace(outcome, summary=words)
        return run.publish_filter.render(
            "final", outcome=told, report=report, decision=decision, uuid=run.uuid, facts=facts
        )

    note = f"\n\n… cut; the whole text is in the folder of task {run.uuid}."
    final = run.fit_comment(Public(fitted(render, outcome.summary, run.forge.max_comment - MARGIN, note)))
    said = Outcome(outcome.end, run.redact(outcome.summary), run.redact(outcome.title), outcome.code)
    message = run.redact(decision.message)
    posted, quiet = replies.with_final(run, final)
    progress = run.progress.compose("answered" if replies.answered else state)
    return FinalState(decision.status, decision.code, message, said, progress, final, posted, quiet)


def notify_finished(run: TaskRun, ending: FinalState) -> None:
    """Post the answers to comments and the final comment of a run, each once, and update the progress comment. If an
    answer has the final text (`quiet`), the progress comment is also the final comment of the task; only if it cannot
    be edited, its text is posted as a new comment. Raises ForgeError, or Fenced if another attempt owns the
    task."""
    if not run.publishing:
        return
    run.check_held()
    post_replies(run.forge, run.key, run.uuid, ending.replies, run.events, run.effects, run.check_held)
    if ending.quiet and _edit(run, ending.progress, ends=True):
        return
    if not ending.quiet:
        _edit(run, ending.progress)
    # with `quiet`, the failed edit may have reached the forge nevertheless, so the final comment is searched for first
    is_new = not ending.quiet and run.context.attempt == 1 and run.is_final_shown is False
    _post(run, FINAL, ending.progress if ending.quiet else ending.final, is_new=is_new)


def _edit(run: TaskRun, words: Public, *, ends: bool = False) -> bool:
    """Write the progress comment, which with `ends` is also the final comment; returns whether it now has this text."""
    try:
        return run.progress.write(words, ends=ends)
    # a failed edit is only reported: the label, or the next comment, shows the state too
    except ForgeError as error:
        run.events.emit("effect_failed", effect="progress", error=str(error))
        return False


def _post(run: TaskRun, name: str, words: Public, *, is_new: bool = False) -> None:
    """Post a comment once. `is_new`: only this process can have posted it, so it is not searched for on the forge."""
    run.check_held()
    body = partial(held_text, words, run.check_held)
    post_once(run.forge, run.key, run.uuid, name, body, run.effects, is_new=is_new)
    run.events.emit("effect_done", effect=name)
