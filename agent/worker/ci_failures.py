"""The red checks for which a task was started: their names and the ends of their logs, as text from outside for the
model.

The red checks are read from the forge when the task begins, and are a part of the briefing.  The row of the task names
the commit on which the checks are red (`issue/ci_rounds.py`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.forge.base import ForgeReports
from agent.issue.ci_rounds import red_checks, red_commit, rounds_of
from agent.security.fence import fence
from agent.security.sanitise import output
from agent.security.security_filter import SecurityFilter
from agent.window.budgets import LEAST, divide

if TYPE_CHECKING:
    from agent.forge.checks import Check
    from agent.worker.briefing import BriefingBudget
    from agent.worker.task_run import TaskRun

SOURCE = "CI job "
MOST = 5
"""Maximum number of red checks of which the log is shown; the others are named."""


@dataclass(frozen=True, slots=True)
class CiFailures:
    """`red` are the red checks, and `logs` the ends of the logs of the first MOST of them. `over`: the reason why the
    task has nothing left to do (the pull request has changed or is not open, or no check is red any more); "" if the
    task has work."""

    red: tuple[Check, ...] = ()
    logs: tuple[str, ...] = ()
    over: str = ""


def read_failures(run: TaskRun) -> CiFailures:
    """The checks that are red now on the commit for which the task was started, or the reason why they do not matter
    any more (`over`); empty if the task was not started because of red checks.

    Raises ForgeError."""
    row = run.wiring.ledger.get(run.uuid)
    commit = red_commit(row.started_by) if row is not None else ""
    parent = run.wiring.ledger.get(row.parent_uuid) if row is not None and row.parent_uuid else None
    rounds = rounds_of(run.wiring.ledger, parent) if commit and parent is not None else None
    if rounds is None:
        return CiFailures()
    pull = run.forge.find_pull(run.key, rounds.branch)
    if pull is None or pull.state != "open" or pull.commit != commit:
        name = ForgeReports(run.forge).pull_name()
        return CiFailures(over=f"The {name} has changed since CI was red, so this was left to the others.")
    _, red = red_checks(run.forge, run.key, rounds)
    if not red:
        return CiFailures(over="CI is not red any more, so there was nothing to do.")
    return CiFailures(red, tuple(_log(run, check) for check in red[:MOST]))


def _log(run: TaskRun, check: Check) -> str:
    text = ""
    with suppress(ForgeError):
        text = ForgeReports(run.forge).check_log(run.key, check)
    return "\n\n".join(part for part in (check.said, text) if part.strip())


def fenced(run: TaskRun, found: CiFailures, budget: BriefingBudget) -> list[str]:
    """The red checks as fenced texts, their logs together in about `budget.comments` tokens."""
    logs = [_clean(run, text) for text in found.logs]
    parts = divide(budget.comments, [budget.count(text) for text in logs])
    shown = [budget.shorten(text, max(LEAST, part)) for text, part in zip(logs, parts, strict=True)]
    marker = run.context.fence
    texts = [
        fence(text.strip() or "(no log)", marker, source=f"{SOURCE}{check.name}")
        for check, text in zip(found.red, shown, strict=False)
    ]
    if more := found.red[MOST:]:
        texts.append(fence("\n".join(one.name for one in more), marker, source="names of more red CI jobs"))
    return texts


def _clean(run: TaskRun, text: str) -> str:
    """The text of a log for the model: without terminal controls and secrets; with `security.block`, a notice replaces
    a text that the security filter blocks."""
    cleaned = run.redact(output(text))
    if run.settings.security.block:
        verdict = SecurityFilter(block=True).detect_abuse(cleaned)
        if verdict.blocked:
            return f"(The log is withheld: it matches {', '.join(verdict.matched_rules)}.)"
    return cleaned
