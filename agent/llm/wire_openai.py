"""Writes requests and parses answers of OpenAI's chat completions API (docs/wire.md, "The request").

A request to OpenAI's API is `{"model", parameters, "tools", "messages":[` + lines + `]}`: if no message needs a change,
the stored message lines are copied, with a comma in place of each newline.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agent.errors import ConfigError, HistoryRefused, ModelStalled
from agent.llm.answer_fields import index_in, object_in, objects_in, text_in
from agent.llm.error_body import parse_document, parse_error_body
from agent.llm.error_mapping import STALLED_TRIES, map_error
from agent.llm.request_lines import sized
from agent.llm.sse import DONE, events, is_stream
from agent.llm.stream_accumulator import StreamAccumulator, usage_of_counts
from agent.values import Span, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.llm.transport import Stream
    from agent.message_list_check import Shape
    from agent.values import Json

MOST_TOOLS = 128
KNOWN = frozenset(
    ("role", "content", "tool_calls", "refusal", "function_call", "audio", "images", "annotations", "name", "index")
)
"""Fields of an answer's message that `wire_openai.py` reads, or that are not sent back to the server.

A field of an answer's message that is not in KNOWN is stored, since the server that sent it may expect it back.
"""
KNOWN_OF_CALL = frozenset(("id", "type", "index", "function"))
KNOWN_OF_FUNCTION = frozenset(("name", "arguments", "index"))
# size in bytes of the block of memory in `copy`; a block of a MiB would not fit into the CPU cache and would need new
# memory each time
BLOCK = 1 << 17
NEWLINE, COMMA = b"\n,"


def header(parameters: Mapping[str, Any], tools: bytes = b"") -> bytes:
    """The bytes of a request that precede the first message: `{"model": …, "tools": […], "messages":[`; `tools` is the
    result of `offered`."""
    return orjson.dumps(parameters)[:-1] + tools + b',"messages":['


def offered(tools: Sequence[Json]) -> bytes:
    """The tools as the bytes of JSON that follow the parameters in a request; b"" if there are no tools."""
    return b',"tools":' + orjson.dumps([with_properties(tool) for tool in tools]) if tools else b""


def with_properties(tool: Json) -> Json:
    """The tool with `parameters` completed to an object schema with `properties`, since LM Studio and Ollama refuse any
    other schema."""
    function = tool["function"]
    schema = {"type": "object", "properties": {}} | (function.get("parameters") or {})
    return {**tool, "function": {**function, "parameters": schema}}


def check_tools(tools: Sequence[Json]) -> None:
    """Raise ConfigError for more than MOST_TOOLS tools."""
    if len(tools) > MOST_TOOLS:
        raise ConfigError(f"{len(tools)} tools are offered; at most {MOST_TOOLS} are allowed. Remove some MCP servers")


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """Describes the request that was written last and that the request file still contains. If the next request begins
    with the same bytes as the previous one, only the rest of that request is written.

    `parts` are the spans of stored messages that were copied, as (path, start, end); in the request file the last of
    these parts ends at byte `end`.
    """

    header: bytes
    shape: Shape
    parts: list[tuple[Path, int, int]]
    end: int

    def rest(self, out: BinaryIO, header: bytes, parts: list[tuple[Path, int, int]], shape: Shape) -> Span | None:
        """The span of stored messages that must still be written for a new request that begins like the previous one;
        `out` is positioned where that span follows.

        Returns None, and sets `out` to its beginning, when the new request does not begin like the previous one.
        `parts` are the parts of the new request (`request_lines.sized`). If `shape` is the same object as in the
        previous request, the earlier message lines are unchanged (`message_reader.py`).
        """
        *fixed, (path, start, end) = parts
        *known, (view, begin, last) = self.parts
        same = header == self.header and shape is self.shape and [*fixed, (path, start)] == [*known, (view, begin)]
        if not same or end < last or out.seek(0, os.SEEK_END) != self.end + len(b"]}"):
            out.seek(0)
            return None
        out.seek(self.end)
        if end > last:
            out.write(b",")
        return Span(path, last, end)


def copy(out: BinaryIO, spans: Sequence[Span]) -> bool:
    """Copy the lines of the spans to `out`, with commas between them; returns whether the last line ends with a
    newline.

    One block of memory is used for the whole copy: the block is filled, changed in place and written up to the next
    multiple of its size in the file. The kernel stores a file that is written in this way (in whole blocks) in large
    pages, which take a third less time to create and remove than small pages. Raises HistoryRefused if a file ends
    before the end of its span.
    """
    block = bytearray(BLOCK)
    view = memoryview(block)
    first = last = out.tell() % BLOCK  # the block's bytes from `first` to `last` are not written yet
    for number, (path, start, end) in enumerate(sized(spans)):
        # if the previous span ends without a newline, a comma is written between the spans
        if number and block[last - 1] != COMMA:
            out.write(view[first:last])
            out.write(b",")
            first = last = out.tell() % BLOCK
        with path.open("rb", buffering=0) as source:
            source.seek(start)
            left = end - start
            while left > 0:
                if last == BLOCK:
                    out.write(view[first:])
                    first = last = 0
                if not (size := source.readinto(view[last : last + left])):
                    raise HistoryRefused(f"{path} ends before byte {end}; it changed while it was read")
                at, last, left = last, last + size, left - size
                while (at := block.find(NEWLINE, at, last)) >= 0:
                    block[at] = COMMA
    whole = last > 0 and block[last - 1] == COMMA
    out.write(view[first : last - whole])
    return whole


def join(out: BinaryIO, messages: Iterable[bytes]) -> None:
    """Write encoded messages to `out`, with commas between them."""
    for number, message in enumerate(messages):
        if number:
            out.write(b",")
        out.write(message)


def read_answer(stream: Stream, who: str) -> StreamAccumulator:
    """Read a whole answer of OpenAI's API, streamed or not.

    Raises the error that the answer contains, ModelStalled for a stream or body that ended too early, AnswerUnreadable
    for a body without an answer.
    """
    lines = stream.lines()
    first = next((line for line in lines if line.strip()), b"")
    if is_stream(first, stream.headers.get("content-type", "")):
        return _streamed(chain([first], lines), who, stream.draft)
    return _whole(b"\n".join(chain([first], lines)), stream, who)


def cut_off(who: str) -> ModelStalled:
    """The error for a stream that ended before the answer was complete."""
    error = ModelStalled(f"{who} ended the stream before the answer was whole; nothing of it was used")
    error.tries = STALLED_TRIES
    return error


def _streamed(lines: Iterable[bytes], who: str, draft: StreamAccumulator) -> StreamAccumulator:
    done = False
    for event, chunk in events(lines, who):
        if chunk is DONE:
            done = True
            break
        if not chunk and event != "error":
            continue  # null and empty values, which some servers send to keep the connection alive, are ignored
        if event == "error" or not isinstance(chunk, dict) or chunk.get("error"):
            raise map_error(parse_document(None, chunk), who)
        _read_chunk(draft, chunk)
    if not (draft.finish or (done and draft.ends_well())):
        raise cut_off(who)
    return draft


def _read_chunk(draft: StreamAccumulator, chunk: Mapping[str, Any]) -> None:
    draft.model = str(chunk.get("model") or draft.model)
    draft.set_usage(usage_of(chunk.get("usage")))
    if "x_groq" in chunk:  # Groq's older streams report token counts in `x_groq`
        draft.set_usage(usage_of(object_in(chunk, "x_groq").get("usage")))
    for choice in objects_in(chunk, "choices"):
        draft.set_usage(usage_of(choice.get("usage")))  # Moonshot's streams report token counts in a choice
        if choice.get("index") in (None, 0):
            take_message(draft, object_in(choice, "delta") or object_in(choice, "message"))
            draft.set_finish(text_in(choice, "finish_reason"))


def take_message(draft: StreamAccumulator, message: Mapping[str, Any]) -> None:
    """Add to `draft` the message of an answer, or a delta (a fragment of the message) from a stream."""
    draft.add_content(message.get("content"))
    draft.add_refusal(message.get("refusal"))
    draft.add_reasoning(message.get("reasoning_content") or message.get("reasoning"))
    draft.add_fields({key: value for key, value in message.items() if key not in KNOWN})
    if isinstance(old := message.get("function_call"), dict) and not message.get("tool_calls"):
        # `function_call` is the older form of tool calls in OpenAI's API
        draft.add_call_part(None, None, old.get("name"), old.get("arguments"))
    calls = message.get("tool_calls")
    for call in [calls] if isinstance(calls, dict) else objects_in(message, "tool_calls"):
        function = object_in(call, "function")
        own = own_fields(call, function)
        draft.add_call_part(index_in(call), call.get("id"), function.get("name"), function.get("arguments"), own)


def own_fields(call: Mapping[str, Any], function: Mapping[str, Any]) -> Json:
    """The provider-specific fields of a tool call: all fields except id, type, index, name and arguments; only the
    server that sent these fields understands them."""
    own = {key: value for key, value in call.items() if key not in KNOWN_OF_CALL and value is not None}
    inner = {key: value for key, value in function.items() if key not in KNOWN_OF_FUNCTION and value is not None}
    return own | {"function": inner} if inner else own


def _whole(body: bytes, stream: Stream, who: str) -> StreamAccumulator:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        record = None
    if isinstance(record, dict) and record.get("choices") and not record.get("error"):
        draft = stream.draft
        _read_chunk(draft, record)
        if draft.finish or draft.ends_well():
            return draft
        raise cut_off(who)
    raise map_error(parse_error_body(stream.status, body, stream.headers), who)


def usage_of(record: Any) -> Usage | None:
    """Convert the token counts in the field `usage` into a `Usage` of this program; None if `usage` has no count above
    0.

    OpenAI's count `completion_tokens` includes the tokens of reasoning.  xAI, Gemini's endpoint and gateways in front
    of them count reasoning separately: only their total includes it, so the reasoning is the total without the prompt
    and the completion.
    """
    if not isinstance(record, dict):
        return None
    details = record.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    cached = cached or record.get("prompt_cache_hit_tokens") or record.get("cached_tokens")
    prompt, completion, thought = record.get("prompt_tokens"), record.get("completion_tokens"), reasoning_of(record)
    total = usage_of_counts(record.get("total_tokens"), None, None)
    usage = usage_of_counts(prompt, completion, cached, partly=True)
    if usage is None or total is None or not usage.prompt or total.prompt - usage.prompt <= usage.completion:
        return usage_of_counts(prompt, completion, cached, thought, partly=True)
    beside = total.prompt - usage.prompt - usage.completion
    return Usage(usage.prompt, usage.completion + beside, usage.cached, max(thought or 0, beside))


def reasoning_of(record: Mapping[str, Any]) -> int | None:
    """The number of reasoning tokens in the field `usage` of an answer, None if the server does not report the
    number."""
    places = (record.get("completion_tokens_details"), record.get("output_tokens_details"), record)
    for place in places:
        told = place.get("reasoning_tokens") if isinstance(place, dict) else None
        if isinstance(told, int) and not isinstance(told, bool):
            return told
    return None
