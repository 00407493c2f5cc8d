"""Carries out what `error_disposition.py` decides about the error that ended an attempt.

If the task has to fail and the model has done any work, `worker/handler.py` first delivers the work as a draft.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import MISTAKES, DiskError, EndedBefore, Fenced, LedgerError, MakimonoError, is_unforeseen
from agent.issue.claims import ENDS, LABELS
from agent.issue.status import for_the_disk
from agent.observe import log
from agent.values import End, Outcome, Status
from agent.wiring.disk_space import OUTCOME
from agent.worker import program_upgrade, requeue, unpublished_work
from agent.worker.end_of_attempt import close_row, pause_row
from agent.worker.error_disposition import Disposition, dispose
from agent.worker.final_state import FinalState
from agent.worker.notify import compose, notify_finished
from agent.worker.outcome import StatusDecision

if TYPE_CHECKING:
    from agent.worker.task_run import TaskRun

PUBLISHED = (End.FINISHED, End.ANSWERED, End.ASKED)
"""Ends of the model's work after which only publishing can have failed."""


def disposition_of(run: TaskRun, error: Exception, outcome: Outcome | None) -> Disposition:
    """Decide what the error does to the task, by the table of `error_disposition.py`; log an error by which the task
    fails, and one of an unexpected kind.

    `outcome` is the result of the model's work, None if that work had not ended.
    """
    state = requeue.state_of(run.context, outcome)
    if isinstance(error, MISTAKES):
        state = replace(state, replaced=program_upgrade.replaced())
    todo = dispose(error, state)
    if todo.what == "fail":
        said = {"message": "Task processing failed", "code": todo.code, "error": todo.why}
        log.get("handler").error("task_failed", exc_info=error, **said)
    elif todo.what == "requeue" and (is_unforeseen(error) or not isinstance(error, MakimonoError)):
        said = {"message": "Task is tried again", "code": todo.code, "error": todo.why}
        log.get("handler").warning("task_put_back", exc_info=error, **said)
    return todo


def carry_out(run: TaskRun, todo: Disposition, error: Exception, outcome: Outcome | None) -> Outcome | None:
    """Close, pause or requeue the task, as the disposition `todo` demands.

    `carry_out` returns the outcome if the task is closed because a person or the forge demands it, and None if the
    caller still has to raise the error; it raises the error itself if nothing may be written or posted.
    """
    match todo.what:
        case "leave":
            raise error
        case "stop":
            return _stop(run, todo, outcome)
        case "believe":
            return _believe(run, todo, error)
        case "pause":
            _pause_for_disk(run, todo.why)
        case "requeue":
            requeue.requeue_task(run, todo, outcome)
        case "fail":
            _fail(run, todo, outcome)
    return None


def _stop(run: TaskRun, todo: Disposition, outcome: Outcome | None) -> Outcome:
    """Close the task as stopped; without a comment if another daemon works on the issue, because that daemon comments
    there.

    If the stop cannot be shown on the issue now, the task ends nevertheless, and the daemon posts the comment later.
    """
    outcome = outcome or Outcome(End.STOPPED, code=todo.code, summary=todo.why)
    ending = FinalState(Status.STOPPED, todo.code, outcome.summary, outcome)
    if not todo.silent:
        run.emit("effect_failed", effect="final", error=todo.why)
        ending = FinalState.load(run.context.context_dir) or ending
    close_row(run, ending, untold=run.publishing and not todo.silent)
    return outcome


def _believe(run: TaskRun, todo: Disposition, error: Exception) -> Outcome:
    """Close the task with the end that the issue already shows, and post no comment."""
    assert isinstance(error, EndedBefore), "only this one is believed"
    status = Status(error.status)
    outcome = Outcome(ENDS[status], code="" if status is Status.COMPLETED else todo.code, summary=todo.why)
    close_row(run, FinalState(status, outcome.code, todo.why, outcome))
    return outcome


def _pause_for_disk(run: TaskRun, why: str) -> None:
    """Pause the task until the disk has space.

    The daemon finds in the row that it should resume the task as soon as there is space (`daemon/disk_monitor.py`).  If
    the disk with tasks.db is full too, the daemon releases the row later.
    """

    def tell() -> None:
        run.move_label("paused")
        run.progress.edit("paused", note=for_the_disk(why))

    try:
        pause_row(run, OUTCOME, message=why, tell=tell)
    except Fenced:
        raise
    except (DiskError, LedgerError):
        with suppress(MakimonoError):
            tell()
        raise


def _fail(run: TaskRun, todo: Disposition, outcome: Outcome | None) -> None:
    """Post the failure on the issue and close the task as failed, or with the end that is stored already.

    The message about a failure names the place of work that was not published. If the message about the failure cannot
    be posted, the daemon posts it later.
    """
    code, message = todo.code, todo.why
    if outcome is not None and outcome.end not in PUBLISHED:
        code, message = outcome.code or str(outcome.end), f"{outcome.summary} It could not be published: {message}"
    if outcome is not None or run.has_worked():
        message = f"{message} {unpublished_work.describe_kept_work(run.context.context_dir)}".strip()
    kept = FinalState.load(run.context.context_dir) or FinalState.from_row(run.context.row)
    failed = Outcome(End.FAILED, code=code, summary=message)
    ending = kept or FinalState(Status.FAILED, code, message, failed)
    untold = run.publishing
    # if the stored end has no texts, it was decided on another host, and the daemon posts it
    if kept is None or kept.final:
        try:
            if run.publishing and kept is None:
                ending = compose(run, failed, None, StatusDecision(Status.FAILED, code, message))
                ending.save(run.context)
            notify_finished(run, ending)
            run.move_label(LABELS[ending.status])
            untold = False
        except MakimonoError as second:
            run.emit("effect_failed", effect="final", error=str(second))
    close_row(run, ending, untold=untold)
