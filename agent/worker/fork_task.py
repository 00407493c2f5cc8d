"""Makes the task of `solve --from UUID --at SEQ`: a new task that begins from the state of another task after its
message SEQ.

The new task gets these parts of the other task: the conversation up to and including SEQ, with the compactions and
summaries that existed at SEQ, so that the same projection gives the same view; its tool calls with their results and
saved outputs; and the work tree at the newest commit that the other task had *published* by then (recorded no later
than SEQ). The new task does not get other parts, such as uncommitted or unpublished work, files that commands left
outside the tree, and running processes. An additional message tells the model which parts of the other task are
missing. The new task has its own uuid, branch, comments and pull request.

`from.json` in the new folder names the origin of the task; `work_tree_start.py` reads it.  The cost of the copied part
counts only for the other task: the counters and limits of the new task begin at zero.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agent import clock, durable_files
from agent.context import projection
from agent.context.cost_totals import Totals
from agent.context.index import Cut, MessageIndex
from agent.context.mcp import TOOLS
from agent.context.outside_effects import NAME as EFFECTS
from agent.context.provider_fields import Origin
from agent.errors import UsageError
from agent.gitcmd import git
from agent.store.jsonl import backwards, records
from agent.wiring.folders import folder_of
from agent.work import gitdir
from agent.work.publish import PUSH
from agent.work.rebase import has_commit
from agent.worker import fork_points
from agent.worker.task_templates import FILE as TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.taskqueue import Ledger, Row
    from agent.values import Json

FILE = "from.json"
COPIED = ("outputs", "images")
"""Folders of a task with files to which its messages refer."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The point from which a task begins: the other task's uuid, its last message, and the commit (None: an empty
    repository)."""

    uuid: str
    seq: int
    commit: str | None


def fork_point(settings: Settings, ledger: Ledger, prefix: str, seq: int) -> tuple[Row, ForkPoint]:
    """Returns (the row of the other task, the point in its conversation).

    Raises UsageError if there is no such task, if its files are missing, if it never had a work tree, if it is not
    about an issue, or if no group ends with message `seq`; the last error names the nearest messages that end a group.
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
    return row, ForkPoint(uuid, seq, _published(folder, state, at))


def _time_of(folder: Path, uuid: str, seq: int) -> str:
    """The time at which message `seq` was written; raises UsageError if the message does not end a group."""
    before, after = None, None
    for record, ends in fork_points.messages(folder):
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


def _published(folder: Path, state: gitdir.WorkspaceState, at: str) -> str | None:
    """The commit of the other task's last push up to the time `at`; if it had pushed nothing, the commit at which that
    task started (None in an empty repository)."""
    for _, record in backwards(folder / EFFECTS):
        is_push = record.get("state") == "receipt" and str(record.get("name")).startswith(PUSH)
        # `at` and `timestamp` have the same format, so their order as strings is their order in time
        if is_push and str(record.get("timestamp")) <= at:
            return str(record["receipt"]["commit"])
    return state.start or state.base_commit


def fork_from(settings: Settings, point: ForkPoint, folder: Path) -> None:
    """Fill the folder of the new task with the parts that it gets from the other task. Raises UsageError if the folder
    of the other task is gone."""
    source = folder_of(settings, point.uuid)
    if source is None:
        raise UsageError(f"task {point.uuid} has no folder any more; nothing can begin from it")
    last_call, outputs = 0, set()
    for record in _messages(source, point.seq):
        last_call = max(last_call, int(record.get("tool_seq") or 0))
        outputs |= _named(record)
    for record in _calls(source, last_call):
        outputs |= _named(record)
    # Each file of the new folder is written whole or not at all.  If the process dies before messages.jsonl is written,
    # the conversation of the new task begins from its issue; if it dies later, the compactions or the inherited costs
    # may be missing.
    _lines(folder / "tools.jsonl", _calls(source, last_call))
    _outputs(source, folder, outputs)
    # metadata.json is copied because it has the marker of the fences in the copied texts
    metadata = orjson.loads((source / "metadata.json").read_bytes())
    own = {"uuid": folder.name, "created_at": clock.stamp(), "process_id": os.getpid(), "hostname": os.uname().nodename}
    pretty = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    durable_files.write_file(folder / "metadata.json", orjson.dumps({**metadata, **own}, option=pretty))
    _lend(source, point.commit, folder.name)
    durable_files.write_file(folder / FILE, orjson.dumps(asdict(point), option=pretty))
    _lines(folder / "recalled.jsonl", _recalled(source, point.seq))
    _lines(folder / "mcp.jsonl", _offered(source))
    if (source / TEMPLATES).is_file():
        durable_files.write_file(folder / TEMPLATES, (source / TEMPLATES).read_bytes())
    _lines(folder / "messages.jsonl", _messages(source, point.seq))
    newest = max((int(record.get("summary_id") or 0) for record in _compactions(source, point.seq)), default=0)
    _lines(folder / "summaries.jsonl", _summaries(source, newest))
    _lines(folder / "compactions.jsonl", _compactions(source, point.seq))
    provider = settings.provider()
    projection.derive(folder, folder / "current.jsonl", Origin(provider.wire, provider.model))
    _cost(folder, last_call).write_inherited(folder)


def _cost(folder: Path, tool_calls: int) -> Totals:
    """The cost that the copied part of the conversation had for the other task; the new task counts only its own turns
    and tokens.

    Only requests in messages.jsonl are counted for the cost, because requests.jsonl is not copied.
    """
    cut = Cut.read(folder / "compactions.jsonl")
    survey = MessageIndex.read(folder / "messages.jsonl", cut)
    return Totals(
        survey.llm_calls,
        survey.prompt,
        survey.completion,
        survey.cached,
        cut.count,
        tool_calls,
        turns=survey.turns,
    )


# Each function from `_messages` to `_summaries` yields the records of one file that are copied, one in memory at a
# time, since a conversation may have any length.


def _messages(source: Path, seq: int) -> Iterator[Json]:
    return (record for _, record in records(source / "messages.jsonl") if record["seq"] <= seq)


def _calls(source: Path, last: int) -> Iterator[Json]:
    return (record for _, record in records(source / "tools.jsonl") if record["seq"] <= last)


def _recalled(source: Path, seq: int) -> Iterator[Json]:
    """The retrievals from long-term memory that were made before message `seq` was written."""
    last = max((str(record.get("timestamp")) for record in _messages(source, seq)), default="")
    return (record for _, record in records(source / "recalled.jsonl") if str(record.get("timestamp")) <= last)


def _offered(source: Path) -> Iterator[Json]:
    """The descriptions of the MCP tools of the other task, which the new task offers too."""
    return (record for _, record in records(source / "mcp.jsonl") if record.get("kind") == TOOLS)


def _compactions(source: Path, seq: int) -> Iterator[Json]:
    """The compactions that were made before the message after `seq` was written."""
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
        durable_files.write_file(path, lines)


def _outputs(source: Path, folder: Path, names: set[str]) -> None:
    for name in sorted(names):
        path = source / name
        if path.parent.name in COPIED and path.parent.parent == source and path.is_file() and not path.is_symlink():
            durable_files.make_dir(folder / path.parent.name)
            with durable_files.writing(folder / name):
                shutil.copyfile(path, folder / name)
                (folder / name).chmod(0o600)


def _lend(source: Path, commit: str | None, uuid: str) -> None:
    """Fetch the commit into the mirror, in case its branch was removed from the remote and the mirror never fetched
    it."""
    own = source / "git"
    lender = (own / "objects" / "info" / "alternates").read_text("utf-8").splitlines()
    mirror = Path(lender[0]).parent if lender else None
    if commit is None or mirror is None or not mirror.is_dir():
        return  # there is no commit to fetch, or no mirror now, which the new task will create
    with durable_files.locked(mirror.with_name(f".{mirror.name}.lock")) as lock:
        if not has_commit(mirror, commit):
            argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", str(own))
            git(*argv, f"{commit}:refs/makimono/{uuid}", git_dir=mirror, pass_fds=(lock,))


def read_fork_point(folder: Path) -> ForkPoint | None:
    """Read from which point of another task the task with this folder begins; None for a task that begins from its
    issue."""
    try:
        return ForkPoint(**orjson.loads((folder / FILE).read_bytes()))
    except FileNotFoundError:
        return None
