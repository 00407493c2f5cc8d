"""`solve` works on one task now, in the foreground, with the code of a worker: lock, claim, handle.

`solve` takes the lock of a new task's folder before it queues the row, so that any other worker that sees the row fails
to claim it. Ctrl-C has the same effect as `stop UUID`: the task ends as stopped; a second Ctrl-C ends it at once. A
private tracker (`wiring/private_tracker.py`) is made in two cases: for a file that is not an issue of the configured
tracker, and for an issue that is to be solved in another repository. A daemon that finds a task of `solve` after a
crash continues it like any other task. If the first task of an issue has ended, a second `solve` of the issue continues
it, on its branch while the pull request is open (`worker/earlier_task.py`).
"""

from __future__ import annotations

import signal
import tempfile
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from agent import durable_files, filetree, prompts
from agent.commands.solve_issue import asked_for
from agent.config.configured_commands import check_commands
from agent.config.plug_ins import check_plug_ins
from agent.context import MessageStore
from agent.context.task_row import TaskRow
from agent.daemon.finalize import close_from_outside
from agent.daemon.program_version import lock_of
from agent.errors import (
    AccessRefused,
    ClaimLost,
    DiskError,
    Fenced,
    HostError,
    LockHeld,
    MakimonoError,
    ModelError,
    ModelStalled,
    ModelUnreachable,
    TakenElsewhere,
    UsageError,
)
from agent.forge import Task, TaskFactory
from agent.forge.local import issue_files
from agent.forge.local.forge import REPO, LocalForge
from agent.intake.enqueue import budget_spent, priority_of
from agent.llm import make_client
from agent.llm.server_info import same_model
from agent.observe.events import Events, to_log
from agent.observe.traces import require_otlp
from agent.prompts.reviewer_templates import check_reviewer_templates
from agent.store.remote_storage import require_driver
from agent.values import CLOSED_STATUSES, Status
from agent.wiring import private_tracker
from agent.wiring.disk_space import shortage
from agent.wiring.folders import folder_of
from agent.wiring.wiring import Wiring
from agent.worker.attempt import Mode, attempt, hold
from agent.worker.earlier_task import parent_of
from agent.worker.fork_task import fork_from, fork_point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from agent.config import Settings
    from agent.taskqueue import Claim, Row
    from agent.values import Listener, Outcome

INTERRUPTED = 130
GIVEN_UP = (Status.FAILED, Status.PAUSED, Status.QUEUED)
"""Statuses of a task that `solve` could not complete.

`solve` leaves a task in the queue, for example, if the task's model or forge cannot be reached; a daemon can continue
the task.
"""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class SolveResult:
    """The result of `solve`.

    `pull` is the file of the pull request, or its address on a forge; `folder` is the folder of the task; None if there
    is none. `summary` is the final text of the model: a summary, an answer or a question. `error` is the text of the
    error because of which the task failed, was paused or put back into the queue, or was left to another worker;
    otherwise "".
    """

    uuid: str
    status: str
    branch: str | None
    pull: Path | str | None
    folder: Path | None
    title: str
    outcome: str
    summary: str
    error: str
    exit_code: int


def solve(
    settings: Settings, issue: str, repository: str | None = None, listeners: Sequence[Listener] = ()
) -> SolveResult:
    """Work on `issue` in one attempt, until the task for it ends, is paused, or is put back into the queue.

    Raises UsageError when the issue or the repository does not exist, when the issue has a task that waits or on which
    another process works, or when a daily limit is used up; HostError when no model answers; ConfigError as
    `ask_the_surroundings` does; DiskError as `work_on` does. If UsageError or HostError is raised, this call leaves no
    files or rows of a task behind. Errors that end the task itself are not raised but are part of the result.
    """
    with closing(Wiring(settings)) as wiring, asked_for(settings, wiring, issue, repository) as asked:
        ask_the_surroundings(settings)
        if isinstance(asked, Task):
            return work_on(settings, asked, listeners)
        tracker = private_tracker.make_tracker(
            settings, asked.text, asked.repository, comments=asked.comments, issue=asked.origin
        )
    task = LocalForge(private_tracker.on_tracker(settings, tracker, {REPO: asked.repository})).task(1)
    assert task is not None, "it was written with the label"
    try:
        return work_on(settings, task, listeners)
    except UsageError:
        private_tracker.forget(settings, str(tracker))
        raise


def solve_from(settings: Settings, uuid: str, seq: int, listeners: Sequence[Listener] = ()) -> SolveResult:
    """Work on the issue of the task `uuid` in a new task that begins after message `seq` of that task
    (`worker/fork_task.py`). Raises UsageError if the issue has a task that has not ended, and the errors of
    `fork_point`."""
    with closing(Wiring(settings)) as wiring:
        row, point = fork_point(settings, wiring.ledger, uuid, seq)
        open_one = wiring.ledger.latest(row.key)
        if open_one is not None and open_one.status not in CLOSED_STATUSES:
            raise UsageError(f"task {open_one.uuid} of this issue is {open_one.status}; stop it, or wait for its end")
        ask_the_surroundings(settings)
        carried = {**row.key.to_dict(), "uuid": row.uuid, "user": row.user, "title": row.title}
        task = TaskFactory.from_dict(carried, wiring.forges_for(row.key))

    def begin(wiring: Wiring, claim: Claim) -> None:
        fork_from(settings, point, settings.base_dir / "running" / claim.uuid)
        new = TaskRow(wiring.db, claim.uuid)
        new.attempt = claim.attempt
        new.set(parent_uuid=row.uuid, comment_cursor=row.cursor)

    return work_on(settings, task, listeners, begin)


def ask_the_surroundings(settings: Settings) -> None:
    """Check the model, the drivers for replicas and for OTLP, the configured commands, the plug-ins and the templates
    of reviewers, before any file or row of the task is made.

    Raises HostError when no model answers; ConfigError when a driver is missing, or when a command, a plug-in or a
    template must not be used.
    """
    require_driver(settings.context_storage.replica)
    require_otlp(settings.observe.otlp)
    check_commands(settings)
    check_plug_ins(settings)
    if settings.consensus.enabled and not settings.prompts.is_set:
        check_reviewer_templates(settings, prompts.program_templates())
    with tempfile.TemporaryDirectory(prefix="makimono-model-") as folder:
        place = Path(folder)
        with closing(MessageStore(place, settings)) as store, closing(make_client(settings, store, place)) as client:
            try:
                models = client.models()
                if getattr(client, "is_recording", False) and not (check := client.check()).ok:
                    raise HostError(f"no model answers: {check.text}")
            except (ModelUnreachable, ModelStalled, AccessRefused) as error:
                said = str(error).rstrip(".")
                end = "" if said.endswith("?") else "."
                raise HostError(f"no model answers: {said}{end} {provider_hint(settings)}") from error
            except ModelError:
                return  # the model's server answers, which is enough; it has no list of its models to check
    strict = getattr(client, "lists_every_model", False) and models
    if strict and not any(same_model(client.model, model) for model in models):
        names = ", ".join(sorted(models)[:12])
        raise HostError(
            f"no model answers: {client.provider} has no model {client.model!r}; it has {names}. "
            f"Set llm.{client.provider}.model to one of them"
        )


def provider_hint(settings: Settings) -> str:
    """Advice for a person when no model can be reached, since the cause may be that no provider was chosen."""
    if settings.origin("llm.provider") != "default":
        return "`doctor` shows the rest; see llm.provider"
    return (
        "No configuration names a provider, and openai, which takes OPENAI_API_KEY, is only the default: set "
        "llm.provider (or LLM_PROVIDER) to openai, anthropic, ollama or lmstudio. `doctor` shows the rest"
    )


# --- the work ------------------------------------------------------------------------------------------------


def work_on(
    settings: Settings,
    task: Task,
    listeners: Sequence[Listener],
    begin: Callable[[Wiring, Claim], None] | None = None,
) -> SolveResult:
    """Lock the task's folder, queue its row, and run one attempt (`worker/attempt.py`).

    After a second Ctrl-C the row gets the status `stopped` although the attempt did not finish. If the row is stopped,
    this function posts the end of the task itself, and moves the label and the folder. Raises DiskError if base_dir has
    no disk space for another task, and the errors of `hold_task`.
    """
    if settings.base_dir.is_dir() and (why := shortage(settings)):
        raise DiskError(why)
    wiring = Wiring(settings, events=Events([to_log]))
    for listener in listeners:
        wiring.events.on(listener)
    try:
        with hold_task(wiring, task) as uuid, stop_on_signal(settings, uuid) as interrupts:
            outcome: Outcome | None = None
            error: MakimonoError | None = None
            try:
                outcome, _ = attempt(wiring, uuid, Mode(asked_here=True, begin=begin))
            except (Fenced, ClaimLost):
                raise
            except MakimonoError as failure:
                error = failure
            except KeyboardInterrupt:
                pass  # `attempt` has already ended the row as stopped
        row = wiring.ledger.get(uuid)
        assert row is not None, "nobody removes a row that runs"
        if row.status is Status.STOPPED:
            close_from_outside(wiring, row)
        remember_beside(settings, row)
        return result(wiring, row, outcome, error, interrupted=interrupts != [])
    finally:
        wiring.close()


def remember_beside(settings: Settings, row: Row) -> None:
    """Start a process that extracts long-term memories from an ended task, without waiting for the process.

    Nothing is started while a daemon works on this base_dir, since the daemon does the extraction.  If the process
    cannot be started, the next daemon or `solve` does the extraction."""
    if row.remember_at is not None and not durable_files.is_locked(lock_of(settings)):
        # the import loads the code for memory, which is needed only if memory is enabled
        from agent.extraction.process import start_beside

        with suppress(OSError):
            start_beside(settings, row.uuid)


@contextmanager
def hold_task(wiring: Wiring, task: Task) -> Iterator[str]:
    """Make the task's folder, lock it, and queue the row; yields the uuid.

    If a row of the issue is already queued, that row and its uuid are used. Raises UsageError when a daily limit is
    used up, or when the issue has a task that has not ended and is not queued, or that another process is starting.
    """
    settings, ledger, key = wiring.settings, wiring.ledger, task.get_task_key()
    if (spent := budget_spent(settings, ledger, key.owner, key.repo, key.instance)) is not None:
        raise UsageError(f"{key}: {spent} is used up for today; raise it, or go on tomorrow")
    uuid = str(uuid4())
    with ExitStack() as own:
        folder = own.enter_context(hold(settings, uuid))
        put = ledger.enqueue(
            key,
            uuid=uuid,
            user=task.get_user(),
            title=task.title,
            priority=priority_of(settings, task.labels),
            parent_uuid=parent_of(settings, ledger, key),
            provider=settings.llm.provider,
            model=settings.provider().model,
        )
        if put is None:
            filetree.remove(folder)
            own.close()
            uuid = waiting(ledger.latest(key))
            try:
                own.enter_context(hold(settings, uuid))
            except LockHeld:
                raise UsageError(f"task {uuid} of this issue is being started by another process") from None
        if not task.prepare() and task.forge is not None:
            # An issue that asks for no work has no label of this program. It gets one here, since a worker would take
            # the missing label as a request to stop.
            task.forge.move_label(key, "processing")
        yield uuid


def waiting(row: Row | None) -> str:
    """The uuid of `row` if it is queued, so that `solve` can work on it; otherwise raises UsageError with the row's
    state."""
    if row is None:
        raise UsageError("the task of this issue ended just now; try again")
    if row.status is Status.PAUSED:
        raise UsageError(f"task {row.uuid} of this issue waits ({row.outcome}); `resume {row.uuid}` puts it back")
    if row.status is not Status.QUEUED:
        raise UsageError(
            f"task {row.uuid} of this issue is {row.status} already; `show {row.uuid}` tells how far it is"
        )
    return row.uuid


@contextmanager
def stop_on_signal(settings: Settings, uuid: str) -> Iterator[list[int]]:
    """Inside the block the first SIGINT, SIGTERM or SIGHUP asks the task to stop, as `stop UUID` does; the second
    raises KeyboardInterrupt.

    Yields the list of the signals that have arrived so far. Outside the main thread, where Python sets no signal
    handlers, this list of signals stays empty.
    """
    heard: list[int] = []

    def ask() -> None:
        with closing(Wiring(settings)) as wiring, suppress(MakimonoError):
            wiring.ledger.request(uuid, "stop")

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt
        # a thread sends the request over its own database connection, since the task may be using the other connection
        threading.Thread(target=ask, name="stop", daemon=True).start()

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = {number: signal.signal(number, hear) for number in STOPPING}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def result(
    wiring: Wiring, row: Row, outcome: Outcome | None, error: MakimonoError | None, *, interrupted: bool
) -> SolveResult:
    """The result of `solve`, from the row, the files and the forge."""
    settings = wiring.settings
    folder = folder_of(settings, row.uuid)
    code = 0
    taken = row.error_code == TakenElsewhere.code
    if taken:
        code = TakenElsewhere.exit_code
    elif row.status is Status.STOPPED or (interrupted and error is None and row.status is not Status.COMPLETED):
        code = INTERRUPTED
    elif row.status is Status.QUEUED and error is not None:  # the task was put back into the queue
        code = HostError.exit_code
    elif row.status is Status.FAILED or error is not None:
        code = error.exit_code if error is not None else 1
    return SolveResult(
        uuid=row.uuid,
        status=str(row.status),
        branch=row.branch,
        pull=pull_of(wiring, row, folder),
        folder=folder,
        title=row.title or "",
        outcome=row.outcome or row.error_code or "",
        summary=outcome.summary if outcome is not None else "",
        error=row.error_message or str(error or "") if taken or row.status in GIVEN_UP else "",
        exit_code=code,
    )


def pull_of(wiring: Wiring, row: Row, folder: Path | None) -> Path | str | None:
    """The place of the pull request: its address on a forge, else `pull.md` in the task's folder, else the file of the
    tracker; None if there is none."""
    if not row.key.is_in_folder:
        return row.url
    if folder is not None and (folder / private_tracker.PULL).is_file():
        return folder / private_tracker.PULL
    if not row.branch:
        return None
    pull = wiring.forge_of(row.key).find_pull(row.key, row.branch)
    return None if pull is None else issue_files.pull_file(pull)
