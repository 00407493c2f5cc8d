"""Writes messages and parses answers of Ollama's `/api/chat` (docs/wire.md, "The request"): the arguments of a tool
call are an object, and the result of a call has the name of its tool.

Stored messages are translated into Ollama's form one at a time; the line of a message that needs no change is sent
unchanged.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from agent.errors import AnswerUnreadable
from agent.llm.answer_fields import object_in, objects_in, text_in
from agent.llm.error_body import parse_document, parse_error_body
from agent.llm.error_mapping import RESAMPLE_TRIES, map_error
from agent.llm.request_lines import lines
from agent.llm.role_alternation import arguments_of, normalized
from agent.llm.sse import parse
from agent.llm.stream_accumulator import usage_of_counts
from agent.llm.wire_openai import cut_off, own_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.llm.role_alternation import Change
    from agent.llm.stream_accumulator import StreamAccumulator
    from agent.llm.transport import Stream
    from agent.message_list_check import Shape
    from agent.values import Json, Span

KNOWN = frozenset(("role", "content", "images", "tool_calls", "tool_name", "tool_call_id"))
COUNTS = ("prompt_eval_count", "eval_count", "prompt_eval_cached_count")


def messages(
    spans: Sequence[Span], shape: Shape, *, alternate: bool = False, change: Change | None = None
) -> Iterator[bytes]:
    """Each message in Ollama's form; the results of an answer's tool calls are in the order of the calls.

    The order of the tool results matters because most chat templates match results with calls by their order.
    """
    names: dict[str, str] = {}
    # the results of the last answer's tool calls that were read so far; a request contains a result for each call
    results: dict[str, bytes] = {}
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
    """Each message as (the id of the tool call of which it is the result, or ""; the message in Ollama's form)."""
    if alternate or change or not shape.tidy:
        for message in normalized(spans, shape, alternate=alternate, change=change):
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
    """A message in Ollama's form; `names` maps the ids of the last answer's tool calls to the names of the tools, and
    is replaced when `message` is an answer with tool calls."""
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


def read_answer(stream: Stream, who: str) -> StreamAccumulator:
    """Read a whole answer of Ollama's API from a stream of JSON objects, one per line (or from a single JSON object).

    Raises a ModelError for a line with the key `error`, which Ollama may send although the status is 200, for a line
    that is not a JSON object with a message, for a stream that ended too early, and if Ollama only loaded or unloaded
    the model.
    """
    draft, done = stream.draft, False
    for line in stream.lines():
        if not line.strip():
            continue
        try:
            record: Any = parse(line)
        except json.JSONDecodeError:
            rest = b"".join(stream.chunks()) if not draft.model else b""
            error = map_error(parse_error_body(stream.status, line + rest, stream.headers), who)
            if isinstance(error, AnswerUnreadable) and draft.model:
                error.tries = RESAMPLE_TRIES
            raise error from None
        if not isinstance(record, dict) or record.get("error") or "message" not in record:
            known = isinstance(record, dict) and bool(record.get("error"))
            raise map_error(parse_document(None if known else stream.status, record), who)
        _read_record(draft, record)
        if record.get("done"):
            done = True
            break
    if not done:
        raise cut_off(who)
    if draft.finish in ("load", "unload"):
        loaded = AnswerUnreadable(f"{who} loaded the model and answered nothing (done_reason {draft.finish})")
        loaded.tries = RESAMPLE_TRIES
        raise loaded
    return draft


def _read_record(draft: StreamAccumulator, record: Json) -> None:
    message = object_in(record, "message")
    draft.model = str(record.get("model") or draft.model)
    draft.add_content(message.get("content"))
    draft.add_reasoning(message.get("thinking"))
    draft.add_fields({key: value for key, value in message.items() if key not in KNOWN and value != ""})
    for call in objects_in(message, "tool_calls"):
        function = object_in(call, "function")
        # Ollama sends each tool call whole, so each call in a line is a new call; the index of the call is ignored.
        arguments = function.get("arguments") or {}
        own = own_fields(call, function)
        draft.add_call_part(len(draft.calls), call.get("id"), function.get("name"), arguments, own)
    if record.get("done"):
        draft.set_finish(text_in(record, "done_reason") or "stop")
        draft.set_usage(usage_of_counts(*(record.get(key) for key in COUNTS), partly=True))
