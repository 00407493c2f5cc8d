"""A task whose forge, model, or the other side of its repository, is away: it is given back to the queue.

While the model works that costs a wait. When the model is done, or asks, and only publishing is left, its outcome is
kept in `effects.jsonl` and the row's `outcome` says `publishing`: the next attempt takes the work tree and the
receipts as they are, publishes what is missing, and asks the model nothing (field facts: row 16). Where hosts share a
ledger, the one that has the work tree takes the row, and the others leave it, until that host has not been heard of
for as long as publishing is tried; then the work is begun anew, as that of any lost folder, and that is said. Called
by `run/handler.py`, and by the daemon, which lets such rows try at once when it starts: perhaps with a new token.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agent import clock, disk
from agent.context import EffectStore, receipt_in
from agent.context.row import TaskRow
from agent.errors import DiskError, LockHeld, MakimonoError, ModelStalled, ModelUnreachable
from agent.observe.items import Items
from agent.run.dispose import ATTEMPTS, PUBLISHING_HOURS, State
from agent.run.replicating import END_SECONDS
from agent.taskqueue import is_decided
from agent.taskqueue.identity import of_another_host
from agent.values import Outcome
from agent.work.gitdir import read_state

if TYPE_CHECKING:
    from pathlib import Path

    from agent.context import TaskContextManager
    from agent.run.dispose import Disposition
    from agent.run.task_run import TaskRun
    from agent.run.wiring import Wiring
    from agent.taskqueue import Ledger, Row
    from agent.values import Status

TRIES = "tries"
"""The effect that counts them: attempts that a drain, an answer or a pause ended are none."""

SILENT = (ModelUnreachable.code, ModelStalled.code)
"""Of a model's server that said nothing, so that it may answer at any time."""

MARK = "publishing"
ANEW = "anew"
"""What the row says then, and once the work of such a row was lost and is done again."""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """What the model came to, and since when it waits to be published."""

    outcome: Outcome
    since: datetime


def unpublished(effects: EffectStore) -> Unpublished | None:
    """What an earlier attempt left to be published, None when the model has still to work."""
    kept = effects.receipt(MARK)
    if not kept:
        return None
    return Unpublished(Outcome.of(kept), clock.parse(kept["since"]))


def is_asked(effects: EffectStore) -> None:
    """A question that had waited is posted: after the answer the model works on."""
    if unpublished(effects) is not None:
        effects.done(MARK, {})


def state_of(context: TaskContextManager, outcome: Outcome | None) -> State:
    """What `dispose` needs to know of the task.  `outcome` is what its work came to, None while the model works."""
    effects = context.get_effect_store()
    kept = unpublished(effects) if outcome is not None else None
    return State(
        outcome=outcome,
        over=is_over(context),
        begun=context.get_message_store().last_seq > 0,
        tries=_tries(context),
        waits=None if kept is None else clock.now() - kept.since,
        lost=context.attempt >= ATTEMPTS and not context.resumed,  # a folder that is always new counts nothing
    )


def _tries(context: TaskContextManager) -> int:
    """How often in a row the task was given back, with no answer of the model between."""
    known = context.get_effect_store().receipt(TRIES)
    if not known or known["answers"] != context.get_message_store().totals().turns:
        return 0
    return int(known["tries"])


def is_over(context: TaskContextManager) -> bool:
    """Whether the row says that the model is done: with the end that is decided, or that its work is to be published.
    No other host may take that for a task to be begun."""
    outcome = context.column("outcome")
    return outcome == MARK or is_decided(outcome)


def lies_elsewhere(base_dir: Path, row: Row, now: datetime) -> bool:
    """Whether what a queued row wants published lies on another host, which may still come to it.

    A folder counts when it holds the outcome, whosever it was (hosts may share a base_dir); one that is lost on its own
    host is lost.
    """
    if row.outcome != MARK or not of_another_host(row) or row.heartbeat_at is None:
        return False
    if waits_in(base_dir / "running" / row.uuid):
        return False
    return now - clock.parse(row.heartbeat_at) < timedelta(hours=PUBLISHING_HOURS)


def waits_in(folder: Path) -> bool:
    """Whether a task's folder, which is only read, holds an outcome that waits to be published."""
    return bool(receipt_in(folder, MARK))


def begin_anew(context: TaskContextManager) -> tuple[str, ...]:
    """What people are told when the model works on what an earlier attempt had done, and the row says that it does.
    Nothing when there was no such attempt."""
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


def give_back(
    context: TaskContextManager, ledger: Ledger, todo: Disposition, outcome: Outcome | None, run: TaskRun | None
) -> Status:
    """Back to the queue, with the reason in the row, unless that holds a decided end, which stays; the next try is
    later each time.  The row's status now: what a person asked meanwhile is done instead (`Ledger.release`)."""
    effects = context.get_effect_store()
    tries, answers = _tries(context), context.get_message_store().totals().turns
    effects.done(TRIES, {"tries": tries + 1, "answers": answers})
    until = clock.now() + timedelta(seconds=todo.when)
    why = run.redact(todo.why) if run is not None else todo.why
    said = f"{why if why.endswith(('.', '!', '?')) else f'{why}.'} It is tried again after {until:%Y-%m-%d %H:%M} UTC"
    if outcome is not None and unpublished(effects) is None:
        keep(effects, outcome)
    if ledger.requested(context.uuid) is None:
        if outcome is not None:
            _say(run, MARK, f"{said}, without asking the model again.")
        elif not todo.silent:
            _say(run, "drained", f"{said}.")
    if run is not None:
        run.keep_copy(END_SECONDS)
        run.end_copy()
    context.set_columns(outcome=MARK if outcome else None, error_code=todo.code, error_message=why)
    context.beat()
    return ledger.release(context.uuid, context.attempt, until)


def keep(effects: EffectStore, outcome: Outcome) -> None:
    """Make durable that the work came to this, and that only publishing is left."""
    effects.done(MARK, {**outcome.to_dict(), "since": clock.stamp()})


def leave_to_publish(wiring: Wiring, row: Row, outcome: Outcome) -> bool:
    """Leave what a task had done whose worker is gone for good to one more attempt: it publishes that as `outcome`, and
    asks no model.  False when there is nothing here, or that attempt is the one that died.  The row's holder is dead;
    it becomes queued by the caller."""
    folder = wiring.settings.base_dir / "running" / row.uuid
    if not has_work(folder) or waits_in(folder):
        return False
    try:
        lock = disk.lock(folder / "lock")
    except (LockHeld, DiskError):
        return False
    effects = EffectStore(folder)
    try:
        keep(effects, outcome)
    except DiskError:
        return False
    finally:
        effects.file.close()
        disk.unlock(lock)
    held = TaskRow(wiring.db, row.uuid)
    held.attempt = row.attempt
    held.set(outcome=MARK, error_code=outcome.code, error_message=outcome.summary)
    return True


def has_work(folder: Path) -> bool:
    """Whether the model has done anything in a task's folder, which is only read."""
    try:
        tools = folder / "tools.jsonl"
        return disk.is_real_dir(folder) and tools.is_file() and tools.stat().st_size > 0
    except OSError:
        return False


def kept_where(folder: Path) -> str:
    """Where the work of a task's folder is, for the last word about it; "" when there is none."""
    state = read_state(folder / "git")
    if state is None:
        return ""
    there = folder.parent.parent / "completed" / folder.name
    return (
        f"What was done is kept: branch {state.branch} in {there / 'git'}, and what was not committed in "
        f"{there / 'workspace'}."
    )


def try_now(ledger: Ledger) -> None:
    """Let everything that waits to be published, or told, or for its model's server, try at once."""
    items = Items.logged("try_now")
    for row in ledger.list("queued"):
        with items.one(row.uuid):
            if row.outcome == MARK or row.is_decided or row.error_code in SILENT:
                ledger.offer(row.uuid)
    items.end()


def _say(run: TaskRun | None, state: str, note: str) -> None:
    """Tell it on the issue, if that can be done."""
    if run is None:
        return
    try:
        run.progress.edit(state, note=note)
    except MakimonoError as second:
        run.events.emit("effect_failed", effect="progress", error=str(second))
