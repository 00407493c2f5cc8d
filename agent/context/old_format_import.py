"""Converts a messages.jsonl in the first form of the specification, which has no kinds and no tool calls, and only the
name of the tool in a tool result.

A messages.jsonl in the first form, from another program or written by hand, is converted once, when the store opens it;
the original stays beside the new file.  The first system message and the first user message become the head of the
view; a later system message is used from the next compaction that omits messages (`message_rules.kind_of`).  A tool
result gets a call in the answer before it, with the arguments from tools.jsonl; a result without such an answer becomes
a user message, since no model server's API accepts it without a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from agent import durable_files
from agent.context.message_records import calls_of
from agent.store.jsonl import parse, records
from agent.store.storable_text import line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.values import Json

BEFORE = "messages.jsonl.before"


def is_plain(path: Path) -> bool:
    """Whether a messages.jsonl begins in the first form of the specification: in the present form the first system or
    user message has a kind."""
    first = next((record for _, record in records(path)), None)
    return first is not None and first.get("role") in ("system", "user") and "kind" not in first


def convert_file(path: Path) -> str:
    """Write messages.jsonl again in the present form; returns a sentence about the change.  Raises DiskError."""
    before = path.with_name(BEFORE)
    raw = path.read_bytes()
    if not before.exists():
        durable_files.write_file(before, raw)
    if not raw.endswith(b"\n") and not isinstance(parse(raw[raw.rfind(b"\n") + 1 :], "seq"), str):
        # a file that a person has written may end without a newline, although its last message is complete
        durable_files.write_file(path, raw + b"\n")
    with durable_files.replacing(path) as descriptor:
        for record in _converted(path):
            durable_files.write_all(descriptor, line(record))
    return f"{path.name}: had no kinds and no tool calls; written anew, the original is kept as {BEFORE}"


def _converted(path: Path) -> Iterator[Json]:
    tools = iter([record for _, record in records(path.with_name("tools.jsonl"))])
    seen: set[str] = set()
    answer: Json | None = None  # an answer that is held back until its results are known
    results: list[Json] = []

    def group() -> Iterator[Json]:
        if answer is not None:
            yield answer
        yield from results

    for _, record in records(path):
        role = record.get("role")
        if role == "tool" and "tool_call_id" not in record:
            if answer is None:
                yield _as_user(record)
            else:
                results.append(_answered(answer, record, next(tools, None)))
            continue
        yield from group()
        results = []
        answer = record if role == "assistant" and not record.get("tool_calls") else None
        if answer is not None:
            continue
        kind = {"system": "system", "user": "task"}.get(str(role))
        if kind is not None and (kind not in seen or kind == "system") and "kind" not in record:
            seen.add(kind)
            record = {**record, "kind": kind}  # noqa: PLW2901 - a copy that has a kind
        yield record
    yield from group()


def _answered(answer: Json, result: Json, recorded: Json | None) -> Json:
    """The tool result, with the id of a new call; the function adds this call to `answer`."""
    name = str(result.get("tool_name") or "unknown")
    known = recorded is not None and recorded.get("tool") == name and isinstance(recorded.get("args"), dict)
    call = {"id": f"call_{result['seq']}", "name": name, "arguments": recorded["args"] if known and recorded else {}}
    answer.setdefault("tool_calls", []).extend(calls_of([call], lambda _: False, result["seq"]))
    return {**result, "tool_call_id": call["id"], "content": str(result.get("content") or "(no output)")}


def _as_user(record: Json) -> Json:
    text = record.get("content")
    said = text if isinstance(text, str) else orjson.dumps(text).decode()
    return {**record, "role": "user", "content": f"Result of {record.get('tool_name') or 'a tool'}:\n{said}"}
