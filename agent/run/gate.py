"""What a run that is over counts as, decided in one place for the row, the label, the comments and the pull request.

Only `finish` ends a task well, and only a change that is pushed, without a finding, and checked is ready for a person.
Called by `run/delivery.py` before it marks a pull request as ready, and by `run/handler.py` at the end.
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
