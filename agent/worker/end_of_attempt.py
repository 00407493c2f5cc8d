"""The last step of an attempt: close the task, pause it, or release its row, and show the new state on the issue.

The end of a task is posted on the issue before the task is closed, and the row in the ledger changes last. If the end
cannot be posted now, the next attempt or the daemon posts it later (`daemon/finalize.py`). A pause of a task is first
written into the row and then shown on the issue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.errors import Fenced, MakimonoError
from agent.issue.claims import LABELS
from agent.issue.status import AGAIN, announce
from agent.values import Outcome, Status
from agent.worker.notify import notify_finished
from agent.worker.work_tree_removal import remove_work_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.worker.final_state import FinalState
    from agent.worker.task_run import TaskRun


def notify_and_close(run: TaskRun, ending: FinalState) -> Outcome:
    """Post a stored end, move the label, remove the work tree according to `workspace.keep`, and close the task.

    If `notify_and_close` raises ForgeError, DiskError or Fenced, the end remains stored, and the next attempt calls
    `notify_and_close` again.
    """
    notify_finished(run, ending)
    run.move_label(LABELS[ending.status])
    remove_work_tree(run, ending.status)
    close_row(run, ending)
    return ending.outcome


def close_row(run: TaskRun, ending: FinalState, *, untold: bool = False) -> None:
    """Write the end of the task into the row and move the task's folder. `untold` is True if the end was not posted on
    the issue, so that the daemon posts it."""
    run.ended = ending.status
    run.replica.close()
    if ending.status is Status.COMPLETED:
        run.context.complete(ending.outcome, unnotified=untold)
    elif ending.status is Status.STOPPED:
        run.context.stopped(ending.message, None if ending.code == "stopped" else ending.code, unnotified=untold)
    else:
        run.context.fail(ending.message, ending.code, unnotified=untold)
    run.emit("task_ended", status=str(ending.status), end=str(ending.outcome.end), code=ending.code)


def release_row(run: TaskRun) -> None:
    """Release the row of a drained task, so that it is queued again."""
    run.heartbeat()
    try:
        run.progress.edit("drained")
    except MakimonoError as error:  # the row is released even if the progress comment cannot be edited
        run.emit("effect_failed", effect="progress", error=str(error))
    status = run.wiring.ledger.release(run.uuid, run.context.attempt)
    announce(run.events, run.uuid, status, run.context.attempt, "drained")


def pause_row(run: TaskRun, reason: str, *, message: str = "", tell: Callable[[], None] | None = None) -> None:
    """Pause the row. With the function `tell`, write into the row when the notice on the issue is due (if the run
    publishes), then call `tell`, which posts it.

    If the process dies before `tell` is done, or the forge cannot be reached, the poller posts the notice when it is
    due (`issue/status.py`).  If a stop was requested meanwhile, the task ends instead of pausing, and the poller posts
    that end."""
    until = clock.now() + AGAIN if tell is not None and run.publishing else None
    status = run.context.paused(reason, message, notify_at=until)
    run.resting = True
    if status is Status.STOPPED:
        announce(run.events, run.uuid, status, run.context.attempt, "")
        return
    run.emit("task_paused", why=message or reason)
    try:
        if tell is not None:
            tell()
        if until is not None:
            run.wiring.ledger.mark_notified(run.uuid, until)
    except Fenced:
        pass  # somebody has resumed or ended the task meanwhile, so the issue does not get the state of the pause
    except MakimonoError as error:
        run.emit("effect_failed", effect="progress", error=str(error))
