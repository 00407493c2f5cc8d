"""`solve`: one task now, in the foreground, with the worker's code: lock, claim, handle.

The folder's lock is taken before the row is put, so that any other worker that sees the row loses.  Ctrl-C is
`stop UUID` from within: the task ends as stopped, and a second one ends it at once.  A file that is no issue of the
configured tracker, or that is to be solved in another repository, gets a private tracker (`solo.py`); a daemon that
finds such a task after a crash goes on with it like with any other.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from agent import disk, filetree, proc
from agent.context import MessageStore
from agent.context.row import TaskRow
from agent.errors import (
    AccessRefused,
    DiskError,
    Fenced,
    LockHeld,
    MakimonoError,
    ModelError,
    ModelStalled,
    ModelUnreachable,
    SurroundingsError,
    TakenElsewhere,
    UsageError,
)
from agent.forge import Task, TaskFactory
from agent.forge.local import REPO, LocalForge
from agent.llm import make_client
from agent.llm.server import same_model
from agent.observe import log
from agent.observe.events import Events, to_log
from agent.run import solo
from agent.run.closing import close_from_outside
from agent.run.folders import folder_of, make_folder
from agent.run.handler import TaskHandler
from agent.run.past import begin_from, past_point
from agent.run.room import shortage
from agent.run.solve_issue import asked_for
from agent.run.starting import budget_spent
from agent.run.watchdog import traceable
from agent.run.wiring import Wiring
from agent.run.worker import LEASE_SECONDS, give_up
from agent.security.redact import Redactor
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from agent.config import Settings
    from agent.taskqueue import Claim, Row
    from agent.values import Listener, Outcome

INTERRUPTED = 130
GIVEN_UP = (Status.FAILED, Status.PAUSED, Status.QUEUED)
"""Where a task may be that `solve` did not end.  Queued: its model or its forge is away; a daemon goes on with it."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of it.  `pull` is the file of the pull request, on a forge its address; `folder` the task's; None where
    there is none.

    `summary` is what the model said last: a summary, an answer or a question.  `error` is "" unless it failed.
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


def solve(settings: Settings, issue: str, repository: str | None = None, listeners: Sequence[Listener] = ()) -> Solved:
    """Work on `issue` until it ends.

    UsageError when the issue, or the repository, is not there or is being worked on; SurroundingsError when no model
    answers.  Nothing is left behind then.  What ends the task itself is in the result.
    """
    with closing(Wiring(settings)) as wiring, asked_for(settings, wiring, issue, repository) as asked:
        ask_the_model(settings)
        if isinstance(asked, Task):
            return work_on(settings, asked, listeners)
        tracker = solo.make_tracker(settings, asked.text, asked.repository, comments=asked.comments, issue=asked.origin)
    task = LocalForge(solo.on_tracker(settings, tracker, {REPO: asked.repository})).task(1)
    assert task is not None, "it was written with the label"
    try:
        return work_on(settings, task, listeners)
    except UsageError:
        solo.forget(settings, str(tracker))
        raise


def solve_from(settings: Settings, uuid: str, seq: int, listeners: Sequence[Listener] = ()) -> Solved:
    """Work on the issue of task `uuid` in a new task that begins after that one's message `seq` (`past.py`)."""
    with closing(Wiring(settings)) as wiring:
        row, point = past_point(settings, wiring.ledger, uuid, seq)
        open_one = wiring.ledger.latest(row.key)
        if open_one is not None and open_one.status not in CLOSED_STATUSES:
            raise UsageError(f"task {open_one.uuid} of this issue is {open_one.status}; stop it, or wait for its end")
        ask_the_model(settings)
        carried = {**row.key.to_dict(), "uuid": row.uuid, "user": row.user, "title": row.title}
        task = TaskFactory.from_dict(carried, wiring.forges_for(row.key))

    def begin(wiring: Wiring, claim: Claim) -> None:
        begin_from(settings, point, settings.base_dir / "running" / claim.uuid)
        new = TaskRow(wiring.db, claim.uuid)
        new.attempt = claim.attempt
        new.set(parent_uuid=row.uuid, comment_cursor=row.cursor)

    return work_on(settings, task, listeners, begin)


def ask_the_model(settings: Settings) -> None:
    """SurroundingsError, before anything is made, when no model would answer."""
    with tempfile.TemporaryDirectory(prefix="makimono-model-") as folder:
        place = Path(folder)
        with closing(MessageStore(place, settings)) as store, closing(make_client(settings, store, place)) as client:
            try:
                models = client.models()
                if client.provider == "replay" and not (check := client.check()).ok:
                    raise SurroundingsError(f"no model answers: {check.text}")
            except (ModelUnreachable, ModelStalled, AccessRefused) as error:
                said = str(error).rstrip(".")
                end = "" if said.endswith("?") else "."
                raise SurroundingsError(f"no model answers: {said}{end} {provider_hint(settings)}") from error
            except ModelError:
                return  # it answers, and has no list of its models
    strict = client.provider in ("ollama", "lmstudio") and models
    if strict and not any(same_model(client.model, model) for model in models):
        names = ", ".join(sorted(models)[:12])
        raise SurroundingsError(
            f"no model answers: {client.provider} has no model {client.model!r}; it has {names}. "
            f"Set llm.{client.provider}.model to one of them"
        )


def provider_hint(settings: Settings) -> str:
    """What to do when the model cannot be had; that nobody has chosen it may be all that is wrong."""
    if settings.origins.get("llm.provider", "default") != "default":
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
    begin: Callable[[Wiring, Claim], None] = lambda _wiring, _claim: None,
) -> Solved:
    """Lock, put, claim, `begin`, handle; what is left open at a second Ctrl-C is closed from outside."""
    if settings.base_dir.is_dir() and (why := shortage(settings)):
        raise DiskError(why)
    wiring = Wiring(settings, events=Events([to_log]))
    for listener in listeners:
        wiring.events.on(listener)
    try:
        with held(wiring, task) as uuid, stopping(settings, uuid) as interrupts:
            claim = wiring.ledger.claim(uuid, wiring.owner, LEASE_SECONDS)
            proc.title(f"makimono: {uuid}")
            proc.become_subreaper()
            outcome: Outcome | None = None
            error: MakimonoError | None = None
            try:
                begin(wiring, claim)
                outcome = handle(wiring, claim)
            except Fenced:
                raise
            except MakimonoError as failure:
                error = failure
                give_up(wiring, claim, failure)
            except KeyboardInterrupt:
                wiring.ledger.end(uuid, claim.attempt, Status.STOPPED, outcome="stopped")
            finally:
                proc.end_tree(uuid)
                log.close()
        row = wiring.ledger.get(uuid)
        assert row is not None, "nobody removes a row that runs"
        if row.status is Status.STOPPED:
            close_from_outside(wiring, row)
        return result(wiring, row, outcome, error, interrupted=interrupts != [])
    finally:
        wiring.close()


def handle(wiring: Wiring, claim: Claim) -> Outcome:
    """The worker's part after the claim."""
    settings = wiring.settings
    folder = settings.base_dir / "running" / claim.uuid
    log.setup(folder / "worker.log", uuid=claim.uuid, redact=Redactor(settings.secrets()), stderr=False)
    carried = {**claim.key.to_dict(), "uuid": claim.uuid, "user": claim.user, "title": claim.title}
    task = TaskFactory.from_dict(carried, wiring.forges_for(claim.key))
    with traceable(folder / "worker.log"):
        return TaskHandler(wiring, attempt=claim.attempt).handle(task)


@contextmanager
def held(wiring: Wiring, task: Task) -> Iterator[str]:
    """Make the folder, lock it, put the row; yields the uuid.  A row of that issue which waits already is taken."""
    settings, ledger, key = wiring.settings, wiring.ledger, task.get_task_key()
    if (spent := budget_spent(settings, ledger, key.owner, key.repo, key.instance)) is not None:
        raise UsageError(f"{key}: {spent} is used up for today; raise it, or go on tomorrow")
    uuid = str(uuid4())
    folder = make_folder(settings, uuid)
    lock = disk.lock(folder / "lock")
    try:
        put = ledger.put(
            key,
            uuid=uuid,
            user=task.get_user(),
            title=task.title,
            provider=settings.llm.provider,
            model=settings.provider().model,
        )
        if put is None:
            filetree.remove(folder)
            disk.unlock(lock)
            uuid = waiting(ledger.latest(key))
            folder = make_folder(settings, uuid)
            try:
                lock = disk.lock(folder / "lock")
            except LockHeld:
                raise UsageError(f"task {uuid} of this issue is being started by another process") from None
        if not task.prepare() and task.forge is not None:
            task.forge.move_label(key, "processing")  # it had no label, and `stop` is said by having none
        yield uuid
    finally:
        if not settings.context_storage.enabled:  # the task's files lay elsewhere and are gone
            with suppress(OSError):
                filetree.remove(folder)
        with suppress(OSError):
            disk.unlock(lock)


def waiting(row: Row | None) -> str:
    """The uuid of a row that may be taken; UsageError says what becomes of any other."""
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
def stopping(settings: Settings, uuid: str) -> Iterator[list[int]]:
    """The first signal asks the task to stop, as `stop UUID` does; the second ends it.  Yields the signals so far."""
    heard: list[int] = []

    def ask() -> None:
        with closing(Wiring(settings)) as wiring, suppress(MakimonoError):
            wiring.ledger.request(uuid, "stop")

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt
        threading.Thread(target=ask, name="stop", daemon=True).start()  # the task's own connection may be in use

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
) -> Solved:
    """What the row, the files and the forge say now."""
    settings = wiring.settings
    folder = folder_of(settings, row.uuid)
    code = 0
    taken = row.error_code == TakenElsewhere.code
    if taken:
        code = TakenElsewhere.exit_code
    elif row.status is Status.STOPPED or (interrupted and error is None and row.status is not Status.COMPLETED):
        code = INTERRUPTED
    elif row.status is Status.QUEUED and error is not None:  # whatever it waits for
        code = SurroundingsError.exit_code
    elif row.status is Status.FAILED or error is not None:
        code = error.exit_code if error is not None else 1
    return Solved(
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
    """The pull request: its address on a forge, else `pull.md` in the folder, else the tracker's own file."""
    if row.key.task_source != "local":
        return row.url
    if folder is not None and (folder / solo.PULL).is_file():
        return folder / solo.PULL
    if not row.branch:
        return None
    pull = wiring.forge_of(row.key).find_pull(row.key, row.branch)
    return None if pull is None else solo.pull_file(pull)
