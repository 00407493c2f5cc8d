"""messages.jsonl as the specification's first form has it: no kinds, no tool calls, results by the tool's name.

Such a file, of another program or written by hand, is converted once, when it is opened; the original stays beside it.
The first system message and the first user message become the head of the view.  A result gets a call in the answer
before it, with the arguments that tools.jsonl has for it; a result without such an answer becomes a user message, since
no wire takes it otherwise.  Called by `MessageStore` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from agent import disk
from agent.context.records import calls_of
from agent.store.jsonl import parse, records
from agent.store.text import line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.values import Json

BEFORE = "messages.jsonl.before"


def is_plain(path: Path) -> bool:
    """Whether a file begins in that form: ours gives the first system or user message a kind."""
    first = next((record for _, record in records(path)), None)
    return first is not None and first.get("role") in ("system", "user") and "kind" not in first


def convert(path: Path) -> str:
    """Write messages.jsonl anew in our form; what was done, as a sentence.  DiskError."""
    before = path.with_name(BEFORE)
    raw = path.read_bytes()
    if not before.exists():
        disk.write_file(before, raw)
    if not raw.endswith(b"\n") and not isinstance(parse(raw[raw.rfind(b"\n") + 1 :], "seq"), str):
        disk.write_file(path, raw + b"\n")  # a person's file may end without one; its last message is whole
    with disk.replacing(path) as descriptor:
        for record in _converted(path):
            disk.write_all(descriptor, line(record))
    return f"{path.name}: had no kinds and no tool calls; written anew, the original is kept as {BEFORE}"


def _converted(path: Path) -> Iterator[Json]:
    tools = iter([record for _, record in records(path.with_name("tools.jsonl"))])
    seen: set[str] = set()
    answer: Json | None = None  # held until its results are known
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
        if kind is not None and kind not in seen and "kind" not in record:
            seen.add(kind)
            record = {**record, "kind": kind}  # noqa: PLW2901 - the same, with its kind
        yield record
    yield from group()


def _answered(answer: Json, result: Json, recorded: Json | None) -> Json:
    """The result with the id of a new call in `answer`."""
    name = str(result.get("tool_name") or "unknown")
    known = recorded is not None and recorded.get("tool") == name and isinstance(recorded.get("args"), dict)
    call = {"id": f"call_{result['seq']}", "name": name, "arguments": recorded["args"] if known and recorded else {}}
    answer.setdefault("tool_calls", []).extend(calls_of([call], lambda _: False, result["seq"]))
    return {**result, "tool_call_id": call["id"], "content": str(result.get("content") or "(no output)")}


def _as_user(record: Json) -> Json:
    text = record.get("content")
    said = text if isinstance(text, str) else orjson.dumps(text).decode()
    return {**record, "role": "user", "content": f"Result of {record.get('tool_name') or 'a tool'}:\n{said}"}
