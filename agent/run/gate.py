"""What a run that is over counts as, decided in one place for the row, the label, the comments and the pull request.

Only `finish` ends a task well, and only a change that is pushed, without a finding, and checked is ready for a person:

| the model | what came of it | status, code | ready |
|---|---|---|---|
| was stopped by a person | | stopped | no |
| ended in another way (limit, circle, error) | | failed, its code | no |
| stopped with a text | a change | failed, not_finished | no |
| stopped with a text, or finished | no change | completed | |
| finished | findings, refused, conflict | failed, its code | no |
| finished | the check is green, or there is none | completed | yes |
| finished | red, and on the base in the same way | completed; the pull request says so | yes |
| finished | red in another way, too long, not to be run | failed, verify_failed | no |
| stopped with a text, or finished | commands were asked for, and each was refused | failed, no_sandbox | no |

Called by `run/delivery.py` before it marks a pull request as ready, by `run/handler.py` at the end, and by
`run/rework.py`, which gives back to the model what it may mend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.values import End, Status

if TYPE_CHECKING:
    from agent.run.report import Report
    from agent.values import Outcome

NOT_FINISHED = (
    "the model stopped with a text and did not call `finish`, so the change counts as a draft of work in progress"
)

MENDABLE = ("push_rejected", "push_too_large", "lfs_refused")
"""Refusals of a branch by rules about what is in it; the others are about rights, names and other people's commits."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`code` and `message` say what keeps the run from being completed; with `ready` the pull request is shown as ready
    for review."""

    status: Status
    code: str = ""
    message: str = ""
    ready: bool = False


def decide(outcome: Outcome, report: Report | None) -> Decision:
    """What the model says, and whether what came of it holds.  `report` None: nothing was delivered."""
    if outcome.end is End.STOPPED:
        return Decision(Status.STOPPED, "stopped", outcome.summary)
    changed = report is not None and report.changed
    if outcome.end is End.ANSWERED and changed:
        return Decision(Status.FAILED, "not_finished", NOT_FINISHED)
    if outcome.end not in (End.FINISHED, End.ANSWERED):
        return Decision(Status.FAILED, outcome.code or str(outcome.end), outcome.summary)
    if report is None:
        return Decision(Status.COMPLETED)
    code, problem = report.problem
    if code:
        return Decision(Status.FAILED, code, problem)
    return Decision(Status.COMPLETED, ready=changed and report.pull is not None)


def is_checked(outcome: Outcome) -> bool:
    """Whether the change of this outcome is worth the check: the model says that it is done."""
    return outcome.end is End.FINISHED


def is_mendable(outcome: Outcome, report: Report) -> bool:
    """Whether the model may mend what keeps its finished work from being ready, or should look at it once more."""
    if outcome.end is not End.FINISHED:
        return False
    if report.left_behind and decide(outcome, report).status is Status.COMPLETED:
        return True
    if not report.changed:
        return False
    if report.findings or (report.rejected and report.code in MENDABLE):
        return True
    if report.rejected or report.conflicts or report.verdict is None or report.verdict.ok:
        return False
    if report.verdict.exit_code is None:  # no sandbox, or no set-up
        return False
    before = report.before
    return report.verdict.is_red or before is None or before.ok or before.is_red
