"""Writes requests and parses answers of Anthropic's `/v1/messages`: the system text is a separate parameter, tool calls
and their results are blocks, and the results of tool calls are inside user turns.

Stored messages are translated into Anthropic's form one at a time, block by block.  Up to four blocks of a request
carry a cache mark (`cache_control`); docs/wire.md, "Prompt caches", has the rules of the prompt cache and their
sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agent.llm.answer_fields import index_in, object_in, objects_in, text_in
from agent.llm.call_ids import ANTHROPIC, translate_id
from agent.llm.error_body import parse_document, parse_error_body
from agent.llm.error_mapping import map_error
from agent.llm.opaque_fields import is_shallow, merge
from agent.llm.role_alternation import GO_ON, arguments_of, parsed
from agent.llm.sse import DONE, events, is_stream
from agent.llm.stream_accumulator import read_arguments, usage_of_counts
from agent.llm.wire_openai import cut_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.llm.base import SideRequest
    from agent.llm.role_alternation import Change
    from agent.llm.stream_accumulator import StreamAccumulator
    from agent.llm.transport import Stream
    from agent.values import Json, Span, Usage

CACHE = {"type": "ephemeral"}
BLOCKS = "thinking_blocks"
"""The field of a stored message that lists the blocks of an answer in their order, with the contents of
provider-specific blocks (such as thinking).

The field BLOCKS only names the blocks of text and of tool calls; their contents are in the message itself."""
THOUGHT = "thinking_tokens"


def header(parameters: Mapping[str, Any], system: str, tools: Sequence[Json], *, marked: bool = True) -> bytes:
    """The bytes of a request that precede the first message. With `marked` the system text, or without one the last
    tool, gets a prompt cache mark."""
    fields = dict(parameters)
    mark = {"cache_control": CACHE} if marked else {}
    if tools:
        fields["tools"] = [tool_of(tool) for tool in tools]
        if not system:
            fields["tools"][-1] |= mark
    if system:
        fields["system"] = [{"type": "text", "text": system, **mark}]
    return orjson.dumps(fields)[:-1] + b',"messages":['


def tool_choice(aside: SideRequest) -> Json:
    """The parameter `tool_choice` in Anthropic's form, {} if the request has no tools or no choice."""
    if not aside.tools or not aside.choice:
        return {}
    if aside.named:
        return {"tool_choice": {"type": "tool", "name": aside.named}}
    return {"tool_choice": {"type": "any" if aside.choice == "required" else aside.choice}}


def tool_of(tool: Json) -> Json:
    """Convert the schema of a tool from OpenAI's form to Anthropic's form."""
    function = tool["function"]
    schema = {"type": "object", "properties": {}} | (function.get("parameters") or {})
    return {"name": function["name"], "description": function.get("description") or "", "input_schema": schema}


def write_messages(
    out: BinaryIO, spans: Sequence[Span], change: Change | None = None, *, marked: bool = True, answer: int = 0
) -> None:
    """Write the messages of a request as turns of user and assistant, with commas between them; the messages are read
    one at a time.

    With `marked` up to three blocks get a prompt cache mark: the last block of the first message, the last block of the
    previous request, and the last block of this request.  `answer` is the index (from 0) of the newest answer among the
    messages, before which the previous request ended.  `answer` is 0 if the messages contain no answer, or if `change`
    returns other messages than the spans contain.
    """
    role = ""
    # `held`: the last block, which is written when the next block is known; `first`: the index of the first message;
    # `at`: the index of the message that contains `held`
    held, first, at = b"", -1, -1
    for side, block, number in blocks(spans, change):
        if role:
            ends = role == "user" and number > at and (at == first or at < answer <= number)
            out.write(with_mark(held) if marked and ends else held)
        else:
            first = number
        if side != role:
            out.write(b"]}," if role else b"")
            out.write(b'{"role":"' + side.encode() + b'","content":[')
            role = side
        else:
            out.write(b",")
        held, at = orjson.dumps(block), number
    if role:
        out.write((with_mark(held) if marked else held) + b"]}")


def with_mark(block: bytes) -> bytes:
    """Add a cache mark to a block in JSON: the server then caches the beginning of the request up to this block."""
    return block[:-1] + b',"cache_control":' + orjson.dumps(CACHE) + b"}"


def blocks(spans: Sequence[Span], change: Change | None = None) -> Iterator[tuple[str, Json, int]]:
    """(role "user" or "assistant", block, index of its message) of each block of the messages, without system messages;
    the first block has the role "user"."""
    begun = False
    for number, message in enumerate(parsed(spans) if change is None else change(parsed(spans))):
        for side, block in _blocks_of(message):
            if not begun and side != "user":
                yield "user", {"type": "text", "text": GO_ON}, number
            begun = True
            yield side, block, number


def _blocks_of(message: Json) -> Iterable[tuple[str, Json]]:
    role, text = message["role"], message.get("content") or ""
    if role == "tool":
        block: Json = {"type": "tool_result", "tool_use_id": translate_id(message["tool_call_id"], ANTHROPIC)}
        if text.strip():
            block["content"] = text
        yield "user", block
        return
    if role == "system":
        return
    texts, calls = [text], list(message.get("tool_calls") or ())
    layout = message.get(BLOCKS)
    if isinstance(layout, list):
        yield from ((role, block) for block in _laid_out(layout, texts, calls))
    for rest in texts:
        if rest.strip():
            yield role, {"type": "text", "text": rest}
    for image in message.get("images") or ():
        yield role, {"type": "image", "source": {"type": "base64", **image}}
    for call in calls:
        yield role, _tool_use(call)


def _tool_use(call: Json) -> Json:
    own = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    block = {"type": "tool_use", "id": translate_id(call["id"], ANTHROPIC), "name": call["function"]["name"]}
    return own | block | {"input": arguments_of(call)}


def _laid_out(layout: Sequence[Any], texts: list[str], calls: list[Json]) -> Iterator[Json]:
    """The blocks of an answer in their original order (`layout`).  The texts and tool calls that are yielded as blocks
    are removed from `texts` and `calls`."""
    lengths = [block.get("length") for block in layout if _is(block, "text")]
    if lengths and all(isinstance(length, int) for length in lengths) and sum(lengths) == len(texts[0]):
        whole, texts[:] = texts[0], []
        for length in lengths:
            texts.append(whole[:length])
            whole = whole[length:]
    for block in layout:
        if _is(block, "text"):
            text = texts.pop(0) if texts else ""
            if text.strip():
                yield {"type": "text", "text": text}
        elif _is(block, "tool_use"):
            if calls:
                yield _tool_use(calls.pop(0))
        elif isinstance(block, dict):
            yield block


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def read_answer(stream: Stream, who: str) -> StreamAccumulator:
    """Read a whole answer of Anthropic's API, streamed or not."""
    lines = stream.lines()
    first = next((line for line in lines if line.strip()), b"")
    if not is_stream(first, stream.headers.get("content-type", "")):
        return _whole(b"\n".join([first, *lines]), stream, who)
    draft, usage, done = stream.draft, dict[str, int](), False
    layout: dict[Any, Json] = {}

    def all_lines() -> Iterator[bytes]:
        yield first
        yield from lines

    for event, record in events(all_lines(), who):
        if record is DONE or (not record and event != "error"):
            continue  # `[DONE]` and empty events, which gateways add, are ignored
        # an error that a proxy sends may lack both event name and `type`; each record with `error` counts as an error
        known = isinstance(record, dict) and not record.get("error")
        kind = record.get("type", event) if known else "error"
        if kind == "error":
            raise map_error(parse_document(None, record), who)
        if kind == "message_stop":
            done = True
            break
        _read_event(draft, layout, usage, kind, record)
    if not done or not (draft.finish or draft.ends_well()):
        raise cut_off(who)
    _lay_out(draft, layout)
    return draft


def _lay_out(draft: StreamAccumulator, layout: Mapping[Any, Json]) -> None:
    """Store the provider-specific blocks of an answer (thinking with its signature) and the order of all blocks;
    nothing is stored for an answer without provider-specific blocks."""
    for block in layout.values():
        block.pop("partial_json", None)
    if any(block["type"] not in ("text", "tool_use") for block in layout.values()):
        draft.add_fields({BLOCKS: list(layout.values())})


def _read_event(
    draft: StreamAccumulator, layout: dict[Any, Json], usage: dict[str, int], kind: str, record: Json
) -> None:
    if kind == "message_start":
        message = object_in(record, "message")
        draft.model = str(message.get("model") or "")
        _count(usage, object_in(message, "usage"))
        draft.set_usage(usage_of(usage), early=True)
    elif kind == "content_block_start":
        _block(draft, layout, index_in(record), object_in(record, "content_block"), streamed=True)
    elif kind == "content_block_delta":
        index = index_in(record)
        _delta(draft, layout.get(index), index, object_in(record, "delta"))
    elif kind == "message_delta":
        draft.set_finish(text_in(object_in(record, "delta"), "stop_reason"))
        _count(usage, told := object_in(record, "usage"))
        # The count of output tokens in the event message_start is a placeholder; only a count in a later event covers
        # the whole answer.
        early = not told.get("output_tokens")
        draft.set_usage(usage_of(usage), early=early and draft.is_early)


def _block(
    draft: StreamAccumulator, layout: dict[Any, Json], index: Any, block: Mapping[str, Any], *, streamed: bool
) -> None:
    kind = str(block.get("type") or "text")
    layout[index] = {"type": kind}
    if kind == "tool_use":
        # In a stream the start of a block has `input: {}`, and the input of the tool call follows in fragments.
        whole = None if streamed and not block.get("input") else block.get("input")
        own = {key: value for key, value in block.items() if key not in ("type", "id", "name", "input")}
        draft.add_call_part(index, block.get("id"), block.get("name"), whole, own)
    elif kind == "text":
        _text(draft, layout[index], block.get("text"))
    else:
        layout[index] = {key: value for key, value in block.items() if key != "partial_json" and is_shallow(value)}
        layout[index]["type"] = kind
        draft.add_reasoning(block.get("thinking"))


def _text(draft: StreamAccumulator, block: Json, text: Any) -> None:
    draft.add_content(text)
    if isinstance(text, str):
        block["length"] = block.get("length", 0) + len(text)


def _delta(draft: StreamAccumulator, block: Json | None, index: Any, delta: Mapping[str, Any]) -> None:
    kind = block["type"] if block else ""
    if kind in ("", "text"):
        _text(draft, block if block is not None else {}, delta.get("text"))
    draft.add_reasoning(delta.get("thinking"))
    if kind in ("", "tool_use") and "partial_json" in delta:
        draft.add_call_part(index, None, None, delta["partial_json"])
    if block is None or kind in ("text", "tool_use"):
        return
    # the server sends a signature as a whole, so a later signature replaces an earlier one
    if "signature" in delta:
        block["signature"] = delta["signature"]
    own = {key: value for key, value in delta.items() if key not in ("type", "signature", "partial_json")}
    merge(block, {key: value for key, value in own.items() if is_shallow(value)})
    if isinstance(delta.get("partial_json"), str):
        pieces = block.setdefault("partial_json", "") + delta["partial_json"]
        block["partial_json"] = pieces
        if isinstance(whole := read_arguments(pieces), dict) and whole:
            block["input"] = whole


def _count(usage: dict[str, int], record: Json) -> None:
    """Merge the token counts of an event into `usage`; a later count of 0 does not overwrite a number."""
    usage.update({name: value for name, value in record.items() if isinstance(value, int) and value > 0})
    if (thought := thinking_of(record)) is not None:
        usage[THOUGHT] = thought or usage.get(THOUGHT, 0)


def _whole(body: bytes, stream: Stream, who: str) -> StreamAccumulator:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict) or record.get("type") != "message":
        raise map_error(parse_error_body(stream.status, body, stream.headers), who)
    draft = stream.draft
    draft.model = str(record.get("model") or "")
    layout: dict[Any, Json] = {}
    for index, block in enumerate(objects_in(record, "content")):
        _block(draft, layout, index, block, streamed=False)
    _lay_out(draft, layout)
    draft.set_finish(text_in(record, "stop_reason") or "end_turn")
    draft.set_usage(usage_of(object_in(record, "usage")))
    return draft


def usage_of(usage: Mapping[str, Any]) -> Usage | None:
    """Convert Anthropic's token counts into a `Usage` of this program, None without a valid count.

    Anthropic's `input_tokens` does not include tokens that were read from or written to the prompt cache;
    `Usage.prompt` includes them.
    """
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    whole = sum(usage[name] for name in names if isinstance(usage.get(name), int))
    cached = usage.get("cache_read_input_tokens")
    return usage_of_counts(whole, usage.get("output_tokens"), cached, thinking_of(usage), partly=True)


def thinking_of(usage: Mapping[str, Any]) -> int | None:
    """Anthropic's count of thinking tokens (`output_tokens_details.thinking_tokens`), which are included in
    `output_tokens`; None if Anthropic does not report the count."""
    details = usage.get("output_tokens_details")
    told = details.get("thinking_tokens") if isinstance(details, dict) else usage.get(THOUGHT)
    return told if isinstance(told, int) and not isinstance(told, bool) else None
