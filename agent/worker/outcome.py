"""Maps the end of a run to the task's status, which the row, the label, the comments and the pull request all use.

Work with a change completes a task only if the model called `finish`; a text alone completes a task that changed
nothing. A pull request becomes ready for review only if its change is pushed, has no findings, and does not break the
verify command:

| end | result | status, code | pull request |
|---|---|---|---|
| the model was stopped by a person | any result | stopped | not ready |
| the model ended by a limit, a loop or an error | any result | failed, with the code of that end | not ready |
| the model stopped with a text | there is a change | failed, not_finished | not ready |
| the model stopped with a text, or finished | there is no change | completed | nothing to review |
| the model finished | findings, a refusal, a conflict | failed, with the code of the problem | not ready |
| the model finished | the check passed, or there is none | completed | ready |
| the model finished | the check failed, and in the same way on the base | completed, with a note | ready |
| the model finished | the check passed, but the reviewers did not approve | completed, `review_code` | not ready |
| the model finished | the check failed in another way, or could not run | failed, verify_failed | not ready |
| the model stopped with a text, or finished | every command was refused | failed, no_sandbox | not ready |

`decide` is called before a pull request is marked as ready, at the end of the task, and before findings are sent back
to the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.values import End, Status

if TYPE_CHECKING:
    from agent.values import Outcome
    from agent.worker.delivery_report import Report

NOT_FINISHED = (
    "the model stopped with a text and did not call `finish`, so the change counts as a draft of work in progress"
)

MENDABLE = ("push_rejected", "push_too_large", "lfs_refused")
"""Codes of refusals of a branch because of its content, which the model can correct; other refusals concern
permissions, names and other people's commits."""


@dataclass(frozen=True, slots=True)
class StatusDecision:
    """`code` and `message` give the reason if the run is not completed; with `ready` the pull request is marked as
    ready for review."""

    status: Status
    code: str = ""
    message: str = ""
    ready: bool = False


def decide(outcome: Outcome, report: Report | None) -> StatusDecision:
    """Decide the status of the task from the way in which the model ended and from the result of the delivery. `report`
    is None if nothing was delivered."""
    if outcome.end is End.STOPPED:
        return StatusDecision(Status.STOPPED, "stopped", outcome.summary)
    changed = report is not None and report.changed
    if outcome.end is End.ANSWERED and changed:
        return StatusDecision(Status.FAILED, "not_finished", NOT_FINISHED)
    if outcome.end not in (End.FINISHED, End.ANSWERED):
        return StatusDecision(Status.FAILED, outcome.code or str(outcome.end), outcome.summary)
    if report is None:
        return StatusDecision(Status.COMPLETED)
    code, problem = report.problem
    if code:
        return StatusDecision(Status.FAILED, code, problem)
    return StatusDecision(Status.COMPLETED, ready=changed and report.pull is not None and not review_code(report))


def may_be_ready(outcome: Outcome, report: Report) -> bool:
    """Whether the result of the delivery would be ready for review if it were in a pull request now."""
    return report.changed and not review_code(report) and decide(outcome, report).status is Status.COMPLETED


def review_code(report: Report | None) -> str:
    """The value of the row's `outcome` for work that the reviewers did not approve: denied, conditional, failed_safe;
    "" if they approved it or were not asked."""
    word = str(report.review["decision"]).lower() if report is not None and report.review is not None else ""
    return "" if word == "approved" else word


def with_review(outcome: Outcome, report: Report | None) -> Outcome:
    """`outcome`; if the task completes with work that the reviewers did not approve, its code is replaced by
    `review_code`."""
    word = review_code(report)
    return replace(outcome, code=word) if word and decide(outcome, report).status is Status.COMPLETED else outcome


def is_checked(outcome: Outcome) -> bool:
    """Whether to run the verify command on the change: only if the model called `finish`."""
    return outcome.end is End.FINISHED


def is_mendable(outcome: Outcome, report: Report) -> bool:
    """Whether to send finished work back to the model, because the model can correct the problem, or should look at the
    work once more."""
    if outcome.end is not End.FINISHED:
        return False
    if report.left_behind and decide(outcome, report).status is Status.COMPLETED:
        return True
    if not report.changed:
        return False
    if report.findings or (report.rejected and report.code in MENDABLE):
        return True
    if report.conflicts and not report.rejected:
        return True
    if report.rejected or report.verdict is None or report.verdict.ok:
        return False
    if report.verdict.exit_code is None:  # the check could not run (sandbox, set-up), which the model cannot correct
        return False
    before = report.before
    return report.verdict.is_red or before is None or before.ok or before.is_red
