"""Reads the events of one task, in order, from its files while the task runs or after its end; `show` prints them.

`timeline.py` only reads: it takes no lock, opens no store (stores repair the files that they open), and has only one
line of each file in memory. Damaged lines of a task's files are skipped; `notes` name them if the whole timeline is
read. The function `timeline` reads the task's row from the ledger; `notes` say whether the token counts are a
provider's or estimates.
"""

from __future__ import annotations

import heapq
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.context.outside_effects import ROW
from agent.store.jsonl import DamagedLines, as_int, last_record, records
from agent.taskqueue.row_holder import base_dir_of, of_another_host
from agent.tokens import counter_for
from agent.wiring.folders import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.taskqueue import Ledger, Row
    from agent.values import Json

EXCERPT = 300
"""The maximum characters that an excerpt keeps of a text; the whole text is in the file, under the number of the
timeline entry."""

NO_MORE = (float("inf"), None)

FILES = ("messages.jsonl", "requests.jsonl", "tools.jsonl", "summaries.jsonl", "compactions.jsonl", "effects.jsonl")


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One entry of a task's timeline.

    `file` and `number` say where the record of the timeline entry is. `kind` of a timeline entry is message, request,
    tool, summary, compaction or effect; `who` is the role, the purpose, the tool, the strategy or the effect, for a
    summary the messages that it replaces; `state` is the status, for a message its finish reason. `tokens` is the size
    of a message or summary according to the model's counter, for a compaction the size of the view after it, for the
    other kinds None. `prompt_tokens` and `completion_tokens` are the numbers that the provider reported with an answer;
    for a request they are reported or estimated numbers, which the totals of the task include. `message` is the number
    of the message that gave the result of a tool to the model.
    """

    at: str
    kind: str
    file: str
    number: int
    who: str
    text: str
    state: str = ""
    tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    duration_ms: int | None = None
    message: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of one task.

    `folder` is None when this host has no folder of the task, or only one without messages while another host has the
    conversation; `is_live` is True while a process holds the folder's lock.

    `notes` of a timeline are sentences about estimated numbers, missing data and damaged data.
    """

    row: Row
    folder: Path | None
    is_live: bool
    notes: tuple[str, ...]

    def head(self) -> Json:
        """All fields of a timeline except the entries, for JSON."""
        return {"row": self.row, "folder": self.folder, "live": self.is_live, "notes": self.notes}

    def entries(self) -> Iterator[TimelineEntry]:
        """Every entry of the task in the order of time; entries with the same time are in the order of their files."""
        if self.folder is None:
            return iter(())
        streams = [
            _messages(self.folder),
            _requests(self.folder),
            _tools(self.folder),
            _summaries(self.folder),
            _compactions(self.folder),
            _effects(self.folder),
        ]
        return heapq.merge(*streams, key=attrgetter("at"))


def timeline(settings: Settings, ledger: Ledger, prefix: str, *, whole: bool = True) -> Timeline:
    """The timeline of the task with a uuid that begins with `prefix`.

    Without `whole` the notes do not mention estimated, left out and damaged records, since all files would have to be
    read for that. Raises UsageError when no task, or more than one, has a uuid that begins with `prefix`.
    """
    uuid = ledger.resolve(prefix)
    row = ledger.get(uuid)
    assert row is not None, "it was just there"
    folder = folder_of(settings, uuid)
    elsewhere = lies_elsewhere(settings, row, folder)
    if elsewhere and folder is not None and not (folder / "messages.jsonl").exists():
        folder = None  # on this host the task's folder has no messages.jsonl
    is_live = folder is not None and is_held(folder)
    notes = [elsewhere] if elsewhere else []
    if whole:
        notes += _notes(row, folder, is_live=is_live, elsewhere=bool(elsewhere))
    elif folder is None and not elsewhere:
        notes.append(missing(row))
    return Timeline(row, folder, is_live, tuple(notes))


def lies_elsewhere(settings: Settings, row: Row, folder: Path | None, command: str = "show") -> str:
    """A sentence for people about the host that has the conversation, if the folder on this host does not have all of
    it; else "".

    `command` is the command with which a person shows the conversation on the other host. If the hosts share base_dir,
    the folder on this host has the whole conversation.
    """
    if not of_another_host(row, settings) or (folder is None and row.attempt == 0):
        return ""
    newest = None
    if folder is not None:
        with suppress(OSError):
            newest = last_record(folder / "messages.jsonl")
    if newest is not None and int(newest["seq"]) >= row.last_seq:
        return ""
    base_dir = base_dir_of(row.lease_owner) if row.lease_owner is not None else ""
    place = f"{base_dir}/running/{row.uuid}" if base_dir else "its context_storage.base_dir"
    what = "the conversation" if newest is None else f"the conversation after message {newest['seq']}"
    return f"{what} lies on {row.hostname}, in {place}; call `{command} {row.uuid}` there"


def is_held(folder: Path) -> bool:
    """Whether a live process works in the folder; also False if that cannot be determined."""
    try:
        return durable_files.is_locked(folder / "lock")
    except OSError:
        return False


def _notes(row: Row, folder: Path | None, *, is_live: bool, elsewhere: bool) -> Iterator[str]:
    model = row.model or ""
    counter = counter_for(model)
    if counter.exact:
        yield f"tokens of messages: counted with the vocabulary of {model} ({counter.name})"
    else:
        named = model or "the model"
        yield f"tokens of messages and compactions: estimates ({counter.name}); {named} has no vocabulary here"
    if folder is None:
        if elsewhere:
            return
        yield missing(row)
        return
    damage = [DamagedLines(folder / name) for name in FILES]
    answers, silent, requests, guessed = 0, 0, 0, 0
    hidden: Counter[str] = Counter()
    for name, found in zip(FILES, damage, strict=True):
        for _, record in records(folder / name, id_key=id_key(name), damage=found):
            hidden[_hidden(name, record)] += 1
            if name == "requests.jsonl":
                requests += 1
                guessed += bool(record.get("estimated"))
            elif name == "messages.jsonl" and record.get("role") == "assistant" and record.get("kind") != "summary":
                answers += 1
                silent += not record.get("usage") and "request" not in record
    if guessed:
        yield f"tokens and cost of the task: estimates for {guessed} of {requests} requests, whose server told none"
    if silent:
        total = "none" if silent == answers else f"only {answers - silent}"
        yield f"tokens and cost of the task: {total} of {answers} answers came with the provider's numbers"
    elif answers and not guessed:
        yield "tokens and cost of the task: the provider's own numbers"
    if left := ", ".join(f"{hidden[why]:,} {why}" for why in sorted(hidden) if why):
        yield f"numbers that are missing below: {left}"
    if is_live:
        yield "the task is running: the newest lines may be missing"
    for found in damage:
        yield from found.sentences()


def missing(row: Row) -> str:
    """A sentence about the reason why the task has no folder."""
    state = "it was never started" if row.started_at is None else "its folder was not kept, or is gone"
    return f"there is no folder of this task: {state}"


def id_key(name: str) -> str:
    """The key under which a file's records have their number."""
    return "id" if name in ("summaries.jsonl", "compactions.jsonl") else "seq"


def _hidden(file: str, record: Json) -> str:
    """A description of a record that gets no entry of its own in the timeline; "" for every other record."""
    if file == "messages.jsonl":
        if record.get("kind") == "summary":
            return "messages with a summary (shown as summary)"
        return "messages with a tool's result (shown as tool)" if _repeats_a_tool(record) else ""
    if file == "requests.jsonl" and record.get("purpose") == "turn" and record.get("status") == "ok":
        return "requests of a turn (shown as its message)"
    return "effects that only keep the task's row" if file == "effects.jsonl" and record.get("name") == ROW else ""


def _repeats_a_tool(record: Json) -> bool:
    return bool(record.get("role") == "tool" and record.get("tool_seq"))


def excerpt(value: Any) -> str:
    """The beginning of a value's text, on one line."""
    text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value, default=str).decode()
    line = " ".join(text[: 4 * EXCERPT].split())
    return line if len(line) <= EXCERPT and len(text) <= 4 * EXCERPT else f"{line[:EXCERPT]}…"


def _records(folder: Path, name: str, *, every: bool = False) -> Iterator[Json]:
    """The records of a file that have an entry of their own in the timeline; with `every` all records of the file."""
    for _, record in records(folder / name, id_key=id_key(name)):
        if every or not _hidden(name, record):
            yield record


def _entry(kind: str, file: str, record: Json, who: object, text: str, **more: Any) -> TimelineEntry:
    """A TimelineEntry for one record: its time is the record's `timestamp`, its number is the value of the key that
    numbers the records of the file (`id_key`)."""
    return TimelineEntry(str(record.get("timestamp", "")), kind, file, record[id_key(file)], str(who), text, **more)


def _messages(folder: Path) -> Iterator[TimelineEntry]:
    """Entries for messages, except messages that repeat a record of tools.jsonl or summaries.jsonl."""
    for record in _records(folder, "messages.jsonl"):
        role, kind = str(record.get("role")), record.get("kind")
        usage = record.get("usage") or {}
        calls = ", ".join(_call(call) for call in record.get("tool_calls") or ())
        said = excerpt(record.get("content"))
        yield _entry(
            "message",
            "messages.jsonl",
            record,
            f"{role} ({kind})" if kind and kind != role else role,
            " ".join(part for part in (said, f"→ {calls}" if calls else "") if part),
            state=str(record.get("finish_reason") or ""),
            tokens=as_int(record.get("tokens")),
            prompt_tokens=as_int(usage.get("prompt_tokens")),
            completion_tokens=as_int(usage.get("completion_tokens")),
        )


def _requests(folder: Path) -> Iterator[TimelineEntry]:
    """Entries for requests, except requests of a turn that were answered: the message with the answer has an entry."""
    for record in _records(folder, "requests.jsonl"):
        usage = record.get("usage") or {}
        yield _entry(
            "request",
            "requests.jsonl",
            record,
            record.get("purpose"),
            excerpt(record.get("error")) or f"{record.get('provider')} {record.get('model')}",
            state=str(record.get("status", "")),
            prompt_tokens=as_int(usage.get("prompt_tokens")),
            completion_tokens=as_int(usage.get("completion_tokens")),
            duration_ms=as_int(record.get("duration_ms")),
        )


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else "?"


def _tools(folder: Path) -> Iterator[TimelineEntry]:
    results = _results(folder)
    call, seq = next(results, NO_MORE)
    for record in _records(folder, "tools.jsonl"):
        while call < record["seq"]:
            call, seq = next(results, NO_MORE)
        yield _entry(
            "tool",
            "tools.jsonl",
            record,
            record.get("tool"),
            f"{excerpt(record.get('args'))} → {excerpt(record.get('result'))}",
            state=str(record.get("status", "")),
            duration_ms=as_int(record.get("duration_ms")),
            message=seq if call == record["seq"] else None,
        )


def _results(folder: Path) -> Iterator[tuple[float, int | None]]:
    """(number of the call, number of the message that has its result) for each tool call with such a message, in
    order."""
    for record in _records(folder, "messages.jsonl", every=True):
        if record.get("role") == "tool" and (call := as_int(record.get("tool_seq"))) is not None:
            yield call, record["seq"]


def _summaries(folder: Path) -> Iterator[TimelineEntry]:
    for record in _records(folder, "summaries.jsonl"):
        about = f"of {record.get('start_seq')} to {record.get('end_seq')}"
        size = as_int(record.get("summary_tokens"))
        yield _entry("summary", "summaries.jsonl", record, about, excerpt(record.get("summary")), tokens=size)


def _compactions(folder: Path) -> Iterator[TimelineEntry]:
    for record in _records(folder, "compactions.jsonl"):
        before, after = record.get("tokens_before"), record.get("tokens_after")
        text = f"messages {record.get('start_seq')} to {record.get('end_seq')}, {before} → {after} tokens"
        yield _entry("compaction", "compactions.jsonl", record, record.get("strategy"), text, tokens=as_int(after))


def _effects(folder: Path) -> Iterator[TimelineEntry]:
    for record in _records(folder, "effects.jsonl"):
        text = excerpt(record.get("receipt") or record.get("detail") or "")
        yield _entry("effect", "effects.jsonl", record, record.get("name"), text, state=str(record.get("state", "")))
