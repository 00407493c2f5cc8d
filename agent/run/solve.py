"""`solve`: one task now, in the foreground, with the worker's code: lock, claim, handle.

The folder's lock is taken before the row is put, so that any other worker that sees the row loses.  Ctrl-C is
`stop UUID` from within: the task ends as stopped, and a second one ends it at once.  A file that is no issue of the
configured tracker, or that is to be solved in another repository, gets a private tracker (`solo.py`); a daemon that
finds such a task after a crash goes on with it like with any other.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from agent import disk, proc
from agent.context import MessageStore
from agent.errors import (
    AccessRefused,
    Fenced,
    GitError,
    IssueUnreadable,
    LockHeld,
    MakimonoError,
    ModelError,
    ModelStalled,
    ModelUnreachable,
    SurroundingsError,
    UsageError,
    WorkError,
)
from agent.forge import TaskFactory
from agent.forge.local import REPO, LocalForge
from agent.llm import make_client
from agent.llm.client import same_model
from agent.observe import log
from agent.observe.events import Events, to_log
from agent.run import solo
from agent.run.cleanup import folder_of
from agent.run.closing import close_from_outside
from agent.run.handler import TaskHandler
from agent.run.producer import budget_spent
from agent.run.wiring import Wiring
from agent.run.worker import LEASE_SECONDS
from agent.run.worker import folder_of as make_folder
from agent.security.redact import Redactor
from agent.values import Status
from agent.work.remote import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from agent.config import Settings
    from agent.forge import Task
    from agent.taskqueue import Claim, Row
    from agent.values import Listener, Outcome

INTERRUPTED = 130
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NUMBER = re.compile(r"#(0|[1-9][0-9]{0,17})")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|git@")


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of it.  `pull` is the file of the pull request, `folder` the task's; None where there is none.

    `summary` is what the model said last: a summary, an answer or a question.  `error` is "" unless it failed.
    """

    uuid: str
    status: str
    branch: str | None
    pull: Path | None
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
    known = on_the_tracker(settings, issue) if repository is None else of_that_repository(settings, issue, repository)
    if known is None:
        path = path_of(settings, issue)
        text, named = solo.as_issue(solo.read_issue(path), path, settings.local.bot_label)
        address = repository_of(settings, repository, named, path)
    ask_the_model(settings)
    if known is not None:
        return work_on(settings, known, listeners)
    tracker = solo.make_tracker(settings, text, address, comments=comments_beside(path), issue=str(path.absolute()))
    task = LocalForge(solo.on_tracker(settings, tracker, {REPO: address})).task(1)
    assert task is not None, "it was written with the label"
    try:
        return work_on(settings, task, listeners)
    except UsageError:
        solo.forget(settings, str(tracker))
        raise


# --- what is asked for ---------------------------------------------------------------------------------------


def on_the_tracker(settings: Settings, issue: str) -> Task | None:
    """The task of an issue of the configured tracker, by `#3` or by its file; None for any other file."""
    tracker = settings.local.tracker
    if number := _NUMBER.fullmatch(issue.strip()):
        if "local" not in settings.task_sources:
            raise UsageError(f"{issue} is a number of the local tracker, but task_sources has no `local`")
        name = number[1]
    elif _ADDRESS.match(issue):
        raise UsageError(
            f"{issue} is an address on another host; `solve` takes a Markdown file, or an issue of the local tracker "
            f"by its number (#3) or its file. Put the bot's label on the issue and let `run --once` work on it"
        )
    else:
        path = Path(issue)
        with suppress(OSError, RuntimeError):
            path = path.resolve()
        if "local" not in settings.task_sources or path.parent != (settings.root / tracker).resolve() / "issues":
            return None
        name = path.name.removesuffix(".md")
    try:
        found = LocalForge(settings).task(int(name), waiting=False) if name.isdecimal() else None
    except IssueUnreadable as error:
        raise UsageError(str(error)) from error
    if found is None:
        raise UsageError(f"{issue}: {settings.root / tracker}/issues has no open issue {name}")
    return found


def of_that_repository(settings: Settings, issue: str, repository: str) -> Task | None:
    """The task of an issue of the configured tracker whose own repository is the one that is given; else None."""
    if _ADDRESS.match(issue):
        return None
    try:
        task = on_the_tracker(settings, issue)
        forge = LocalForge(settings)
        own = None if task is None else forge.address(task.get_task_key().repo, issue)
    except MakimonoError:
        return None  # it is taken for a file, and that says what is wrong
    return task if own == str(Path(repository).resolve()) else None


def path_of(settings: Settings, issue: str) -> Path:
    """The Markdown file; `#3` with another repository is the file of that issue."""
    if number := _NUMBER.fullmatch(issue.strip()):
        return settings.root / settings.local.tracker / "issues" / f"{number[1]}.md"
    if _ADDRESS.match(issue):
        raise UsageError(f"{issue} is an address on another host; `solve --repo` takes a Markdown file")
    return Path(issue)


def comments_beside(path: Path) -> bytes:
    """What people said to an issue of a tracker that is solved in another repository."""
    try:
        return path.with_name(f"{path.stem}.comments.jsonl").read_bytes()
    except OSError:
        return b""


def repository_of(settings: Settings, given: str | None, named: str | None, issue: Path) -> str:
    """The repository: `--repo`, else the one of `local.repos` that the issue names, else its `default`."""
    if given is None:
        name = named or REPO
        if name not in settings.local.repos:
            known = ", ".join(sorted(settings.local.repos)) or "none"
            raise UsageError(f"{issue}: repository {name!r} is not in local.repos; known: {known}. Or give --repo DIR")
        given = str(settings.root / settings.local.repos[name])
        where = f"local.repos.{name}"
    else:
        where = "--repo"
    if not Path(given).is_dir():
        raise UsageError(f"{where}: {given} is not a folder; give the folder of a git repository")
    address = str(Path(given).resolve())
    try:
        Remote(address).list()
    except (WorkError, GitError) as error:
        raise UsageError(f"{where}: {given} is not a git repository; give one with --repo DIR ({error})") from error
    return address


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
                raise SurroundingsError(
                    f"no model answers: {said}{end} `doctor` shows the rest; see llm.provider"
                ) from error
            except ModelError:
                return  # it answers, and has no list of its models
    strict = client.provider in ("ollama", "lmstudio") and models
    if strict and not any(same_model(client.model, model) for model in models):
        names = ", ".join(sorted(models)[:12])
        raise SurroundingsError(
            f"no model answers: {client.provider} has no model {client.model!r}; it has {names}. "
            f"Set llm.{client.provider}.model to one of them"
        )


# --- the work ------------------------------------------------------------------------------------------------


def work_on(settings: Settings, task: Task, listeners: Sequence[Listener]) -> Solved:
    """Lock, put, claim, handle; what is left open at a second Ctrl-C is closed from outside."""
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
                outcome = handle(wiring, claim)
            except Fenced:
                raise
            except MakimonoError as failure:
                error = failure
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
            shutil.rmtree(folder)
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
            shutil.rmtree(folder, ignore_errors=True)
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
    if row.status is Status.STOPPED or (interrupted and error is None and row.status is not Status.COMPLETED):
        code = INTERRUPTED
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
        error="" if row.status not in (Status.FAILED, Status.PAUSED) else row.error_message or str(error or ""),
        exit_code=code,
    )


def pull_of(wiring: Wiring, row: Row, folder: Path | None) -> Path | None:
    """The file of the pull request: `pull.md` in the folder, else the tracker's own."""
    if folder is not None and (folder / solo.PULL).is_file():
        return folder / solo.PULL
    if not row.branch:
        return None
    pull = wiring.forge_of(row.key).find_pull(row.key, row.branch)
    return None if pull is None else solo.pull_file(pull)
