"""Releases the row of a task so that it is tried again later, after an error that may pass (an unreachable forge, model
or remote, for example).

If the model still has work to do, the next attempt continues the conversation. If the model has finished or asks a
question, and only publishing is left, the next attempt publishes the result and sends nothing to the model
(`unpublished_work.py`). If the folder of a task is lost, the task begins again from its issue and reports that. When
the daemon starts, it lets waiting rows be tried at once, perhaps with a new token (`try_now`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import MakimonoError, ModelStalled, ModelUnreachable
from agent.issue.status import announce
from agent.observe.error_tolerant_loop import ItemLoop
from agent.taskqueue import is_decided
from agent.worker.error_disposition import ATTEMPTS, TaskState
from agent.worker.replicator import END_SECONDS
from agent.worker.unpublished_work import MARK, pending_publication, save_outcome

if TYPE_CHECKING:
    from agent.context import TaskContextManager
    from agent.taskqueue import Ledger
    from agent.values import Outcome, Status
    from agent.worker.error_disposition import Disposition
    from agent.worker.task_run import TaskRun

TRIES = "tries"
"""Name of the receipt that counts the tries since the newest answer of the model; an attempt that ended by a drain or a
pause is no try."""

SILENT = (ModelUnreachable.code, ModelStalled.code)
"""Error codes for a model's server that did not answer, and that may answer again at any time."""

ANEW = "anew"
"""Value of the row's `outcome` after a task began again because its work was lost."""


def state_of(context: TaskContextManager, outcome: Outcome | None) -> TaskState:
    """The state of the task for the decision about an error (`dispose`); `outcome` is the result of the model's work,
    None if that work had not ended."""
    effects = context.get_effect_store()
    kept = pending_publication(effects) if outcome is not None else None
    return TaskState(
        outcome=outcome,
        over=is_outcome_decided(context),
        begun=context.get_message_store().last_seq > 0,
        tries=_tries(context),
        waits=None if kept is None else clock.now() - kept.since,
        # an attempt in a new folder does not know the tries of earlier attempts, so `tries` is too low
        lost=context.attempt >= ATTEMPTS and not context.resumed,
    )


def _tries(context: TaskContextManager) -> int:
    """The number of consecutive releases of the row by `requeue_task` without an answer of the model in between."""
    known = context.get_effect_store().receipt(TRIES)
    if not known or known["answers"] != context.get_message_store().totals().turns:
        return 0
    return int(known["tries"])


def is_outcome_decided(context: TaskContextManager) -> bool:
    """Whether the column `outcome` of the row shows that the model's work is over: it has an end, or `publishing`.

    If the model's work is over, another host must not begin the task again from its issue.
    """
    outcome = context.column("outcome")
    return outcome == MARK or is_decided(outcome)


def restart(context: TaskContextManager) -> tuple[str, ...]:
    """Sentences for people that the model must repeat the work of an earlier attempt, because that work is not on this
    host; if the lost work was waiting for publication, the row gets the outcome ANEW. The result is empty if the row's
    outcome is neither MARK nor ANEW, and the conversation is on this host or no turn was made anywhere."""
    if context.column("outcome") not in (MARK, ANEW):
        turns = context.elsewhere.turns
        if context.get_message_store().last_seq > 0 or not turns:
            return ()
        said = (
            f"{turns} turn{' was' if turns == 1 else 's were'} made on another host, or in a folder that is lost, and "
            f"the conversation is not here: the work began again from the issue. Counters and limits go on"
        )
        return (said,)
    context.set_columns(outcome=ANEW)
    said = (
        "an earlier attempt had done this and could not publish it; its folder is not here, so it was done anew. What "
        "that attempt committed still lies on the host where it ran"
    )
    return (said,)


def requeue_task(run: TaskRun, todo: Disposition, outcome: Outcome | None) -> Status:
    """Release the row of the task, with the reason, so that it is tried again later. If the row has an end already,
    that end stays.

    Each further try waits longer than the one before, up to a limit (`error_disposition.py`). Returns the status of the
    row; if a person made a request meanwhile, the request is executed instead (`Ledger.release`)."""
    context, effects, ledger = run.context, run.effects, run.wiring.ledger
    tries, answers = _tries(context), context.get_message_store().totals().turns
    effects.done(TRIES, {"tries": tries + 1, "answers": answers})
    until = clock.now() + timedelta(seconds=todo.when)
    why = run.redact(todo.why)
    said = f"{why if why.endswith(('.', '!', '?')) else f'{why}.'} It is tried again after {until:%Y-%m-%d %H:%M} UTC"
    if outcome is not None and pending_publication(effects) is None:
        save_outcome(effects, outcome)
    if ledger.requested(run.uuid) is None:
        if outcome is not None:
            _show(run, MARK, f"{said}, without asking the model again.")
        elif not todo.silent:
            _show(run, "drained", f"{said}.")
    run.replica.save(END_SECONDS)
    run.replica.close()
    context.set_columns(outcome=MARK if outcome else None, error_code=todo.code, error_message=why)
    context.heartbeat()
    status = ledger.release(run.uuid, context.attempt, until)
    announce(run.events, run.uuid, status, context.attempt, todo.why)
    return status


def try_now(ledger: Ledger) -> None:
    """Let every queued row that waits for publication, for a notice on the issue, or for the server of its model be
    tried now."""
    items = ItemLoop.logging("try_now")
    for row in ledger.list("queued"):
        with items.handling(row.uuid):
            if row.outcome == MARK or row.is_decided or row.error_code in SILENT:
                ledger.offer(row.uuid)
    items.finish()


def _show(run: TaskRun, state: str, note: str) -> None:
    """Edit the progress comment so that it shows `state` and `note`; if the edit fails, only an event is emitted."""
    try:
        run.progress.edit(state, note=note)
    except MakimonoError as second:
        run.events.emit("effect_failed", effect="progress", error=str(second))
