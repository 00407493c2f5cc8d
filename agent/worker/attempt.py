"""The common entry point to run a task, for a worker, `solve` and `replay`; the order is lock → claim → log → task →
handler.

A process that works on a task first makes the task's folder and takes its lock, which it holds as long as it works on
the task. The process claims the row of the task after it has taken the lock of the task's folder. `Mode` describes how
runs by a worker, by `solve` and by `replay` differ.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock, durable_files, filetree, proc
from agent.context import manager
from agent.context.task_row import TaskRow
from agent.errors import MISTAKES, Fenced, MakimonoError
from agent.forge import TaskFactory
from agent.observe import log
from agent.observe.traces import traced
from agent.values import Status
from agent.wiring.folders import make_folder
from agent.worker import process_groups, program_upgrade, unopened_attempts
from agent.worker.error_disposition import reading_of
from agent.worker.handler import TaskHandler
from agent.worker.hang_trace import trace_on_signal
from agent.worker.takeover import take_over
from agent.worker.task_templates import templates_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from agent.config import Settings
    from agent.taskqueue import Claim
    from agent.values import Outcome
    from agent.wiring.wiring import Wiring

LEASE_SECONDS = manager.LEASE_SECONDS
AGAIN_SECONDS = 60.0
CLAIMED = "claimed"
"""The report that the process of a task sends to the daemon after it has claimed the row. A report other than CLAIMED
is the reason why the claim failed."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How an attempt differs between its three callers: a worker of the daemon, `solve` and `replay`.

    `named`: the process does nothing else than this task, so its title becomes `makimono: {uuid}`, and as a subreaper
    it becomes the parent of orphaned commands. `grouped`: the process joins a control group (cgroup) of its own.
    `drains`: SIGTERM drains the task (ends it at the next turn and releases its row); SIGINT is ignored, because the
    daemon gets it too and then drains its workers. `publishing`: if False, nothing is published outside of this
    machine. `asked_here`: a person at this machine started the run. `report` is the connection on which CLAIMED is sent
    after the claim, so that the daemon can acknowledge a broker's message. `begin` writes the initial data of the task
    into its folder.
    """

    named: bool = True
    grouped: bool = False
    drains: bool = False
    publishing: bool = True
    asked_here: bool = False
    report: Connection | None = None
    begin: Callable[[Wiring, Claim], None] | None = None


@contextmanager
def hold(settings: Settings, uuid: str) -> Iterator[Path]:
    """Make the task's folder and hold its lock; yields the folder.

    Raises LockHeld if another process works on the task.

    If `context_storage.enabled` is false, the files of a task are temporary, and its folder is removed at the end. The
    folder of a task with temporary files stays nevertheless if it has messages (from before the setting was changed),
    or if failed attempts are counted in it.
    """
    folder = make_folder(settings, uuid)
    lock = durable_files.lock(folder / "lock")
    try:
        yield folder
    finally:
        kept = any((folder / name).exists() for name in ("messages.jsonl", unopened_attempts.NAME))
        if not settings.context_storage.enabled and not kept:
            with suppress(OSError):
                filetree.remove(folder)
        durable_files.unlock(lock)


def attempt(wiring: Wiring, uuid: str, mode: Mode) -> tuple[Outcome, bool]:
    """Claim the row and work on the task; this process must already hold the lock of the task's folder.

    Returns (outcome, whether the task failed).

    Raises ClaimLost, before anything is done, if the row is not free. An error after the claim is raised again after
    `give_up_claim` has released or finished the row, if the row is still this attempt's.
    """
    settings = wiring.settings
    claim = wiring.ledger.claim(uuid, wiring.owner, LEASE_SECONDS)
    folder = settings.base_dir / "running" / uuid
    handler: TaskHandler | None = None
    try:
        # End the processes that a dead attempt of this task has left running. Processes of a dead attempt are ended
        # only after the row was claimed. The pointer to a row in a broker's message is no reason to end processes: the
        # task may belong to a daemon with another base_dir on this machine.
        process_groups.end_tree(settings.base_dir, uuid)
        _settle_in(settings, claim, mode)
        send_report(mode.report, CLAIMED)
        log.setup(folder / "worker.log", uuid=uuid, redact=wiring.redact, stderr=False)
        take_over(wiring, claim, folder)
        if mode.begin is not None:
            mode.begin(wiring, claim)
        carried = {**claim.key.to_dict(), "uuid": uuid, "user": claim.user, "title": claim.title}
        task = TaskFactory.from_dict(carried, wiring.forges_for(claim.key))
        wiring.use_project_of(claim.key)
        handler = TaskHandler(wiring, attempt=claim.attempt, publishing=mode.publishing, asked_here=mode.asked_here)
        if mode.drains:
            signal.signal(signal.SIGTERM, handler.drain)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with (
            traced(settings.observe.otlp, uuid, claim.attempt, wiring.events),
            trace_on_signal(folder / "worker.log"),
            templates_of(settings, wiring.events, folder),
        ):
            return handler.handle(task), handler.failed
    except (Exception, KeyboardInterrupt) as error:
        give_up_claim(wiring, claim, error, None if handler is not None and handler.run is not None else folder)
        if isinstance(error, Fenced):
            correct_issue(wiring, uuid)
        raise
    finally:
        process_groups.end_tree(settings.base_dir, uuid)
        log.close()


def _settle_in(settings: Settings, claim: Claim, mode: Mode) -> None:
    """Set the process title, become a subreaper and join a control group, as the mode requires."""
    if mode.named:
        proc.title(f"makimono: {claim.uuid}")
        proc.become_subreaper()
    if mode.grouped:
        process_groups.join(settings, claim.uuid, claim.attempt)


def give_up_claim(wiring: Wiring, claim: Claim, error: BaseException, unopened_in: Path | None = None) -> None:
    """Release or finish a row that is still `running` in this attempt after `error`, because the handler had not opened
    the task yet, or because it could not write the row.

    A final error (`error_disposition.reading_of`) ends the task as failed, and the daemon posts the failure on the
    issue. An interrupt at the terminal ends the task as stopped. After an error that is neither final nor an interrupt,
    the task is tried again after AGAIN_SECONDS.

    `unopened_in`: the folder of the task if the handler has not opened the task, else None. A task that an attempt
    could not open waits longer before each further try, and fails after `error_disposition.ATTEMPTS` tries, unless the
    error is one of this host or of a shared store (`unopened_attempts.OF_HOST`).
    """
    with suppress(MakimonoError):  # if the row cannot be written now, the daemon releases it later
        row = wiring.ledger.get(claim.uuid)
        if isinstance(error, Fenced) or row is None or (row.status, row.attempt) != (Status.RUNNING, claim.attempt):
            return
        if not isinstance(error, Exception):
            wiring.ledger.finish(claim.uuid, claim.attempt, Status.STOPPED, outcome="stopped")
            return
        replaced = isinstance(error, MISTAKES) and program_upgrade.replaced()
        final, code, why = reading_of(error, replaced=replaced)
        why = wiring.redact(why)
        tries = unopened_attempts.add_attempt(unopened_in) if unopened_in is not None and not final else 0
        ends = final or unopened_attempts.is_enough(tries, error)
        seconds = unopened_attempts.seconds(tries) if tries and not ends else AGAIN_SECONDS
        if tries:
            said = {"task": str(claim.key), "tries": tries, "why": why, "seconds": None if ends else round(seconds)}
            wiring.events.emit("task_unopened", uuid=claim.uuid, **said)
        if ends:
            if tries:
                why = f"{why}. The task could not be opened in {tries} tries"
            wiring.ledger.finish(claim.uuid, claim.attempt, Status.FAILED, error_message=why, error_code=code)
            if unopened_in is not None:
                unopened_attempts.forget(unopened_in)
            return
        held = TaskRow(wiring.db, claim.uuid)
        held.attempt = claim.attempt
        held.set(error_code=code, error_message=why)
        wiring.ledger.release(claim.uuid, claim.attempt, clock.now() + timedelta(seconds=seconds))


def correct_issue(wiring: Wiring, uuid: str) -> None:
    """Let the daemon write the comment and label on the issue again, after this attempt found that it no longer owns
    the row.

    A host may be suspended between its check that it owns the row and its write to the issue.  A host that was
    suspended may have overwritten a newer comment of the attempt that owns the row."""
    with suppress(MakimonoError):
        wiring.ledger.notify_again(uuid)


def send_report(report: Connection | None, word: str) -> None:
    """Send a report about the claim to the daemon, and close the connection."""
    if report is not None and not report.closed:
        with suppress(OSError):  # the worker continues even if the daemon has ended
            report.send(word)
            report.close()
