"""Sends finished work back to the model with the reasons why it is not ready, up to `limits.fix_rounds` times.

The message to the model has the kind `fix`; the number of these messages is the number of rounds. If a process dies
before it appends the message to the model, the next process delivers again and then sends the message; if it dies
afterwards, the next process continues from the message. Two reasons why work is not ready are sent only once if there
is no other reason: a check that failed on the base commit in the same way, and files that tools wrote and that are in
no commit. If the work conflicts with the base branch, git first writes the merge with its conflict markers into the
work tree; the next commit is then the merge. If the model finishes without a change after it got its work back, a
result with which the task can be completed is accepted as it is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent.prompts import render
from agent.security.fence import fence
from agent.security.sanitise import output
from agent.values import End, Outcome, Status
from agent.window.budgets import LEAST, divide
from agent.work import rebase
from agent.worker import unpublished_work
from agent.worker.outcome import decide, is_mendable
from agent.worker.reviewer_conditions import KIND as CONDITION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.values import Json
    from agent.worker.conversation import Conversation
    from agent.worker.delivery_report import Report
    from agent.worker.task_run import TaskRun

KIND = "fix"
"""Kind of the message that sends work back to the model, and name of the receipt about it.

The receipt about work that was sent back has the outcome, the commit of the work, whether the check failed on that
commit, and the files that were in no commit.
"""

NO_ANSWER = (End.ANSWERED, End.LIMIT, End.REPEATING, End.FAILED)
"""The ends of a run after which its earlier outcome may be used again: the model got its work back, and did not call
`finish` again."""

FLAKY = "the check failed on this very commit before it passed: it does not say the same each time"

NAMED = 50
"""The maximum number of items (findings, or failing tests) that the message to the model lists."""


def send_back(conversation: Conversation, outcome: Outcome, report: Report) -> bool:
    """Send the model the problems that it can correct, if a round and the limits are left; returns whether the loop
    continues.

    If only publishing was left, `send_back` opens the conversation again."""
    run = conversation.run
    before = run.effects.receipt(KIND) or {}
    if report.verdict is not None and report.verdict.ok and before.get("red") and before["commit"] == report.commit:
        run.reports.append(FLAKY)
    if not is_mendable(outcome, report):
        return False
    store = run.context.get_message_store()
    rounds = run.settings.limits.fix_rounds
    said = sum(1 for record in store.records() if record.get("kind") == KIND)
    if said >= rounds or run.limits() is not None:
        return False
    merges = bool(report.conflicts) and not (report.findings or report.rejected)
    if merges and rebase.too_old():
        return False
    if said and before.get("commit") == report.commit and decide(outcome, report).status is Status.COMPLETED:
        return False
    known = {*before.get("left_behind", ())} if said else set()
    if not is_mendable(outcome, replace(report, left_behind=tuple(set(report.left_behind) - known))):
        return False  # the model was already asked about these files that no commit contains
    red = report.verdict is not None and report.verdict.is_red
    left_behind = sorted({*known, *report.left_behind})
    receipt = {"commit": report.commit, "outcome": outcome.to_dict(), "red": red, "left_behind": left_behind}
    reopen(conversation, KIND, receipt)
    if merges and (base := conversation.workspace.mirror.commit_of(report.base)) is not None:
        conversation.workspace.lay_merge(base)
    window, tools = conversation.window, conversation.tools
    within = partial(parts_within, window.shares.results, window.assembler.count, tools.shorten)
    text = run.redact(compose(run.context.fence, report, said + 1, rounds, within=within))
    why = decide(outcome, report).code or ("left_behind" if report.left_behind else "was_red")
    send_round(conversation, KIND, text, round=said + 1, rounds=rounds, why=why)
    return True


def reopen(conversation: Conversation, kind: str, receipt: Json) -> None:
    """Record, in the receipt of the given kind, that finished work goes back to the model.

    If only publishing was left, `reopen` opens the conversation again."""
    run = conversation.run
    run.effects.done(kind, receipt)
    unpublished_work.mark_asked(run.effects)
    run.context.set_columns(outcome=None)
    if run.model is None:  # an earlier process had finished the model's work, so this process has no model client yet
        conversation.begin()


def send_round(conversation: Conversation, kind: str, text: str, **event: object) -> None:
    """Append the message of a round to the conversation, sync it, and emit `sent_back` with the fields of `event`."""
    store = conversation.run.context.get_message_store()
    store.add_message("user", text, kind=kind)
    store.sync()
    conversation.run.events.emit("sent_back", **event)


def earlier_finish(run: TaskRun, outcome: Outcome) -> Outcome | None:
    """The earlier outcome of a run in which the model got its work back, ended without calling `finish`, and changed
    nothing, so that the reasons why the work is not ready are the same.  The result is None if the model called
    `finish` again, changed something, or did not get its work back."""
    if outcome.end not in NO_ANSWER or run.workspace is None:
        return None
    head = run.workspace.head()
    receipts = (run.effects.receipt(name) for name in (KIND, CONDITION))
    kept = next((one for one in receipts if one and one["commit"] == head), None)
    if kept is None or run.workspace.uncommitted():
        return None
    why = outcome.summary if outcome.end is not End.ANSWERED else "it answered in words alone"
    run.reports.append(f"the model was asked to put right what was found, and did not: {why}")
    return Outcome.from_dict(kept["outcome"])


def parts_within(
    tokens: int, count: Callable[[str], int], shorten: Callable[[str, int], str], texts: Sequence[str]
) -> list[str]:
    """The texts, shortened to `tokens` together: short ones are whole; of longer ones the beginning and end are shown,
    with the name of a file that has the whole text. Each text gets at least LEAST tokens, even if all together then
    take more than `tokens`."""
    parts = divide(tokens, [count(text) for text in texts])
    return [shorten(text, max(LEAST, part)) for text, part in zip(texts, parts, strict=True)]


def compose(
    marker: str, report: Report, number: int, rounds: int, *, within: Callable[[Sequence[str]], list[str]] = list
) -> str:
    """The text of the message that sends finished work back to the model. `within` is a function that shortens the
    quoted texts so that they fit together."""
    verdict, before = report.verdict, report.before
    failing = verdict.outline.failing if verdict is not None else frozenset()
    old = before.outline.failing if before is not None else frozenset()

    def names(found: frozenset[str]) -> str:
        more = [f"and {len(found) - NAMED} more"] if len(found) > NAMED else []
        return "\n".join([*sorted(found)[:NAMED], *more]) if found else ""

    shown = output(verdict.tail) if verdict is not None and not verdict.ok else ""
    quoted = [output(report.rejected), shown, names(failing - old), names(failing & old)]
    rejected, shown, new, known = within(quoted)
    return render(
        "fix",
        round=number,
        rounds=rounds,
        report=report,
        findings=report.findings[:NAMED],
        conflicts=() if report.findings or report.rejected else report.conflicts[:NAMED],
        left_behind=report.left_behind[:NAMED],
        rejected=fence(rejected, marker, source="the repository") if rejected else "",
        output=fence(shown, marker, source="output of the check") if shown.strip() else "",
        failing=fence(new, marker, source="new failures") if new else "",
        failed_before=fence(known, marker, source="old failures") if known else "",
        again=report.was_red,
    )
