"""Reads a part of a task's conversation: messages with the results, requests and compactions that belong to them.

A part of a conversation is found by offsets in the file (`file_window.py`). A part has at most COUNT messages; if the
first is the result of a call, the messages from the call up to that result are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agent.dashboard import file_window
from agent.dashboard.file_window import FileWindow, offset_of, page_before, page_from, read_before, read_from
from agent.store.jsonl import as_int

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.values import Json

COUNT = 60
MOST_RESULTS = 200
"""The maximum number of messages before a part of the conversation that are read to find the call to which its first
result belongs."""
EXCERPT = 3000
"""The maximum number of characters of one text in a part of the conversation; the page of the message shows more."""
LONGEST_TEXT = 400_000
"""The maximum number of characters of one text on the page of a message."""

DEEPEST = 100
"""The maximum number of levels of a nested value that is shown as JSON."""

LONGEST_WORD = 300
"""The maximum distance between the place where a text is cut and white space before or after it, at which the cut is
moved to the white space."""

MESSAGES, TOOLS, REQUESTS, COMPACTIONS = "messages.jsonl", "tools.jsonl", "requests.jsonl", "compactions.jsonl"


def part(folder: Path, *, before: int | None = None, start: int | None = None) -> Json:
    """One part of a conversation: the messages from the number `start` on; or, without `start`, the last ones before
    the number `before`; or, without both, the newest ones. Raises OSError."""
    path = folder / MESSAGES
    if start is not None:
        window = page_from(path, offset_of(path, start), COUNT)
    else:
        end = None if before is None else offset_of(path, before)
        window = page_before(path, COUNT, end=end)
    window = _with_call(path, window)
    last = file_window.newest(path)
    newest = 0 if last is None else int(last["seq"])
    entries, damage = _entries(folder, window.records)
    numbers = [record["seq"] for record in window.records]
    return {
        "entries": entries,
        "first": numbers[0] if numbers else 0,
        "last": numbers[-1] if numbers else 0,
        "newest": newest,
        "bytes": window.size,
        "has_older": window.start > 0,
        "has_newer": bool(numbers) and numbers[-1] < newest,
        "damage": [*window.damage, *damage],
    }


def message(folder: Path, number: int) -> Json | None:
    """One message of a conversation, with at most LONGEST_TEXT characters of each text; None if no message has this
    number."""
    path = folder / MESSAGES
    window = read_from(path, offset_of(path, number), 1)
    if not window.records or window.records[0]["seq"] != number:
        return None
    (entry,), damage = _entries(folder, window.records, most=LONGEST_TEXT)
    return {"entry": entry, "damage": [*window.damage, *damage]}


def _with_call(path: Path, window: FileWindow) -> FileWindow:
    """`window`, a part of a file of messages. If its first message is the result of a call, the messages from that call
    on are added before this message, unless the call is not among the MOST_RESULTS messages before it."""
    if not window.records or window.records[0].get("role") != "tool" or window.start == 0:
        return window
    front = read_before(path, MOST_RESULTS, end=window.start)
    at = next((n for n in range(len(front.records) - 1, -1, -1) if front.records[n].get("role") != "tool"), None)
    if at is None:
        return window
    more = front.records[at:]
    start = offset_of(path, more[0]["seq"])
    damage = (*front.damage, *window.damage)
    return FileWindow((*more, *window.records), start, window.end, window.size, damage)


def _entries(folder: Path, records: Sequence[Json], *, most: int = EXCERPT) -> tuple[list[Json], list[str]]:
    """Returns the entries that the page shows for the messages `records`, and sentences about damaged lines in
    `tools.jsonl`, `requests.jsonl` and `compactions.jsonl`."""
    damage: list[str] = []
    calls = _numbered(folder / TOOLS, _whole(records, "tool_seq"), damage)
    requests = _numbered(folder / REQUESTS, _whole(records, "request"), damage)
    entries: list[Json] = []
    groups: dict[str, Json] = {}
    for record in records:
        if record.get("role") == "tool":
            result = _result(record, calls.get(as_int(record.get("tool_seq")) or 0), most)
            call = groups.get(str(record.get("tool_call_id")))
            if call is not None and call["result"] is None:
                call["result"] = result
                continue
            entries.append({**_message_json(record, most), "calls": [], "result": result})
            continue
        entry = _entry(record, requests.get(as_int(record.get("request")) or 0), most)
        groups = {str(call["id"]): call for call in entry["calls"]}
        entries.append(entry)
    if entries:
        _place_compactions(folder, entries, records[-1]["seq"], damage)
    return entries, damage


def _entry(record: Json, request: Json | None, most: int) -> Json:
    usage = record.get("usage")
    calls = record.get("tool_calls")
    return {
        **_message_json(record, most),
        "finish_reason": record.get("finish_reason"),
        "usage": usage if isinstance(usage, dict) else None,
        "calls": [_call(one, most) for one in calls if isinstance(one, dict)] if isinstance(calls, list) else [],
        "request": None if request is None else request_line(request),
        "images": len(images) if isinstance(images := record.get("images"), list) else 0,
        "compactions": [],
    }


def _message_json(record: Json, most: int) -> Json:
    return {
        "seq": record["seq"],
        "role": str(record.get("role")),
        "kind": record.get("kind"),
        "at": record.get("timestamp"),
        "tokens": record.get("tokens"),
        **cut(record.get("content"), most),
    }


def _call(call: Json, most: int) -> Json:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = cut(_pretty(function.get("arguments")), most)
    return {
        "id": call.get("id"),
        "name": str(function.get("name")),
        "brief": brief(function.get("arguments")),
        "arguments": arguments["text"],
        "arguments_cut": arguments["cut"],
        "invalid": call.get("invalid"),
        "result": None,
    }


def _result(record: Json, call: Json | None, most: int) -> Json:
    call = call or {}
    return {
        "seq": record["seq"],
        "at": record.get("timestamp"),
        "tool": record.get("tool_name") or call.get("tool"),
        "tool_seq": record.get("tool_seq"),
        "status": call.get("status"),
        "error": call.get("error"),
        "duration_ms": call.get("duration_ms"),
        "output": record.get("output") or call.get("output"),
        **cut(record.get("content"), most),
    }


def _place_compactions(folder: Path, entries: list[Json], last: int, damage: list[str]) -> None:
    """Add each compaction that was made after the first message in `entries` and before the message after number `last`
    to the newest entry before the compaction."""
    path = folder / COMPACTIONS
    first = entries[0]["seq"]
    window = read_from(path, offset_of(path, first, key="at_seq", id_key="id"), COUNT, id_key="id")
    damage.extend(window.damage)
    for record in window.records:
        at = as_int(record.get("at_seq")) or 0
        if at > last:
            break
        entry = next((one for one in reversed(entries) if one["seq"] <= at), None)
        if entry is not None:
            entry.setdefault("compactions", []).append(compaction_line(record))


def compaction_line(record: Json) -> Json:
    """The facts about one compaction, without its summary and its carry-over."""
    numbers = ("id", "start_seq", "end_seq", "at_seq", "summary_id", "tokens_before", "tokens_after")
    found = {name: as_int(record.get(name)) for name in numbers}
    return {**found, "strategy": record.get("strategy"), "at": record.get("timestamp")}


def request_line(record: Json) -> Json:
    """The facts about one request to a model."""
    names = ("seq", "purpose", "provider", "model", "status", "finish_reason", "first_token_ms", "duration_ms", "cost")
    usage = record.get("usage")
    return {
        **{name: record.get(name) for name in names},
        "at": record.get("started_at") or record.get("timestamp"),
        "usage": usage if isinstance(usage, dict) else {},
        "estimated": bool(record.get("estimated")),
        "error": record.get("error"),
    }


def _numbered(path: Path, numbers: Sequence[int], damage: list[str]) -> dict[int, Json]:
    """The records of a file by their numbers, from the least to the greatest of `numbers`. All records from the least
    to the greatest number are read, so `numbers` must be close to each other."""
    if not numbers:
        return {}
    low, high = min(numbers), max(numbers)
    window = read_from(path, offset_of(path, low), high - low + 1)
    damage.extend(window.damage)
    return {record["seq"]: record for record in window.records}


def _whole(records: Sequence[Json], name: str) -> list[int]:
    return [value for record in records if (value := as_int(record.get(name)))]


def as_text(value: Any) -> str:
    """A text unchanged, "" for None, and JSON of any other value. A part deeper than DEEPEST levels becomes "…", since
    a record may be nested deeper than orjson can write."""
    if value is None or isinstance(value, str):
        return value or ""
    return orjson.dumps(_shallow(value, DEEPEST), default=str).decode()


def _shallow(value: Any, levels: int) -> Any:
    if isinstance(value, dict):
        return {name: _shallow(one, levels - 1) for name, one in value.items()} if levels else "…"
    if isinstance(value, list):
        return [_shallow(one, levels - 1) for one in value] if levels else "…"
    return value


def cut(value: Any, most: int) -> Json:
    """`text`: the text if it has at most `most` characters, else its beginning and end, together at most `most`
    characters, with a line between them that says how many are left out; `cut`: this number, 0 for a whole text."""
    text = as_text(value)
    if len(text) <= most:
        return {"text": text, "cut": 0}
    head = word_end(text, most * 2 // 3)
    tail = _word_start(text, len(text) - (most - most * 2 // 3))
    return {"text": f"{text[:head]}\n… {tail - head:,} characters …\n{text[tail:]}", "cut": tail - head}


def word_end(text: str, at: int) -> int:
    """The position of the last white space in the LONGEST_WORD characters up to `at`, else `at`. A cut inside a secret
    would leave a half that is not recognised and masked."""
    return next((place for place in range(at, max(0, at - LONGEST_WORD), -1) if text[place].isspace()), at)


def _word_start(text: str, at: int) -> int:
    """The position of the first white space in the LONGEST_WORD characters from `at` on, else `at`."""
    return next((place for place in range(at, min(len(text), at + LONGEST_WORD)) if text[place].isspace()), at)


def _pretty(arguments: Any) -> Any:
    """The arguments of a tool call, one per line if they are a JSON object, else unchanged."""
    if isinstance(arguments, str):
        try:
            value = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return arguments
        if not isinstance(value, dict):
            return arguments
        return "\n".join(f"{name}: {_one(value[name])}" for name in value)
    return arguments


def _one(value: Any) -> str:
    return "null" if value is None else as_text(value)


def brief(arguments: Any) -> str:
    """The arguments of a tool call on one line, cut after at most 120 characters."""
    text = _pretty(arguments)
    text = text if isinstance(text, str) else ""
    line = " ".join(text[: word_end(text, 400)].split()) if len(text) > 400 else " ".join(text.split())
    return line if len(line) <= 120 else f"{line[: word_end(line, 120)]}…"
