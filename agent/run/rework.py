"""Finished work goes back to the model with what keeps it from being ready, `limits.fix_rounds` times.

The word to the model is a message of kind `fix`, and these messages are the count: a process that dies before it is
appended delivers again and says it once, one that dies after it goes on with it.  Of a check that was red on the base
in the same way, and of files that tools wrote and no commit has, the model hears once; when it finishes again without
a change, that is its answer.  Called by `run/handler.py` after each delivery.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent.prompts import render
from agent.run import later
from agent.run.gate import decide, is_mendable
from agent.security.fence import fence
from agent.security.sanitise import output
from agent.values import End, Outcome, Status
from agent.window.shares import LEAST, divided

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.run.report import Report
    from agent.run.task_run import TaskRun

KIND = "fix"
"""Of the message, and of the receipt that has the outcome, the commit that the newest one is about, and whether the
check was red on it."""

NO_ANSWER = (End.ANSWERED, End.LIMIT, End.REPEATING, End.FAILED)
"""Ends of a model that was sent back and did not finish again."""

FLAKY = "the check failed on this very commit before it passed: it does not say the same each time"

NAMED = 50
"""Findings, and failing tests, that are named to the model."""


def send_back(run: TaskRun, outcome: Outcome, report: Report) -> bool:
    """Say to the model what it may mend, if a round and the limits are left; whether its loop goes on."""
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
    if said and before.get("commit") == report.commit and decide(outcome, report).status is Status.COMPLETED:
        return False
    known = {*before.get("left_behind", ())} if said else set()
    if not is_mendable(outcome, replace(report, left_behind=tuple(set(report.left_behind) - known))):
        return False  # it heard of these files, and leaves them where they are
    red = report.verdict is not None and report.verdict.is_red
    left_behind = sorted({*known, *report.left_behind})
    receipt = {"commit": report.commit, "outcome": outcome.to_dict(), "red": red, "left_behind": left_behind}
    run.effects.done(KIND, receipt)
    later.is_asked(run.effects)
    run.context.set_columns(outcome=None)
    if not run.is_briefed:  # only publishing was left
        run.brief()
    within = partial(parts_within, run.window.shares.results, run.window.assembler.counter.count, run.tools.shortened)
    text = run.redact(words(run.context.fence, report, said + 1, rounds, within=within))
    store.add_message("user", text, kind=KIND)
    store.sync()
    why = decide(outcome, report).code or ("left_behind" if report.left_behind else "was_red")
    run.events.emit("sent_back", round=said + 1, rounds=rounds, why=why)
    return True


def standing(run: TaskRun, outcome: Outcome) -> Outcome:
    """The finish that went back to the model, when the model then ended in another way and changed nothing: what keeps
    it from being ready is the same as before."""
    kept = run.effects.receipt(KIND)
    if not kept or outcome.end not in NO_ANSWER or kept["commit"] != run.workspace.head():
        return outcome
    if run.workspace.uncommitted():
        return outcome
    why = outcome.summary if outcome.end is not End.ANSWERED else "it answered in words alone"
    run.reports.append(f"the model was asked to put right what was found, and did not: {why}")
    return Outcome.of(kept["outcome"])


def parts_within(
    tokens: int, count: Callable[[str], int], shorten: Callable[[str, int], str], texts: Sequence[str]
) -> list[str]:
    """`texts` in `tokens` together: short ones whole, longer ones with head, tail and a pointer to the whole."""
    parts = divided(tokens, [count(text) for text in texts])
    return [shorten(text, max(LEAST, part)) for text, part in zip(texts, parts, strict=True)]


def words(
    marker: str, report: Report, number: int, rounds: int, *, within: Callable[[Sequence[str]], list[str]] = list
) -> str:
    """The message to the model.  `within` makes what is quoted as long as there is room for, all together."""
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
        left_behind=report.left_behind[:NAMED],
        rejected=fence(rejected, marker, source="the repository") if rejected else "",
        output=fence(shown, marker, source="output of the check") if shown.strip() else "",
        failing=fence(new, marker, source="new failures") if new else "",
        failed_before=fence(known, marker, source="old failures") if known else "",
        again=report.was_red,
    )
