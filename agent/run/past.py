"""`solve --from UUID --at SEQ`: a new task that begins where another one was after its message SEQ.

Restored are: the conversation up to and including SEQ, with the compactions and summaries that had been made by then,
so that the same projection gives the same view; the tool calls whose results stand in it, with their kept outputs; and
the work tree at the newest commit that the other task had *published* by then (its receipt is not younger than SEQ).
Not restored: what had not been committed and published, what commands had left outside the tree, running processes.
The model is told so in one message more.  The new task has its own uuid, branch, comments and pull request.

`from.json` in the new folder says where it comes from; `TaskRun` reads it.  What the copied part had cost stays the
other task's: the new one's counters and limits begin at nothing.  Called by `solve.py`.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agent import clock, disk
from agent.context import projection
from agent.context.effects import NAME as EFFECTS
from agent.context.provider_fields import Origin
from agent.context.survey import Cut, Survey
from agent.context.totals import Totals
from agent.errors import UsageError
from agent.gitcmd import git
from agent.run import points
from agent.run.folders import folder_of
from agent.store.jsonl import backwards, records
from agent.work import gitdir
from agent.work.publish import PUSH
from agent.work.rebase import has_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.taskqueue import Ledger, Row
    from agent.values import Json

FILE = "from.json"
COPIED = ("outputs", "images")
"""Folders of a task with files that its messages name."""


@dataclass(frozen=True, slots=True)
class PastPoint:
    """Where a task comes from: the other one's uuid, the last message, and the commit (None: an empty repository)."""

    uuid: str
    seq: int
    commit: str | None


def past_point(settings: Settings, ledger: Ledger, prefix: str, seq: int) -> tuple[Row, PastPoint]:
    """The row of the other task and the point in it.

    UsageError when there is no such task, too little is kept of it, it is no issue's, or no group ends with `seq`; then
    the nearest messages that do are named.
    """
    uuid = ledger.resolve(prefix)
    row, folder = ledger.get(uuid), folder_of(settings, uuid)
    if row is None or folder is None:
        raise UsageError(f"task {uuid} has no folder any more; nothing can begin from it")
    if row.key.task_type != "issue":
        raise UsageError(f"task {uuid} is a {row.key.task_type}; only an issue's task can be begun from a past point")
    state = gitdir.read_state(folder / "git")
    if state is None:
        raise UsageError(f"task {uuid} never had a work tree; nothing can begin from it")
    at = _time_of(folder, uuid, seq)
    return row, PastPoint(uuid, seq, _published(folder, state, at))


def _time_of(folder: Path, uuid: str, seq: int) -> str:
    """When the message was written; UsageError when it does not end a group."""
    before, after = None, None
    for record, ends in points.messages(folder):
        number = int(record["seq"])
        if not ends:
            continue
        if number == seq:
            return str(record["timestamp"])
        before = number if number < seq else before
        after = number if after is None and number > seq else after
    if before is None and after is None:
        raise UsageError(f"task {uuid} has no briefing; nothing can begin from it")
    near = [str(number) for number in (before, after) if number is not None]
    raise UsageError(
        f"--at {seq}: no message of task {uuid} with that number ends a group (an answer with all its results); the "
        f"nearest {'is' if len(near) == 1 else 'are'} {' or '.join(near)}; `show {uuid}` lists them"
    )


def _published(folder: Path, state: gitdir.State, at: str) -> str | None:
    """The commit whose push was noted last by then, else where the task began."""
    for _, record in backwards(folder / EFFECTS):
        is_push = record.get("state") == "receipt" and str(record.get("name")).startswith(PUSH)
        if is_push and str(record.get("timestamp")) <= at:  # one form of time, which sorts as it is written
            return str(record["receipt"]["commit"])
    return state.start or state.base_commit


def begin_from(settings: Settings, point: PastPoint, folder: Path) -> None:
    """Fill the new task's folder."""
    source = folder_of(settings, point.uuid)
    if source is None:
        raise UsageError(f"task {point.uuid} has no folder any more; nothing can begin from it")
    last_call, outputs = 0, set()
    for record in _messages(source, point.seq):
        last_call = max(last_call, int(record.get("tool_seq") or 0))
        outputs |= _named(record)
    for record in _calls(source, last_call):
        outputs |= _named(record)
    # Each is whole or not there; cut off between two, the task begins from its issue, or with nothing compacted yet.
    _lines(folder / "tools.jsonl", _calls(source, last_call))
    _outputs(source, folder, outputs)
    metadata = orjson.loads((source / "metadata.json").read_bytes())  # with the fence of the texts that are copied
    own = {"uuid": folder.name, "created_at": clock.stamp(), "process_id": os.getpid(), "hostname": os.uname().nodename}
    pretty = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    disk.write_file(folder / "metadata.json", orjson.dumps({**metadata, **own}, option=pretty))
    _lend(source, point.commit, folder.name)
    disk.write_file(folder / FILE, orjson.dumps(asdict(point), option=pretty))
    _lines(folder / "messages.jsonl", _messages(source, point.seq))
    newest = max((int(record.get("summary_id") or 0) for record in _compactions(source, point.seq)), default=0)
    _lines(folder / "summaries.jsonl", _summaries(source, newest))
    _lines(folder / "compactions.jsonl", _compactions(source, point.seq))
    provider = settings.provider()
    projection.derive(folder, folder / "current.jsonl", Origin(provider.wire, provider.model))
    _cost(folder, last_call).write_inherited(folder)


def _cost(folder: Path, tool_calls: int) -> Totals:
    """What the copied part had cost the other task; the new one counts its own turns and tokens.  Of the requests only
    those count here that have no line in requests.jsonl, which is not copied."""
    cut = Cut.of(folder / "compactions.jsonl")
    survey = Survey.of(folder / "messages.jsonl", cut)
    return Totals(
        survey.llm_calls,
        survey.prompt,
        survey.completion,
        survey.cached,
        cut.count,
        tool_calls,
        turns=survey.turns,
    )


# What of each file is kept, one record in memory at a time: a conversation may be as long as it likes.


def _messages(source: Path, seq: int) -> Iterator[Json]:
    return (record for _, record in records(source / "messages.jsonl") if record["seq"] <= seq)


def _calls(source: Path, last: int) -> Iterator[Json]:
    return (record for _, record in records(source / "tools.jsonl") if record["seq"] <= last)


def _compactions(source: Path, seq: int) -> Iterator[Json]:
    """Those that had been made when the message was the newest."""
    for _, record in records(source / "compactions.jsonl", id_key="id"):
        if int(record.get("at_seq") or record["end_seq"]) <= seq:
            yield record


def _summaries(source: Path, newest: int) -> Iterator[Json]:
    return (record for _, record in records(source / "summaries.jsonl", id_key="id") if record["id"] <= newest)


def _named(record: Json) -> set[str]:
    named = {str(record["output"])} if record.get("output") else set()
    return named | {str(picture["file"]) for picture in record.get("images") or ()}


def _lines(path: Path, kept: Iterator[Json]) -> None:
    if (first := next(kept, None)) is not None:
        lines = (orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in chain((first,), kept))
        disk.write_file(path, lines)


def _outputs(source: Path, folder: Path, names: set[str]) -> None:
    for name in sorted(names):
        path = source / name
        if path.parent.name in COPIED and path.parent.parent == source and path.is_file() and not path.is_symlink():
            disk.make_dir(folder / path.parent.name)
            with disk.writing(folder / name):
                shutil.copyfile(path, folder / name)
                (folder / name).chmod(0o600)


def _lend(source: Path, commit: str | None, uuid: str) -> None:
    """Put the commit into the mirror, should its branch be gone on the other side and the mirror never have had it."""
    own = source / "git"
    lender = (own / "objects" / "info" / "alternates").read_text("utf-8").splitlines()
    mirror = Path(lender[0]).parent if lender else None
    if commit is None or mirror is None or not mirror.is_dir():
        return  # the fetch of the new task makes the mirror
    with disk.locked(mirror.with_name(f".{mirror.name}.lock")) as lock:
        if not has_commit(mirror, commit):
            argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", str(own))
            git(*argv, f"{commit}:refs/makimono/{uuid}", git_dir=mirror, pass_fds=(lock,))


def read_point(folder: Path) -> PastPoint | None:
    """Where the task of a folder comes from, None for one that began from its issue."""
    try:
        return PastPoint(**orjson.loads((folder / FILE).read_bytes()))
    except FileNotFoundError:
        return None
