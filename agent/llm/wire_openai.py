"""OpenAI's chat completions on the wire: request bytes and answer bytes (facts on wires, section 1).

`{"model", parameters, "tools", "messages":[` + lines + `]}`: tidy conversations are copied, a newline made a comma.
Used by the OpenAI, LM Studio and replay clients.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agent.errors import AnswerUnreadable, ConfigError, ModelStalled
from agent.llm.draft import Draft, counted
from agent.llm.faults import RESAMPLE_TRIES, STALLED_TRIES, fault
from agent.llm.said import hear, read
from agent.llm.spans import chunks, sized
from agent.llm.streams import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.llm.transport import Stream
    from agent.values import Json, Span, Usage

MOST_TOOLS = 128
HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def header(parameters: Mapping[str, Any], tools: Sequence[Json]) -> bytes:
    """Everything before the first message: `{"model": …, "tools": […], "messages":[`."""
    fields = dict(parameters)
    if tools:
        fields["tools"] = [with_properties(tool) for tool in tools]
    return orjson.dumps(fields)[:-1] + b',"messages":['


def with_properties(tool: Json) -> Json:
    """A tool whose `parameters` is an object schema with `properties`: LM Studio and Ollama refuse one without."""
    function = tool["function"]
    schema = {"type": "object", "properties": {}} | (function.get("parameters") or {})
    return {**tool, "function": {**function, "parameters": schema}}


def check_tools(tools: Sequence[Json]) -> None:
    """ConfigError for more tools than any server takes."""
    if len(tools) > MOST_TOOLS:
        raise ConfigError(f"{len(tools)} tools are offered; at most {MOST_TOOLS} are allowed. Remove some MCP servers")


def copy(out: BinaryIO, spans: Sequence[Span]) -> None:
    """The lines as they are, with commas between them."""
    parts = sized(spans)
    for number, (path, start, end) in enumerate(parts):
        held = b""
        for chunk in chunks(path, start, end):
            out.write(held)
            held = chunk.replace(b"\n", b",")
        out.write(held.removesuffix(b","))
        if number < len(parts) - 1:
            out.write(b",")


def join(out: BinaryIO, messages: Iterable[bytes]) -> None:
    """Messages with commas between them."""
    for number, message in enumerate(messages):
        if number:
            out.write(b",")
        out.write(message)


def read_answer(stream: Stream, who: str) -> Draft:
    """The whole answer, streamed or not.  Raises the error that the stream carries, ModelStalled when it was cut,
    AnswerUnreadable when there is no answer in it."""
    lines = (line for line in stream.lines() if line.strip())
    first = next(lines, b"")
    if first.startswith((b"data:", b"event:", b":", b"id:", b"retry:")):
        # Events need their empty lines; each server writes one event a line, so data lines are taken one by one.
        return _streamed(chain([first], lines), who)
    body = b"\n".join(chain([first], lines))
    return _whole(body, stream, who)


def one_by_one(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Events of servers that write one `data:` line each, whether or not an empty line follows."""

    def spaced() -> Iterator[bytes]:
        for line in lines:
            yield line
            if line.startswith(b"data:"):
                yield b""

    return events(spaced())


def load(data: bytes, who: str) -> Any:
    """Parse one event or line; AnswerUnreadable, tried again a few times, when it is broken."""
    try:
        return parse(data)
    except json.JSONDecodeError as error:
        broken = AnswerUnreadable(f"{who} sent a line that is not JSON: {data[:200].decode('utf-8', 'replace')!r}")
        broken.tries = RESAMPLE_TRIES
        raise broken from error


def parse(data: bytes) -> Any:
    """JSON, also with half of a surrogate pair in it: some servers cut an emoji in two.  json.JSONDecodeError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if HALF.search(data):
            return json.loads(data)
        raise


def cut(who: str) -> ModelStalled:
    """The error for a stream that ended before the answer did."""
    error = ModelStalled(f"{who} ended the stream before the answer was whole; nothing of it was used")
    error.tries = STALLED_TRIES
    return error


def _streamed(lines: Iterable[bytes], who: str) -> Draft:
    draft = Draft()
    for event, data in one_by_one(lines):
        if data.strip() == b"[DONE]":
            break
        chunk = load(data, who)
        if event == "error" or not isinstance(chunk, dict) or chunk.get("error"):
            raise fault(read(None, chunk), who)
        _take(draft, chunk)
    if not draft.finish:
        raise cut(who)
    return draft


def _take(draft: Draft, chunk: Mapping[str, Any]) -> None:
    draft.model = str(chunk.get("model") or draft.model)
    draft.usage = usage_of(chunk.get("usage")) or draft.usage
    for choice in chunk.get("choices") or ():
        if choice.get("index") in (None, 0):
            take_message(draft, choice.get("delta") or choice.get("message") or {})
            draft.finish = str(choice.get("finish_reason") or draft.finish)


def take_message(draft: Draft, message: Mapping[str, Any]) -> None:
    """A delta or a whole message."""
    draft.say(message.get("content"))
    draft.say(message.get("refusal"))
    draft.think(message.get("reasoning_content") or message.get("reasoning"))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        draft.fragment(call.get("index"), call.get("id"), function.get("name"), function.get("arguments"))


def _whole(body: bytes, stream: Stream, who: str) -> Draft:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        record = None
    if isinstance(record, dict) and record.get("choices") and not record.get("error"):
        draft = Draft()
        _take(draft, record)
        if draft.finish:
            return draft
        raise cut(who)
    raise fault(hear(stream.status, body, stream.headers), who)


def usage_of(record: Any) -> Usage | None:
    """The provider's counts; None when there are none (a prompt of 0 tokens is no count)."""
    if not isinstance(record, dict):
        return None
    details = record.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else record.get("prompt_cache_hit_tokens")
    return counted(record.get("prompt_tokens"), record.get("completion_tokens"), cached)
