"""OpenAI's chat completions on the wire: request bytes and answer bytes (facts on wires, section 1).

`{"model", parameters, "tools", "messages":[` + lines + `]}`: tidy conversations are copied, a newline made a comma.
Used by the OpenAI, LM Studio and replay clients.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agent.errors import ConfigError, HistoryRefused, ModelStalled
from agent.llm.draft import Draft, counted
from agent.llm.faults import STALLED_TRIES, fault
from agent.llm.said import hear, read
from agent.llm.spans import sized
from agent.llm.streams import DONE, events, is_stream
from agent.values import Span, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.llm.spans import Shape
    from agent.llm.transport import Stream
    from agent.values import Json

MOST_TOOLS = 128
KNOWN = frozenset(
    ("role", "content", "tool_calls", "refusal", "function_call", "audio", "images", "annotations", "name", "index")
)
"""Fields of a message that are read here, or are never sent back.  Any other is kept for its server."""
KNOWN_OF_CALL = frozenset(("id", "type", "index", "function"))
KNOWN_OF_FUNCTION = frozenset(("name", "arguments", "index"))
BLOCK = 1 << 17  # bytes; a MiB falls out of the cache between reading and writing it, and is new memory each time
NEWLINE, COMMA = b"\n,"


def header(parameters: Mapping[str, Any], tools: bytes = b"") -> bytes:
    """Everything before the first message: `{"model": …, "tools": […], "messages":[`; `tools` as `offered` says."""
    return orjson.dumps(parameters)[:-1] + tools + b',"messages":['


def offered(tools: Sequence[Json]) -> bytes:
    """The tools as they stand behind the parameters.  They never change within a task: made once, sent each turn."""
    return b',"tools":' + orjson.dumps([with_properties(tool) for tool in tools]) if tools else b""


def with_properties(tool: Json) -> Json:
    """A tool whose `parameters` is an object schema with `properties`: LM Studio and Ollama refuse one without."""
    function = tool["function"]
    schema = {"type": "object", "properties": {}} | (function.get("parameters") or {})
    return {**tool, "function": {**function, "parameters": schema}}


def check_tools(tools: Sequence[Json]) -> None:
    """ConfigError for more tools than any server takes."""
    if len(tools) > MOST_TOOLS:
        raise ConfigError(f"{len(tools)} tools are offered; at most {MOST_TOOLS} are allowed. Remove some MCP servers")


@dataclass(frozen=True, slots=True)
class Written:
    """The last request that was copied, as its file still has it: the messages of `parts` end at byte `end`."""

    header: bytes
    shape: Shape
    parts: list[tuple[Path, int, int]]
    end: int

    def rest(self, out: BinaryIO, header: bytes, parts: list[tuple[Path, int, int]], shape: Shape) -> Span | None:
        """What is still to be copied when a request only goes on from this one, and `out` stands where; None when it is
        another, and `out` stands at its beginning.  `parts`: those of the new one (`spans.sized`).

        The same `shape` says that the lines up to here are those that were seen then (`spans.Lines`).
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
    """The lines as they are, with commas between them; whether the last of them is whole, with its newline.

    One block of memory is filled, changed in its place and written, each time up to a multiple of its size in the file:
    the kernel keeps such a file in large pieces, which costs a third less than single pages to make and to remove.
    """
    block = bytearray(BLOCK)
    view = memoryview(block)
    first = last = out.tell() % BLOCK  # between them stands what is to be written
    for number, (path, start, end) in enumerate(sized(spans)):
        if number and block[last - 1] != COMMA:  # the part before ends without a newline
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
    """Messages with commas between them."""
    for number, message in enumerate(messages):
        if number:
            out.write(b",")
        out.write(message)


def read_answer(stream: Stream, who: str) -> Draft:
    """The whole answer, streamed or not.  Raises the error that the stream carries, ModelStalled when it was cut,
    AnswerUnreadable when there is no answer in it."""
    lines = stream.lines()
    first = next((line for line in lines if line.strip()), b"")
    if is_stream(first, stream.headers.get("content-type", "")):
        return _streamed(chain([first], lines), who, stream.draft)
    return _whole(b"\n".join(chain([first], lines)), stream, who)


def cut(who: str) -> ModelStalled:
    """The error for a stream that ended before the answer did."""
    error = ModelStalled(f"{who} ended the stream before the answer was whole; nothing of it was used")
    error.tries = STALLED_TRIES
    return error


def _streamed(lines: Iterable[bytes], who: str, draft: Draft) -> Draft:
    done = False
    for event, chunk in events(lines, who):
        if chunk is DONE:
            done = True
            break
        if not chunk and event != "error":
            continue  # null and the like, to keep the connection
        if event == "error" or not isinstance(chunk, dict) or chunk.get("error"):
            raise fault(read(None, chunk), who)
        _take(draft, chunk)
    if not (draft.finish or (done and draft.ends_well())):
        raise cut(who)
    return draft


def _take(draft: Draft, chunk: Mapping[str, Any]) -> None:
    draft.model = str(chunk.get("model") or draft.model)
    draft.report(usage_of(chunk.get("usage")))
    if "x_groq" in chunk:  # Groq's older streams
        draft.report(usage_of((chunk["x_groq"] or {}).get("usage")))
    for choice in chunk.get("choices") or ():
        draft.report(usage_of(choice.get("usage")))  # Moonshot's streams
        if choice.get("index") in (None, 0):
            take_message(draft, choice.get("delta") or choice.get("message") or {})
            draft.end(choice.get("finish_reason"))


def take_message(draft: Draft, message: Mapping[str, Any]) -> None:
    """A delta or a whole message."""
    draft.say(message.get("content"))
    draft.refuse(message.get("refusal"))
    draft.think(message.get("reasoning_content") or message.get("reasoning"))
    draft.keep({key: value for key, value in message.items() if key not in KNOWN})
    if isinstance(old := message.get("function_call"), dict) and not message.get("tool_calls"):
        draft.fragment(None, None, old.get("name"), old.get("arguments"))  # the form before tool calls
    calls = message.get("tool_calls") or ()
    for call in [calls] if isinstance(calls, dict) else calls:
        function = call.get("function") or {}
        own = own_fields(call, function)
        draft.fragment(call.get("index"), call.get("id"), function.get("name"), function.get("arguments"), own)


def own_fields(call: Mapping[str, Any], function: Mapping[str, Any]) -> Json:
    """What a call has beside id, name and arguments: only its server understands it."""
    own = {key: value for key, value in call.items() if key not in KNOWN_OF_CALL and value is not None}
    inner = {key: value for key, value in function.items() if key not in KNOWN_OF_FUNCTION and value is not None}
    return own | {"function": inner} if inner else own


def _whole(body: bytes, stream: Stream, who: str) -> Draft:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        record = None
    if isinstance(record, dict) and record.get("choices") and not record.get("error"):
        draft = stream.draft
        _take(draft, record)
        if draft.finish or draft.ends_well():
            return draft
        raise cut(who)
    raise fault(hear(stream.status, body, stream.headers), who)


def usage_of(record: Any) -> Usage | None:
    """The provider's counts; None when there are none (0 tokens are no count).

    Thinking is a part of `completion_tokens` at OpenAI.  xAI, Gemini's endpoint and gateways before them count it
    beside the text: there only the total has it, and what the total has more is thinking.
    """
    if not isinstance(record, dict):
        return None
    details = record.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    cached = cached or record.get("prompt_cache_hit_tokens") or record.get("cached_tokens")
    prompt, completion, thought = record.get("prompt_tokens"), record.get("completion_tokens"), reasoning_of(record)
    total = counted(record.get("total_tokens"), None, None)
    usage = counted(prompt, completion, cached, partly=True)
    if usage is None or total is None or not usage.prompt or total.prompt - usage.prompt <= usage.completion:
        return counted(prompt, completion, cached, thought, partly=True)
    beside = total.prompt - usage.prompt - usage.completion
    return Usage(usage.prompt, usage.completion + beside, usage.cached, max(thought or 0, beside))


def reasoning_of(record: Mapping[str, Any]) -> int | None:
    """Tokens of thinking in a `usage`, None where the server does not report them."""
    places = (record.get("completion_tokens_details"), record.get("output_tokens_details"), record)
    for place in places:
        told = place.get("reasoning_tokens") if isinstance(place, dict) else None
        if isinstance(told, int) and not isinstance(told, bool):
            return told
    return None
