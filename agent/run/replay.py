"""`replay`: a recorded task again, with the recorded answers, on a copy, publishing off.

The copy is a base_dir of its own below `base_dir/replays/`: own database, own mirror, own task.  It begins with the
recorded system prompt and briefing, word for word, and with the commit the recording began at, so that neither an issue
nor a repository that has changed or gone meanwhile makes a difference.  What people wrote while a recorded task waited
is said again when the copy waits.  The original is read and never written: what git has to make for the comparison goes
to a temporary place.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from agent import clock, disk, proc
from agent.errors import ContextError, Fenced, MakimonoError, UsageError
from agent.forge import front
from agent.forge.local import OWNER, REPO, LocalForge
from agent.gitcmd import git
from agent.observe import log
from agent.observe.events import Events, to_log
from agent.run import solo
from agent.run.folders import REPLAYS, folder_of, make_folder
from agent.run.handler import TaskHandler
from agent.run.wiring import Wiring
from agent.run.worker import LEASE_SECONDS
from agent.security.redact import Redactor
from agent.store.jsonl import records
from agent.values import End, Status, TaskKey
from agent.work import gitdir
from agent.work.rebase import has_commit
from agent.work.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.config import Settings
    from agent.taskqueue import Ledger, Row
    from agent.values import Json, Listener

HEAD = ("system", "task")
NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it.

    `same`: every recorded answer was played, and the trees are equal.  `recorded` and `came_to` are git trees, "" where
    a work tree is gone; `changed` names the paths that differ.  `folder` is the copy's base_dir, `task` its task's
    folder.
    """

    uuid: str
    copy: str
    same: bool
    recorded: str
    came_to: str
    changed: tuple[str, ...]
    status_recorded: str
    status: str
    answers: int
    used: int
    error: str
    folder: Path
    task: Path


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task as it was recorded."""

    uuid: str
    folder: Path
    row: Row
    metadata: Json
    state: gitdir.State

    @property
    def messages(self) -> Path:
        """Its conversation."""
        return self.folder / "messages.jsonl"

    def records(self) -> Iterator[Json]:
        """Every message, in order."""
        yield from (record for _, record in records(self.messages))

    def answers(self) -> int:
        """How many answers the model gave."""
        return sum(record.get("role") == "assistant" and record.get("kind") != "summary" for record in self.records())

    def said_after(self, answer: int) -> list[str]:
        """What people wrote between that answer (from 1) and the next one."""
        seen, said = 0, []
        for record in self.records():
            if record.get("role") == "assistant" and record.get("kind") != "summary":
                seen += 1
            elif seen == answer and record.get("kind") == "comment":
                said.append(str(record.get("content") or ""))
        return said


def replay(settings: Settings, ledger: Ledger, prefix: str, listeners: Sequence[Listener] = ()) -> Replayed:
    """Play the task whose uuid begins with `prefix` again.

    UsageError when there is none, when it is running, or when too little is kept of it.
    """
    original = recorded(settings, ledger, prefix)
    place = disk.make_dir(disk.make_dir(settings.base_dir, disk.passable()) / REPLAYS, disk.passable())
    name = f"{original.uuid[:8]}-{clock.stamp()[:19].replace(':', '').replace('-', '')}-{uuid4().hex[:4]}"
    place = disk.make_dir(place / name, disk.passable())
    copy = settings_of_copy(settings, original, place)
    source = make_source(original, place)
    tracker = solo.make_tracker(
        copy, issue_of(original, settings), str(source), number=number_of(original), replay_of=original.uuid
    )
    key = TaskKey("local", OWNER, REPO, "issue", number_of(original), str(tracker))
    uuid = str(uuid4())
    error = run_again(copy, original, key, uuid, listeners)
    return compare(copy, original, uuid, error)


def recorded(settings: Settings, ledger: Ledger, prefix: str) -> Recorded:
    """The task, if enough of it is kept."""
    uuid = ledger.resolve(prefix)
    row = ledger.get(uuid)
    folder = folder_of(settings, uuid)
    if row is None or folder is None:
        raise UsageError(f"task {uuid} has no folder any more; there is nothing to replay")
    if row.status is Status.RUNNING or (folder.parent.name == "running" and disk.is_locked(folder / "lock")):
        raise UsageError(f"task {uuid} is running; replay it when it has ended, or `stop {uuid}`")
    try:
        metadata = orjson.loads((folder / "metadata.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}/metadata.json cannot be read ({error}); the task cannot be replayed") from error
    state = gitdir.read_state(folder / "git")
    if state is None:
        raise UsageError(f"task {uuid} never had a work tree; there is nothing to replay")
    found = Recorded(uuid, folder, row, metadata, state)
    if not (found.messages.is_file() and found.answers()):
        raise UsageError(f"task {uuid} has no recorded answer; there is nothing to replay")
    return found


# --- the copy ------------------------------------------------------------------------------------------------


def settings_of_copy(settings: Settings, original: Recorded, place: Path) -> Settings:
    """The settings as they are, with the copy as base_dir and the recording as model: same name, same window."""
    config = original.metadata.get("config") or {}
    update: dict[str, Any] = {"messages": original.messages, "model": str(config.get("model") or "replay")}
    if isinstance(config.get("context_length"), int):
        update["context_length"] = config["context_length"]
    replayed = settings.llm.replay.model_copy(update=update)
    llm = settings.llm.model_copy(update={"provider": "replay", "replay": replayed})
    summary = settings.context_storage.summary_model.model_copy(update={"provider": None, "model": None})
    storage = settings.context_storage.model_copy(update={"base_dir": place, "enabled": True, "summary_model": summary})
    return settings.model_copy(update={"llm": llm, "context_storage": storage})


def make_source(original: Recorded, place: Path) -> Path:
    """A bare repository with the base branch at the commit where the recording began; empty when that was empty."""
    source = place / "source.git"
    state = original.state
    commit = state.start or state.base_commit
    sha = ("--object-format=sha256",) if commit and len(commit) == 64 else ()
    git("init", "--quiet", "--bare", "--template=", *sha, "--", str(source))
    source.chmod(0o700)
    if commit is not None:
        own = original.folder / "git"
        if not has_commit(own, commit):
            raise UsageError(f"commit {commit}, where task {original.uuid} began, is gone from its repository's mirror")
        (source / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (source / "objects" / "info" / "alternates").write_text(f"{own / 'objects'}\n", encoding="utf-8")
        git("update-ref", f"refs/heads/{state.base}", commit, git_dir=source)
    git("symbolic-ref", "HEAD", f"refs/heads/{state.base}", git_dir=source)
    return source


def number_of(original: Recorded) -> str:
    """The issue's number where it is one, so that branch and texts look alike."""
    return original.row.task_id if NUMBER.fullmatch(original.row.task_id) else "1"


def issue_of(original: Recorded, settings: Settings) -> bytes:
    """The issue of the copy: title and author as recorded; what was asked is in the recorded briefing."""
    title = " ".join(str(original.metadata.get("title") or original.row.title or "").split()) or "A recorded task"
    head = front.render({"title": title, "author": original.row.user or "replay", "state": "open"})
    label = orjson.dumps(settings.local.processing_label or settings.local.bot_label).decode()
    body = f"The briefing of task {original.uuid}, as it was recorded, is the second message of the conversation.\n"
    return f"{head.removesuffix('---' + chr(10))}labels: [{label}]\n---\n{body}".encode()


def copy_beginning(original: Recorded, folder: Path) -> None:
    """The recorded system prompt and briefing, and the marker that fences what is in them."""
    lines = []
    for record in original.records():
        if record.get("kind") not in HEAD:
            break
        lines.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    if [orjson.loads(line)["kind"] for line in lines] != list(HEAD):
        raise ContextError(f"{original.messages} does not begin with a system prompt and a briefing")
    disk.write_file(folder / "messages.jsonl", lines)
    own = {"uuid": folder.name, "created_at": clock.stamp(), "process_id": os.getpid(), "hostname": os.uname().nodename}
    metadata = {**original.metadata, **own, "replay_of": original.uuid}
    disk.write_file(folder / "metadata.json", orjson.dumps(metadata, option=orjson.OPT_INDENT_2))


# --- again ---------------------------------------------------------------------------------------------------


def run_again(settings: Settings, original: Recorded, key: TaskKey, uuid: str, listeners: Sequence[Listener]) -> str:
    """Put, claim and handle the copy, as often as the recording waited; why it failed, "" when it did not."""
    wiring = Wiring(settings, events=Events([to_log]))
    for listener in listeners:
        wiring.events.on(listener)
    folder = make_folder(settings, uuid)
    lock = disk.lock(folder / "lock")
    forge = wiring.forge_of(key)
    assert isinstance(forge, LocalForge), "a private tracker"
    try:
        copy_beginning(original, folder)
        provider = settings.provider()
        user, title = original.row.user, original.row.title
        wiring.ledger.put(key, uuid=uuid, user=user, title=title, provider=provider.name, model=provider.model)
        log.setup(folder / "worker.log", uuid=uuid, redact=Redactor(settings.secrets()), stderr=False)
        while True:
            claim = wiring.ledger.claim(uuid, wiring.owner, LEASE_SECONDS)
            task = forge.task(int(key.task_id))
            assert task is not None, "the issue of the copy is open"
            task.uuid = uuid
            outcome = TaskHandler(wiring, attempt=claim.attempt, publishing=False).handle(task)
            used = answers_in(settings, uuid)
            if outcome.end not in (End.ASKED, End.PAUSED) or used >= original.answers():
                return ""
            answer_again(forge, key, original.said_after(used), used)
            wiring.ledger.request(uuid, "resume")
    except Fenced:
        raise
    except MakimonoError as error:
        return str(error)
    finally:
        proc.end_tree(uuid)
        log.close()
        wiring.close()
        disk.unlock(lock)


def answer_again(forge: LocalForge, key: TaskKey, said: list[str], number: int) -> None:
    """Say again what people said while the recorded task waited."""
    path = Path(forge.instance) / "issues" / f"{key.task_id}.comments.jsonl"
    now = clock.stamp()
    lines = [
        orjson.dumps(
            {"id": number * 1000 + place, "author": "replay", "body": text, "created_at": now, "updated_at": now},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        for place, text in enumerate(said or ["Go on."], 1)
    ]
    before = path.read_bytes() if path.exists() else b""
    disk.write_file(path, before + b"".join(lines))


def answers_in(settings: Settings, uuid: str) -> int:
    """How many answers the copy has taken in."""
    folder = folder_of(settings, uuid)
    if folder is None:
        return 0
    return sum(
        record.get("role") == "assistant" and record.get("kind") != "summary"
        for _, record in records(folder / "messages.jsonl")
    )


# --- compared ------------------------------------------------------------------------------------------------


def compare(settings: Settings, original: Recorded, uuid: str, error: str) -> Replayed:
    """The two work trees as git would commit them, and what the rows say."""
    with closing(Wiring(settings)) as wiring:
        row = wiring.ledger.get(uuid)
    folder = folder_of(settings, uuid)
    assert row is not None and folder is not None, "the copy was just made"  # noqa: PT018 - both or neither
    with tempfile.TemporaryDirectory(prefix="makimono-compare-") as scratch:
        objects = Path(scratch) / "objects"
        objects.mkdir()
        was = tree_of(original.folder, Path(scratch), objects)
        now = tree_of(folder, Path(scratch), objects)
        changed: tuple[str, ...] = ()
        if was and now and was != now:
            env = borrowing(objects, original.folder, folder)
            done = git("diff-tree", "-r", "-z", "--name-only", was, now, git_dir=folder / "git", env=env)
            changed = tuple(name for name in done.output.decode("utf-8", "replace").split("\0") if name)
    answers, used = original.answers(), answers_in(settings, uuid)
    why = error or (row.error_message or "" if row.status is Status.FAILED else "")
    if used >= answers and original.row.status is not Status.COMPLETED:
        why = ""  # the recording ends in the middle, and so does the copy
    if not was:
        why = why or f"the work tree of {original.uuid} is gone; there is nothing to compare with"
    return Replayed(
        uuid=original.uuid,
        copy=uuid,
        same=bool(was) and was == now and used >= answers,
        recorded=was,
        came_to=now,
        changed=changed,
        status_recorded=str(original.row.status),
        status=str(row.status),
        answers=answers,
        used=used,
        error=why,
        folder=settings.base_dir,
        task=folder,
    )


def tree_of(folder: Path, scratch: Path, objects: Path) -> str:
    """The work tree of a task's folder as the git tree that a commit of it would have; "" when it is gone.

    Index and objects are made elsewhere, so that the folder stays as it is.
    """
    work, own = folder / "workspace", folder / "git"
    if own.is_dir() and not work.is_dir() and (state := gitdir.read_state(own)) is not None and state.gone:
        done = git("rev-parse", "--verify", "--quiet", "HEAD^{tree}", git_dir=own, check=False)  # all was committed
        return done.output.decode().strip()
    if not work.is_dir() or not own.is_dir():
        return ""
    index = scratch / f"index-{folder.name}"
    if (own / "index").is_file():
        shutil.copyfile(own / "index", index)
    env = {"GIT_INDEX_FILE": str(index), **borrowing(objects, folder)}
    Stage(own, work, env).update()
    return git("write-tree", git_dir=own, env=env).output.decode().strip()


def borrowing(objects: Path, *folders: Path) -> dict[str, str]:
    """git's environment in which new objects go to `objects` and those of the folders are found."""
    alternates = ":".join(f'"{folder / "git" / "objects"}"' for folder in folders)
    return {
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternates,
        "GIT_OPTIONAL_LOCKS": "0",
    }
