"""Ollama's `/api/chat` on the wire (facts on wires, section 2): arguments are objects, results name their tool.

Lines are translated as they pass; those that need no change are passed as they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from agent.errors import AnswerUnreadable
from agent.llm.draft import counted
from agent.llm.faults import RESAMPLE_TRIES, fault
from agent.llm.said import hear, read
from agent.llm.spans import lines
from agent.llm.streams import parse
from agent.llm.tidy import arguments_of, tidied
from agent.llm.wire_openai import cut, own_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.llm.draft import Draft
    from agent.llm.spans import Shape
    from agent.llm.tidy import Change
    from agent.llm.transport import Stream
    from agent.values import Json, Span

KNOWN = frozenset(("role", "content", "images", "tool_calls", "tool_name", "tool_call_id"))
COUNTS = ("prompt_eval_count", "eval_count", "prompt_eval_cached_count")


def messages(
    spans: Sequence[Span], shape: Shape, *, alternate: bool = False, change: Change | None = None
) -> Iterator[bytes]:
    """Each message in Ollama's form, the results of a group in the order of its calls: that is what ties them to each
    other in most templates."""
    names: dict[str, str] = {}
    results: dict[str, bytes] = {}  # of the open group, which is whole in every request
    for answers, line in _lines(spans, shape, names, alternate=alternate, change=change):
        if not answers:
            yield line
            continue
        results[answers] = line
        if len(results) == len(names):
            yield from (results[call_id] for call_id in names)
            results.clear()


def _lines(
    spans: Sequence[Span], shape: Shape, names: dict[str, str], *, alternate: bool, change: Change | None
) -> Iterator[tuple[str, bytes]]:
    """(the call that it answers or "", message)."""
    if alternate or change or not shape.tidy:
        for message in tidied(spans, shape, alternate=alternate, change=change):
            yield message.get("tool_call_id", ""), orjson.dumps(translated(message, names))
        return
    for line in lines(spans):
        plain = line.startswith((b'{"role":"user"', b'{"role":"system"')) or (
            line.startswith(b'{"role":"assistant"') and b'"tool_calls"' not in line and b'"content":null' not in line
        )
        if plain:
            yield "", line
        else:
            message = orjson.loads(line)
            yield message.get("tool_call_id", ""), orjson.dumps(translated(message, names))


def translated(message: Json, names: dict[str, str]) -> Json:
    """One message; `names` maps the calls of the open group to their tools and is kept up."""
    if message["role"] == "tool":
        call_id = message["tool_call_id"]
        return {
            "role": "tool",
            "tool_name": names.get(call_id, ""),
            "tool_call_id": call_id,
            "content": message["content"],
        }
    calls = message.get("tool_calls")
    if not calls:
        return message | {"content": message["content"] or ""}
    names.clear()
    names.update({call["id"]: call["function"]["name"] for call in calls})
    translated_calls = [
        {key: value for key, value in call.items() if key != "type"}
        | {"function": call["function"] | {"index": index, "arguments": arguments_of(call)}}
        for index, call in enumerate(calls)
    ]
    return message | {"content": message.get("content") or "", "tool_calls": translated_calls}


def read_answer(stream: Stream, who: str) -> Draft:
    """The whole answer of an NDJSON stream (or of one JSON object).  A line with `error` under HTTP 200 is raised."""
    draft, done = stream.draft, False
    for line in stream.lines():
        if not line.strip():
            continue
        try:
            record: Any = parse(line)
        except json.JSONDecodeError:
            rest = b"".join(stream.chunks()) if not draft.model else b""
            error = fault(hear(stream.status, line + rest, stream.headers), who)
            if isinstance(error, AnswerUnreadable) and draft.model:
                error.tries = RESAMPLE_TRIES
            raise error from None
        if not isinstance(record, dict) or record.get("error") or "message" not in record:
            known = isinstance(record, dict) and bool(record.get("error"))
            raise fault(read(None if known else stream.status, record), who)
        _take(draft, record)
        if record.get("done"):
            done = True
            break
    if not done:
        raise cut(who)
    if draft.finish in ("load", "unload"):
        loaded = AnswerUnreadable(f"{who} loaded the model and answered nothing (done_reason {draft.finish})")
        loaded.tries = RESAMPLE_TRIES
        raise loaded
    return draft


def _take(draft: Draft, record: Json) -> None:
    message = record.get("message") or {}
    draft.model = str(record.get("model") or draft.model)
    draft.say(message.get("content"))
    draft.think(message.get("thinking"))
    draft.keep({key: value for key, value in message.items() if key not in KNOWN and value != ""})
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        # Ollama sends each call whole, so every one is a new call whatever its index says.
        arguments = function.get("arguments") or {}
        own = own_fields(call, function)
        draft.fragment(len(draft.calls), call.get("id"), function.get("name"), arguments, own)
    if record.get("done"):
        draft.end(record.get("done_reason") or "stop")
        draft.report(counted(*(record.get(key) for key in COUNTS), partly=True))
