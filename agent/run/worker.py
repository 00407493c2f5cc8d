"""One process per task: lock, claim, handle, end.

The supervisor forks it from a server that has everything preloaded (`run/preload.py`).  It is a session of its own,
titled `makimono: {uuid}`, and lives on when the daemon dies.  Order (design: section 2): the folder is made, its lock
is taken and held for life, *then* the row is claimed; a failed claim exits silently.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock, disk, filetree, proc
from agent.context import manager
from agent.context.row import TaskRow
from agent.errors import ClaimLost, Fenced, LockHeld, MakimonoError, SurroundingsError
from agent.forge import TaskFactory
from agent.observe import log
from agent.observe.events import Events, to_log
from agent.run import groups
from agent.run.dispose import code_of, is_final
from agent.run.folders import make_folder
from agent.run.handler import TaskHandler
from agent.run.takeover import take_over
from agent.run.watchdog import traceable
from agent.run.wiring import Wiring
from agent.security.redact import Redactor
from agent.values import End, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from agent.config import Settings
    from agent.forge import Task
    from agent.taskqueue import Claim

LEASE_SECONDS = manager.LEASE_SECONDS
AGAIN_SECONDS = 60.0
CLAIMED = "claimed"
"""What a worker reports once its row is its own; anything else that it reports is why the row is not."""
EXIT_DRAINED = 75
"""Exit code of a worker that gave its row back (sysexits: temporary failure, try again)."""
EXIT_WAITS = SurroundingsError.exit_code
"""Exit code of a worker whose task is back in the queue since something outside was away, whatever that was."""


def process_task(
    settings: Settings,
    uuid: str,
    report: Connection | None = None,
    *,
    join: Callable[[Claim], None] = lambda _claim: None,
) -> int:
    """Work on the task `uuid` until it ends; returns the exit code of the process.

    `report` hears CLAIMED once the row is ours (a broker's message may be acknowledged then), or why it is not.
    `join`: what a process that has no other purpose does then.
    """
    wiring = Wiring(settings, events=Events([to_log]))
    folder = make_folder(settings, uuid)
    try:
        lock = disk.lock(folder / "lock")
    except LockHeld as error:
        _tell(report, str(error))
        return 0
    claim: Claim | None = None
    try:
        claim = wiring.ledger.claim(uuid, wiring.owner, LEASE_SECONDS)
        # What a dead attempt left running.  Not before the claim: a message alone, about a task that a neighbour on
        # this machine works on from another base_dir, ends nothing.
        groups.end_tree(settings.base_dir, uuid)
        join(claim)
        _tell(report, CLAIMED)
        log.setup(folder / "worker.log", uuid=uuid, redact=Redactor(settings.secrets()), stderr=False)
        carried = {**claim.key.to_dict(), "uuid": uuid, "user": claim.user, "title": claim.title}
        try:
            take_over(wiring, claim, folder)
            task = TaskFactory.from_dict(carried, wiring.forges_for(claim.key))
            with traceable(folder / "worker.log"):
                return work(TaskHandler(wiring, attempt=claim.attempt), task)
        except Exception as error:
            give_up(wiring, claim, error)
            if isinstance(error, Fenced):
                correct(wiring, uuid)
            if not isinstance(error, Fenced) and is_queued(wiring, uuid):
                return EXIT_WAITS
            raise
    except ClaimLost as error:
        _tell(report, str(error))
        return 0
    finally:
        if claim is not None:
            groups.end_tree(settings.base_dir, uuid)
        wiring.close()
        # Where the task's files lie elsewhere and are gone.  What it had written here before `enabled` was false stays.
        if not settings.context_storage.enabled and not (folder / "messages.jsonl").exists():
            with suppress(OSError):
                filetree.remove(folder)
        disk.unlock(lock)


def give_up(wiring: Wiring, claim: Claim, error: Exception) -> None:
    """Let go of a row that `error` left running: before the handler had opened the task, or because it could not write.

    What is final (`dispose.FINAL`) ends the task, and the daemon tells the person; everything else is tried again in a
    while.
    """
    with suppress(MakimonoError):  # what cannot be written now is found by the daemon's sweep
        row = wiring.ledger.get(claim.uuid)
        if isinstance(error, Fenced) or row is None or (row.status, row.attempt) != (Status.RUNNING, claim.attempt):
            return
        code, why = code_of(error), str(error) or type(error).__name__
        if is_final(error):
            wiring.ledger.end(claim.uuid, claim.attempt, Status.FAILED, error_message=why, error_code=code)
            return
        held = TaskRow(wiring.db, claim.uuid)
        held.attempt = claim.attempt
        held.set(error_code=code, error_message=why)
        wiring.ledger.release(claim.uuid, claim.attempt, clock.now() + timedelta(seconds=AGAIN_SECONDS))


def correct(wiring: Wiring, uuid: str) -> None:
    """This attempt found that it does not hold the row any more.  What it was showing at that moment, on a host that
    was frozen between the look at the fence and the write, say, may stand over what the newer one had shown: let that
    be shown again."""
    with suppress(MakimonoError):
        wiring.ledger.tell_again(uuid)


def is_queued(wiring: Wiring, uuid: str) -> bool:
    """Whether the task waits in the queue for its next try."""
    with suppress(MakimonoError):
        row = wiring.ledger.get(uuid)
        return row is not None and row.status is Status.QUEUED
    return False


def work(handler: TaskHandler, task: Task) -> int:
    """Handle the task; SIGTERM drains it, SIGINT is the daemon's business."""
    signal.signal(signal.SIGTERM, handler.drain)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outcome = handler.handle(task)
    if outcome.end is End.DRAINED:
        return EXIT_DRAINED
    return 1 if handler.failed else 0


def main(settings: Settings, uuid: str, report: Connection | None = None) -> None:
    """Entry of the forked process: a session of its own, named for its task.

    What a task ends by is in its log and its row; the exit code repeats it.  A bug leaves its trace on stderr too.
    """
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_DRAINED))  # until the handler takes it over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    proc.title(f"makimono: {uuid}")
    proc.become_subreaper()
    log.lose_what_stderr_refuses()
    try:
        code = process_task(settings, uuid, report, join=lambda claim: groups.join(settings, uuid, claim.attempt))
    except Fenced:
        code = 0  # a newer attempt owns the task
    except MakimonoError as error:
        _tell(report, str(error))
        code = error.exit_code
    except Exception as error:
        _tell(report, f"{type(error).__name__}: {error}")
        raise
    sys.exit(code)


def _tell(report: Connection | None, word: str) -> None:
    if report is not None:
        with suppress(OSError):  # the daemon may be gone, or it was told already; the work goes on
            report.send(word)
            report.close()
