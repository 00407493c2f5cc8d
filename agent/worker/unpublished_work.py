"""Stores and finds work of a task that is not published yet: the outcome, the host that has the work, and a sentence
for people about where the work is.

If the model has finished or asks a question, and only publishing is left, the outcome is stored in `effects.jsonl`, and
the row's `outcome` is `publishing`. The next attempt uses the work tree and the receipts of the earlier one, publishes
what is missing, and sends nothing to the model (docs/forges.md, "What users of such agents report", row 16).

If several hosts share a ledger, only the host with the work tree takes the row. If the host with the work has sent no
heartbeat for PUBLISHING_HOURS, another host begins the task again, as if its folder were lost. If the daemon gives a
task up because its workers died or needed too much memory, the daemon stores an outcome, so that one more attempt
publishes the work.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agent import clock, durable_files
from agent.context import EffectStore, receipt_in
from agent.context.task_row import TaskRow
from agent.errors import DiskError, GitError, LedgerError, LockHeld, WorkError
from agent.taskqueue import PUBLISHING
from agent.taskqueue.row_holder import of_another_host
from agent.values import Outcome
from agent.work.gitdir import read_state
from agent.worker.error_disposition import PUBLISHING_HOURS

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring
    from agent.worker.delivery import Delivery
    from agent.worker.task_run import TaskRun

MARK = PUBLISHING
"""Name of the receipt, and value of the row's `outcome`, while publication is pending."""


@dataclass(frozen=True, slots=True)
class PendingPublication:
    """The outcome of a run that is not published yet, and the time since which it waits."""

    outcome: Outcome
    since: datetime


def pending_publication(effects: EffectStore) -> PendingPublication | None:
    """The outcome of an earlier attempt that is not published yet; None if the model still has work to do."""
    kept = effects.receipt(MARK)
    if not kept:
        return None
    return PendingPublication(Outcome.from_dict(kept), clock.parse(kept["since"]))


def mark_asked(effects: EffectStore) -> None:
    """Record that no publication is pending any more, because the model's question was posted, or the work went back to
    the model."""
    if pending_publication(effects) is not None:
        effects.done(MARK, {})


def save_outcome(effects: EffectStore, outcome: Outcome) -> None:
    """Store the outcome on disk, which records that only publishing is left to do."""
    effects.done(MARK, {**outcome.to_dict(), "since": clock.stamp()})


def lies_elsewhere(settings: Settings, row: Row, now: datetime) -> bool:
    """Whether another host has the unpublished work of a queued row, and may still publish it.

    If the task's folder is on this host and has the outcome, the work is not elsewhere, whichever host wrote the
    outcome, because hosts may share a base_dir. A host that wrote the outcome and then lost the folder has lost the
    work, and does not look for it elsewhere.
    """
    if row.outcome != MARK or not of_another_host(row, settings) or row.heartbeat_at is None:
        return False
    if is_pending_in(settings.base_dir / "running" / row.uuid):
        return False
    return now - clock.parse(row.heartbeat_at) < timedelta(hours=PUBLISHING_HOURS)


def is_pending_in(folder: Path) -> bool:
    """Whether an outcome in a task's folder waits to be published; the call changes nothing in the folder."""
    return bool(receipt_in(folder, MARK))


def leave_to_publish(wiring: Wiring, row: Row, outcome: Outcome) -> bool:
    """Store `outcome` for a task after its worker died, so that one more attempt publishes the work without a request
    to the model.

    Returns False if there is no work on this host, if the worker that died was already publishing the work, or if the
    folder is locked or cannot be written. Raises LedgerError. `leave_to_publish` may be called only if no worker holds
    the row; the caller queues the row afterwards.
    """
    folder = wiring.settings.base_dir / "running" / row.uuid
    if not has_work(folder) or is_pending_in(folder):
        return False
    try:
        lock = durable_files.lock(folder / "lock")
    except (LockHeld, DiskError):
        return False
    effects = EffectStore(folder)
    held = TaskRow(wiring.db, row.uuid)
    held.attempt = row.attempt
    try:
        save_outcome(effects, outcome)
        try:
            held.set(outcome=MARK, error_code=outcome.code, error_message=outcome.summary)
        except LedgerError:
            # without this empty receipt with the name MARK, a second call would conclude that the dead attempt was
            # already publishing
            effects.done(MARK, {})
            raise
    except DiskError:
        return False
    finally:
        effects.file.close()
        durable_files.unlock(lock)
    return True


def has_work(folder: Path) -> bool:
    """Whether the model has called any tool in the task; the call changes nothing in the task's folder."""
    try:
        tools = folder / "tools.jsonl"
        return durable_files.is_real_dir(folder) and tools.is_file() and tools.stat().st_size > 0
    except OSError:
        return False


def keep(run: TaskRun, delivery: Delivery | None) -> str:
    """Commit the work of a task that ends without publishing it; returns a sentence for a person that names the work's
    place, "" if there is no work. `delivery` is None if the task ended before its work tree was open."""
    if not run.has_worked():
        return ""
    kept = True
    if delivery is not None:
        with suppress(GitError, WorkError, DiskError):  # without a commit, the work is only in the work tree
            kept = delivery.commit()
    return describe_kept_work(run.context.context_dir) if kept else ""


def describe_kept_work(folder: Path) -> str:
    """A sentence for the final comment that names the place of the work in a task's folder; "" if there is none."""
    state = read_state(folder / "git")
    if state is None:
        return ""
    there = f"completed/{folder.name}"
    return (
        f"What was done is kept: branch {state.branch} in {there}/git, and what was not committed in "
        f"{there}/workspace. To see it, call `git --git-dir={there}/git log --patch {state.branch}` in the folder that "
        f"context_storage.base_dir names."
    )
