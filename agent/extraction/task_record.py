"""Reads an ended task from its folder: texts of people, the plan, commands that failed and then passed, the end.

`task_record.py` never writes, has one line of a file in memory at a time, and bounds the numbers of people's texts and
of failed commands. The module takes texts of people from the fenced regions of the conversation only, so it cannot
mistake other parts of a message (rules of the repository, memories of earlier tasks, the summary of an earlier run) for
the text of a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.folder import read_end
from agent.context.outside_effects import receipt_in
from agent.security.fence import regions
from agent.store.jsonl import records
from agent.taskqueue.base import MemoryRequest
from agent.tools.work_state import WORDS
from agent.values import End, TaskKey, Usage
from agent.window.command_history import COMMAND, CommandHistory, one_line
from agent.window.stored_output import printed_lines
from agent.worker.final_state import FinalState
from agent.worker.fork_task import read_fork_point
from agent.worker.task_facts import DELIVERY, ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.security.fence import Region
    from agent.values import Json

ISSUE_TITLE, ISSUE, COMMENT = "issue title", "issue", "comment"
PEOPLE = (ISSUE_TITLE, ISSUE, COMMENT)
"""The sources of fenced regions of which the text is a person's."""

MOST_STATEMENTS = 200
MOST_FAILURES = 40
LONGEST = 32_000
"""Maximum number of characters of a text of a person, and of the model's final text, in a task record."""
OUTPUT = 1500
"""Maximum number of characters of the output of a failed command."""

PURPOSE = "memory"
"""The `purpose` of an extraction's requests in requests.jsonl."""
EDITS = ("write_file", "edit_file")
MEMORY = "memory"
"""The `kind` of a message that has only memories."""


@dataclass(frozen=True, slots=True)
class PersonText:
    """A text that a person wrote in a task. `source` is one of PEOPLE, `seq` the number of its message. `version` tells
    a version of a comment from all others of the issue; "" for a text that is no comment, and in a conversation that
    does not record versions."""

    source: str
    author: str
    text: str
    seq: int
    at: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A command that failed `tries` times in a row.

    `ending` is the exit code or signal. `output` has the lines that report failures, and the last lines. `passed` is
    the command that succeeded afterwards, as call number `passed_seq`; it is "" if none did. `files` are the files that
    the task edited between the failure and the success of the command.
    """

    command: str
    ending: str
    output: str
    seq: int
    at: str
    tries: int = 1
    passed: str = ""
    passed_seq: int = 0
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class TaskRecord:
    """The facts about one ended task, read from its folder.

    `marker` is the random marker of the fences in the task's conversation.  `origin` and `delivery` are the receipts of
    `worker/task_facts.py`, {} if the task ended before they were written; `end` is end.json.  `summary` is the model's
    final text, `written` the paths that its tools wrote, and `commands` the number of commands that ran.
    """

    folder: Path
    uuid: str
    key: TaskKey
    marker: str
    created_at: str
    title: str
    origin: Json
    delivery: Json
    end: Json
    ending: FinalState | None
    statements: list[PersonText] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    summary: str = ""
    commands: int = 0

    @property
    def ended_at(self) -> str:
        """The time at which the task ended, or if end.json does not have it, the time at which the task was created."""
        return str(self.end.get("completed_at") or self.created_at)

    @property
    def files(self) -> tuple[str, ...]:
        """Files that the task changed: those of its commits, else those that its tools wrote."""
        return tuple(self.delivery.get("files") or self.written)

    @property
    def is_verified(self) -> bool:
        """Whether the check passed on the task's commit."""
        return bool((self.delivery.get("check") or {}).get("ok"))

    @property
    def ended_by_model(self) -> bool:
        """Whether the model wrote the text of the task's end, also True if no final state is recorded. If the model did
        not write the text, this program did, and the text may contain an error message of a server."""
        return self.ending is None or self.ending.outcome.end in (End.FINISHED, End.ANSWERED, End.ASKED)

    @property
    def message(self) -> str:
        """The message about the end that is recorded with the final state, such as that of an error; "" for none."""
        return self.ending.message if self.ending is not None else ""

    def texts_of_others(self) -> Iterator[str]:
        """Texts that the model read and that no person wrote for this task: results of tools (those of `recall` too,
        but not those of the tools in WORDS), rules of the repository, memories of earlier tasks."""
        for _, record in records(self.folder / "tools.jsonl"):
            if record.get("tool") not in WORDS:
                yield str(record.get("result") or "")
        for _, record in records(self.folder / "messages.jsonl"):
            if record.get("role") == "user":
                content = str(record.get("content") or "")
                if record.get("kind") == MEMORY:
                    yield content
                yield from (one.text for one in regions(content, self.marker) if one.source not in PEOPLE)


def read_task(folder: Path) -> TaskRecord:
    """Read the task in a folder.  Raises OSError, ValueError or KeyError if `folder` is not the folder of a task."""
    metadata = orjson.loads((folder / "metadata.json").read_bytes())
    found = TaskRecord(
        folder,
        str(metadata["uuid"]),
        TaskKey.from_mapping(metadata["task_key"]),
        str(metadata.get("fence") or ""),
        str(metadata["created_at"]),
        str(metadata.get("title") or ""),
        receipt_in(folder, ORIGIN) or {},
        receipt_in(folder, DELIVERY) or {},
        read_end(folder),
        FinalState.load(folder),
    )
    found.statements = list(_statements(folder, found.marker))
    _read_calls(found)
    if found.ending is not None and found.ending.outcome.summary:
        found.summary = found.ending.outcome.summary[:LONGEST]
    return found


# --- people ----------------------------------------------------------------------------------------------------


def _statements(folder: Path, marker: str) -> Iterator[PersonText]:
    """The texts of people in the order of the conversation, each once, the first MOST_STATEMENTS.

    The conversation may have the briefing twice, the second time shortened, and a comment twice, if a process died
    between the append of its text and the move of the cursor.
    """
    known: set[tuple[str, ...]] = set()
    for _, record in records(folder / "messages.jsonl"):
        if record.get("role") != "user" or record.get("kind") not in ("task", "comment"):
            continue
        for region, version in versions_of(record, marker):
            text = region.text.strip()
            what = (version,) if version else (region.source, region.author, text)
            if region.source not in PEOPLE or not text or what in known:
                continue
            if len(known) == MOST_STATEMENTS:
                return
            known.add(what)
            at = str(record.get("timestamp") or "")
            yield PersonText(region.source, region.author, text[:LONGEST], int(record["seq"]), at, version)


def versions_of(record: Json, marker: str) -> Iterator[tuple[Region, str]]:
    """The fenced texts of a message, each with the version of its comment, "" for a text that is no comment.

    The message's record may list more comments than its text contains: a briefing that was shortened for a smaller
    window lacks the oldest comments.
    """
    found = list(regions(str(record.get("content") or ""), marker))
    named = [f"{one['id']}@{one['at']}" for one in record.get("comments") or () if one.get("id")]
    shown = [number for number, one in enumerate(found) if one.source == COMMENT]
    versions = dict(zip(reversed(shown), reversed(named), strict=False))
    yield from ((one, versions.get(number, "")) for number, one in enumerate(found))


# --- the work --------------------------------------------------------------------------------------------------


def _forked_at(folder: Path) -> int:
    """The number of the last tool call that a fork copied from another task; 0 for none."""
    point = read_fork_point(folder)
    if point is None:
        return 0
    copied = (record for _, record in records(folder / "messages.jsonl") if record["seq"] <= point.seq)
    return max((int(record.get("tool_seq") or 0) for record in copied), default=0)


def _calls(folder: Path, after: int) -> Iterator[Json]:
    return (record for _, record in records(folder / "tools.jsonl") if record["seq"] > after)


def _read_calls(found: TaskRecord) -> None:
    """Set plan, commands, failures, written files and summary of `found` from the tool calls of the task, without those
    that a fork copied from another task."""
    repairs = _Repairs(found.folder)
    written: dict[str, None] = {}
    for record in _calls(found.folder, _forked_at(found.folder)):
        tool, arguments = record.get("tool"), record.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if tool == COMMAND:
            found.commands += 1
            repairs.add(record)
        if record.get("status") != "success":
            continue
        if tool in EDITS and isinstance(arguments.get("path"), str):
            path = arguments["path"].removeprefix("./")
            written[path] = None
            repairs.edited(path)
        elif tool == "update_plan":
            found.plan = [
                one_line(str(one.get("text"))) for one in arguments.get("items") or () if isinstance(one, dict)
            ]
        elif tool == "finish":
            found.summary = str(arguments.get("summary") or "")[:LONGEST]
    found.written = [path for path in written if not path.startswith(("/", ".."))]
    found.failures = repairs.result()


class _Repairs:
    """Pairs each failed command with the command that passed afterwards; `window/command_history.py` decides which
    command resolves a failure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places = [f"{folder.parent.parent / name / folder.name}/workspace/" for name in ("running", "completed")]
        self.commands = CommandHistory()
        self.found: dict[int, Failure] = {}  # number of a failed call → its record, resolved or not
        # Number of an unresolved failed call → files that were edited since.
        self.edits: dict[int, dict[str, None]] = {}

    def add(self, record: Json) -> None:
        """Add the record of one command, in the order of the calls."""
        seq = int(record["seq"])
        before = {one.seq for one in self.commands.failures}
        self.commands.add(record, 0)
        after = {one.seq: one for one in self.commands.failures}
        gone = [self.found[number] for number in before - after.keys() if number in self.found]
        if seq in after:
            self.found[seq] = self._failure(record, gone)
            self.edits[seq] = {path: None for one in gone for path in self.edits.get(one.seq, {})}
        line = one_line(str((record.get("args") or {}).get("command") or ""))
        for one in gone:
            edits = tuple(self.edits.pop(one.seq, {}))
            if seq in after:
                del self.found[one.seq]
            else:
                self.found[one.seq] = replace(one, passed=line, passed_seq=seq, files=edits)
        self._bound()

    def _failure(self, record: Json, gone: list[Failure]) -> Failure:
        result = str(record.get("result") or record.get("error") or "")
        ending = one_line(result.partition("\n")[0]).strip("[]")
        output = printed_lines(record, self.folder).excerpt(OUTPUT, len)
        for place in self.places:
            output = output.replace(place, "")
        command = one_line(str((record.get("args") or {}).get("command") or ""))
        tries = 1 + sum(one.tries for one in gone)
        return Failure(command, ending, output, int(record["seq"]), str(record.get("timestamp") or ""), tries)

    def edited(self, path: str) -> None:
        """Add an edited file to every failure that no command has resolved yet."""
        for files in self.edits.values():
            files[path] = None

    def _bound(self) -> None:
        """If there are more than MOST_FAILURES, drop the oldest unresolved failure, or the oldest of all if every one
        is resolved."""
        if len(self.found) > MOST_FAILURES:
            oldest = min(self.found.values(), key=lambda one: (bool(one.passed), one.seq)).seq
            del self.found[oldest]
            self.edits.pop(oldest, None)

    def result(self) -> list[Failure]:
        """All failures of commands, the oldest first."""
        return [self.found[seq] for seq in sorted(self.found)]


def memory_requests(folder: Path) -> list[MemoryRequest]:
    """The requests to a model that the extraction of this task has sent so far, in all its tries, the oldest first."""
    return [
        MemoryRequest(
            Usage.from_dict(one.get("usage") or {}),
            int(one.get("estimated_tokens") or 0),
            float(one.get("cost") or 0.0),
        )
        for _, one in records(folder / "requests.jsonl")
        if one.get("purpose") == PURPOSE
    ]


def recalled_ids(folder: Path) -> list[str]:
    """Ids of the memory records that the task got, from recalled.jsonl."""
    found: dict[str, None] = {}
    for _, record in records(folder / "recalled.jsonl"):
        for hit in _list(record.get("hits")):
            name = hit.get("id") if isinstance(hit, dict) and hit.get("kind", "record") == "record" else None
            if isinstance(name, str) and name:
                found[name] = None
    return list(found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
