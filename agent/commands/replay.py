"""`replay` runs a recorded task again, with the recorded answers, on a copy, without publishing.

The copy of a replayed task is a base_dir of its own below `base_dir/replays/`, with its own database, mirror and task.
The copy begins with the recorded system prompt and briefing, unchanged, and with the commit at which the recorded task
began. So a change of the issue or the repository after the recording has no effect on the replay. Comments that people
wrote while the recorded task waited are posted to the copy when the copy waits. The replay only reads the folder of the
original task: it writes git objects for the comparison to a temporary folder.
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

from agent import clock, durable_files
from agent.errors import ContextError, Fenced, MakimonoError, UsageError
from agent.forge.base import Comment
from agent.forge.local import issue_files
from agent.forge.local.forge import OWNER, REPO
from agent.gitcmd import git
from agent.observe.events import Events, to_log
from agent.store import configured_ledger
from agent.store.jsonl import records
from agent.values import End, Status, TaskKey
from agent.wiring import private_tracker
from agent.wiring.folders import REPLAYS, folder_of
from agent.wiring.wiring import Wiring
from agent.work import gitdir
from agent.work.commit import Index
from agent.work.rebase import has_commit
from agent.worker.attempt import Mode, attempt, hold
from agent.worker.long_term_memory import OFFERED
from agent.worker.task_templates import FILE as TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.config import Settings
    from agent.taskqueue import Ledger, Row
    from agent.values import Json, Listener

HEAD = ("system", "task")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The result of a replay.

    `same`: the copy used every recorded answer, and the trees of both tasks are equal. `recorded` and `came_to` are the
    git trees of the original and of the copy, "" where a work tree is gone; `changed` has the paths that differ between
    them. `folder` is the copy's base_dir, and `task` is the folder of the copied task in it.
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
class RecordedTask:
    """A recorded task that can be replayed."""

    uuid: str
    folder: Path
    row: Row
    metadata: Json
    state: gitdir.WorkspaceState

    @property
    def messages(self) -> Path:
        """The path of the task's messages.jsonl."""
        return self.folder / "messages.jsonl"

    def records(self) -> Iterator[Json]:
        """Every message of the task, in order."""
        yield from (record for _, record in records(self.messages))

    def answers(self) -> int:
        """The number of answers of the model in the recorded task."""
        return sum(record.get("role") == "assistant" and record.get("kind") != "summary" for record in self.records())

    def said_after(self, answer: int) -> list[str]:
        """The comments that people wrote between the model's answer number `answer` (counted from 1) and its next
        answer."""
        seen, said = 0, []
        for record in self.records():
            if record.get("role") == "assistant" and record.get("kind") != "summary":
                seen += 1
            elif seen == answer and record.get("kind") == "comment":
                said.append(str(record.get("content") or ""))
        return said


def replay(settings: Settings, ledger: Ledger, prefix: str, listeners: Sequence[Listener] = ()) -> ReplayReport:
    """Replay the task with a uuid that begins with `prefix`.

    Raises UsageError when there is no such task, when it is running, or when files that the replay needs are missing.
    """
    original = find_recorded(settings, ledger, prefix)
    place = durable_files.make_dir(
        durable_files.make_dir(settings.base_dir, durable_files.passable()) / REPLAYS, durable_files.passable()
    )
    name = f"{original.uuid[:8]}-{clock.stamp()[:19].replace(':', '').replace('-', '')}-{uuid4().hex[:4]}"
    place = durable_files.make_dir(place / name, durable_files.passable())
    copy = settings_of_copy(settings, original, place)
    source = make_source(original, place)
    tracker = private_tracker.make_tracker(
        copy, issue_of(original, settings), str(source), number=number_of(original), replay_of=original.uuid
    )
    key = TaskKey("local", OWNER, REPO, "issue", number_of(original), str(tracker))
    uuid = str(uuid4())
    error = run_again(copy, original, key, uuid, listeners)
    return compare(copy, original, uuid, error)


def find_recorded(settings: Settings, ledger: Ledger, prefix: str) -> RecordedTask:
    """The task with a uuid that begins with `prefix`, if its files are sufficient for a replay. Raises UsageError if
    the files are not sufficient, or if the task is running."""
    uuid = ledger.resolve(prefix)
    row = ledger.get(uuid)
    folder = folder_of(settings, uuid)
    if row is None or folder is None:
        raise UsageError(f"task {uuid} has no folder any more; there is nothing to replay")
    if row.status is Status.RUNNING or (folder.parent.name == "running" and durable_files.is_locked(folder / "lock")):
        raise UsageError(f"task {uuid} is running; replay it when it has ended, or `stop {uuid}`")
    try:
        metadata = orjson.loads((folder / "metadata.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}/metadata.json cannot be read ({error}); the task cannot be replayed") from error
    state = gitdir.read_state(folder / "git")
    if state is None:
        raise UsageError(f"task {uuid} never had a work tree; there is nothing to replay")
    found = RecordedTask(uuid, folder, row, metadata, state)
    if not (found.messages.is_file() and found.answers()):
        raise UsageError(f"task {uuid} has no recorded answer; there is nothing to replay")
    return found


# --- the copy ------------------------------------------------------------------------------------------------


def settings_of_copy(settings: Settings, original: RecordedTask, place: Path) -> Settings:
    """The settings for the copy: its own base_dir, a ledger in it, and the recorded answers in place of a model, under
    the model's name and with its window."""
    config = original.metadata.get("config") or {}
    update: dict[str, Any] = {"messages": original.messages, "model": str(config.get("model") or "replay")}
    if isinstance(config.get("context_length"), int):
        update["context_length"] = config["context_length"]
    replayed = settings.llm.replay.model_copy(update=update)
    llm = settings.llm.model_copy(update={"provider": "replay", "replay": replayed})
    summary = settings.context_storage.summary_model.model_copy(update={"provider": None, "model": None})
    kept = {"base_dir": place, "enabled": True, "replica": None, "summary_model": summary}
    storage = settings.context_storage.model_copy(update=kept)
    queue = settings.taskqueue.model_copy(update={"ledger": configured_ledger.OWN, "broker": None})
    memory = settings.memory.model_copy(update={"enabled": False})  # a replay must change no long-term memory
    sections = {"llm": llm, "context_storage": storage, "taskqueue": queue, "memory": memory}
    return settings.model_copy(update=sections)


def make_source(original: RecordedTask, place: Path) -> Path:
    """A bare repository with its base branch at the commit where the recording began; an empty repository if the
    original was empty. Raises UsageError if the commit from which the task started is gone."""
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


def number_of(original: RecordedTask) -> str:
    """The number of the recorded issue, so that branch and texts are the same as in the recording; "1" if it is not a
    number."""
    return original.row.task_id if _NUMBER.fullmatch(original.row.task_id) else "1"


def issue_of(original: RecordedTask, settings: Settings) -> bytes:
    """The issue of the copy, with the recorded title and author; the request itself is in the recorded briefing."""
    title = " ".join(str(original.metadata.get("title") or original.row.title or "").split()) or "A recorded task"
    label = settings.local.processing_label or settings.local.bot_label
    body = f"The briefing of task {original.uuid}, as it was recorded, is the second message of the conversation.\n"
    return issue_files.IssueFile(title, original.row.user or "replay", body).rendered(label)


def copy_beginning(original: RecordedTask, folder: Path) -> None:
    """Copy the recorded system prompt and briefing, the marker of their fences, the recalled memories, whether the
    model had the tool `recall`, the calls of MCP servers, the decisions of reviewers, and the templates to the new
    task. Raises ContextError if the recording begins with other messages."""
    lines = []
    for record in original.records():
        if record.get("kind") not in HEAD:
            break
        lines.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    if [orjson.loads(line)["kind"] for line in lines] != list(HEAD):
        raise ContextError(f"{original.messages} does not begin with a system prompt and a briefing")
    durable_files.write_file(folder / "messages.jsonl", lines)
    for _, record in records(original.folder / "effects.jsonl"):
        if record.get("name") == OFFERED:
            line = orjson.dumps({**record, "seq": 1}, option=orjson.OPT_APPEND_NEWLINE)
            durable_files.write_file(folder / "effects.jsonl", [line])
    for name in (
        "recalled.jsonl",
        "mcp.jsonl",
        "deliberations.jsonl",
        TEMPLATES,
    ):  # in a replay, MCP servers, reviewers and the tool `recall` return the recorded results
        recorded = original.folder / name
        if recorded.is_file() and not recorded.is_symlink():
            durable_files.write_file(folder / name, [recorded.read_bytes()])
    own = {"uuid": folder.name, "created_at": clock.stamp(), "process_id": os.getpid(), "hostname": os.uname().nodename}
    metadata = {**original.metadata, **own, "replay_of": original.uuid}
    durable_files.write_file(folder / "metadata.json", orjson.dumps(metadata, option=orjson.OPT_INDENT_2))


# --- again ---------------------------------------------------------------------------------------------------


def run_again(
    settings: Settings, original: RecordedTask, key: TaskKey, uuid: str, listeners: Sequence[Listener]
) -> str:
    """Queue the copied task and work on it; while it waits as the recorded task did, post the recorded comments and
    continue. Returns the text of the error that ended the replay, "" if there was none; if the copied task itself
    failed, its row has the reason."""
    with closing(Wiring(settings, events=Events([to_log]))) as wiring, hold(settings, uuid) as folder:
        for listener in listeners:
            wiring.events.on(listener)
        try:
            copy_beginning(original, folder)
            provider = settings.provider()
            user, title = original.row.user, original.row.title
            wiring.ledger.enqueue(key, uuid=uuid, user=user, title=title, provider=provider.name, model=provider.model)
            while True:
                outcome, _ = attempt(wiring, uuid, Mode(publishing=False))
                used = answers_in(settings, uuid)
                if outcome.end not in (End.ASKED, End.PAUSED) or used >= original.answers():
                    return ""
                answer_again(key, original.said_after(used), used)
                wiring.ledger.request(uuid, "resume")
        except Fenced:
            raise
        except MakimonoError as error:
            return str(error)


def answer_again(key: TaskKey, said: list[str], number: int) -> None:
    """Post the recorded comments `said` to the issue of the copy; "Go on." if there are none."""
    now = clock.stamp()
    comments = [
        Comment(str(number * 1000 + place), "replay", text, now, now)
        for place, text in enumerate(said or ["Go on."], 1)
    ]
    issue_files.add_comments(Path(key.instance), key.task_id, comments)


def answers_in(settings: Settings, uuid: str) -> int:
    """The number of recorded answers that the copy has used."""
    folder = folder_of(settings, uuid)
    if folder is None:
        return 0
    return sum(
        record.get("role") == "assistant" and record.get("kind") != "summary"
        for _, record in records(folder / "messages.jsonl")
    )


# --- compared ------------------------------------------------------------------------------------------------


def compare(settings: Settings, original: RecordedTask, uuid: str, error: str) -> ReplayReport:
    """Compare the work trees of the recorded task and of the copy as git would commit them, and the rows."""
    with closing(Wiring(settings)) as wiring:
        row = wiring.ledger.get(uuid)
    folder = folder_of(settings, uuid)
    assert row is not None and folder is not None, "the copy was just made"  # noqa: PT018 - the copy has either both a row and a folder, or neither
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
        why = ""  # no error: the recording ends in the middle of the task, so the copy does too
    if not was:
        why = why or f"the work tree of {original.uuid} is gone; there is nothing to compare with"
    return ReplayReport(
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
    """The git tree that a commit of the work tree in a task's folder would have; the tree of HEAD when the program has
    removed the work tree after its changes were committed; "" when the work tree or the git directory is missing for
    another reason.

    Git writes its index to `scratch` and new objects to `objects`, so that the task's folder stays unchanged.
    """
    work, own = folder / "workspace", folder / "git"
    if own.is_dir() and not work.is_dir() and (state := gitdir.read_state(own)) is not None and state.gone:
        # the program has removed the work tree because all its changes were committed
        done = git("rev-parse", "--verify", "--quiet", "HEAD^{tree}", git_dir=own, check=False)
        return done.output.decode().strip()
    if not work.is_dir() or not own.is_dir():
        return ""
    index = scratch / f"index-{folder.name}"
    if (own / "index").is_file():
        shutil.copyfile(own / "index", index)
    env = {"GIT_INDEX_FILE": str(index), **borrowing(objects, folder)}
    Index(own, work, env).update()
    return git("write-tree", git_dir=own, env=env).output.decode().strip()


def borrowing(objects: Path, *folders: Path) -> dict[str, str]:
    """The environment with which git writes new objects to `objects`, and also finds the objects of the tasks in
    `folders`."""
    alternates = ":".join(f'"{folder / "git" / "objects"}"' for folder in folders)
    return {
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternates,
        "GIT_OPTIONAL_LOCKS": "0",
    }
