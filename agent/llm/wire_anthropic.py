"""Anthropic's `/v1/messages` on the wire: system apart, calls and results as blocks, results inside user turns.

Lines are translated as they pass, one turn's blocks after another.  The last block of the request carries a cache
mark beside the one on system and tools, so that a provider's prompt cache grows with the conversation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agent.llm.draft import Draft, counted
from agent.llm.faults import fault
from agent.llm.said import hear, read
from agent.llm.streams import events
from agent.llm.tidy import GO_ON, arguments_of, parsed
from agent.llm.wire_openai import cut, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.llm.transport import Stream
    from agent.values import Json, Span, Usage

CACHE = {"type": "ephemeral"}

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def header(parameters: Mapping[str, Any], system: str, tools: Sequence[Json]) -> bytes:
    """Everything before the first message."""
    fields = dict(parameters)
    if tools:
        fields["tools"] = [tool_of(tool) for tool in tools]
        if not system:
            fields["tools"][-1]["cache_control"] = CACHE
    if system:
        fields["system"] = [{"type": "text", "text": system, "cache_control": CACHE}]
    return orjson.dumps(fields)[:-1] + b',"messages":['


def tool_of(tool: Json) -> Json:
    """An OpenAI-form tool in Anthropic's form."""
    function = tool["function"]
    schema = {"type": "object", "properties": {}} | (function.get("parameters") or {})
    return {"name": function["name"], "description": function.get("description") or "", "input_schema": schema}


def write_messages(out: BinaryIO, spans: Sequence[Span]) -> None:
    """The turns, with commas between them; a block is in memory, never a turn."""
    role = ""
    held = b""  # the last block, until it is known whether it is the last of all
    for side, block in blocks(spans):
        if side != role:
            if role:
                out.write(held + b"]},")
            out.write(b'{"role":"' + side.encode() + b'","content":[')
            role = side
        else:
            out.write(held + b",")
        held = orjson.dumps(block)
    if role:
        out.write(held[:-1] + b',"cache_control":' + orjson.dumps(CACHE) + b"}]}")


def blocks(spans: Sequence[Span]) -> Iterator[tuple[str, Json]]:
    """(side, block) of every message but the system's; a user's block first, nothing empty."""
    begun = False
    for message in parsed(spans):
        for side, block in _blocks_of(message):
            if not begun and side != "user":
                yield "user", {"type": "text", "text": GO_ON}
            begun = True
            yield side, block


def _blocks_of(message: Json) -> Iterable[tuple[str, Json]]:
    role, text = message["role"], message.get("content") or ""
    if role == "tool":
        block: Json = {"type": "tool_result", "tool_use_id": legal_id(message["tool_call_id"])}
        if text.strip():
            block["content"] = text
        yield "user", block
        return
    if role != "system" and text.strip():
        yield role, {"type": "text", "text": text}
    for call in message.get("tool_calls") or ():
        yield (
            "assistant",
            {
                "type": "tool_use",
                "id": legal_id(call["id"]),
                "name": call["function"]["name"],
                "input": arguments_of(call),
            },
        )


def legal_id(call_id: str) -> str:
    """Call ids of other wires with the signs that this one takes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)


def read_answer(stream: Stream, who: str) -> Draft:
    """The whole answer, streamed or not."""
    lines = stream.lines()
    first = next((line for line in lines if line.strip()), b"")
    if not first.startswith((b"event:", b"data:", b":")):
        return _whole(b"\n".join([first, *lines]), stream, who)
    draft, usage, done = Draft(), dict[str, int](), False

    def all_lines() -> Iterator[bytes]:
        yield first
        yield from lines

    for event, data in events(all_lines()):
        record = load(data, who)
        known = isinstance(record, dict) and not record.get("error")  # a proxy's error may lack event and type
        kind = record.get("type", event) if known else "error"
        if kind == "error":
            raise fault(read(None, record), who)
        if kind == "message_stop":
            done = True
            break
        _take(draft, usage, kind, record)
    if not done or not draft.finish:
        raise cut(who)
    draft.usage = usage_of(usage)
    return draft


def _take(draft: Draft, usage: dict[str, int], kind: str, record: Json) -> None:
    if kind == "message_start":
        message = record.get("message") or {}
        draft.model = str(message.get("model") or "")
        _count(usage, message.get("usage"))
    elif kind == "content_block_start":
        _block(draft, record.get("index"), record.get("content_block") or {}, streamed=True)
    elif kind == "content_block_delta":
        delta = record.get("delta") or {}
        draft.say(delta.get("text"))
        draft.think(delta.get("thinking"))
        if "partial_json" in delta:
            draft.fragment(record.get("index"), None, None, delta["partial_json"])
    elif kind == "message_delta":
        reason = (record.get("delta") or {}).get("stop_reason")
        draft.finish = FINISH.get(reason, str(reason)) if reason else draft.finish
        _count(usage, record.get("usage"))


def _block(draft: Draft, index: Any, block: Mapping[str, Any], *, streamed: bool) -> None:
    if block.get("type") == "tool_use":
        # In a stream `input` is {} here and follows in pieces.
        whole = None if streamed and not block.get("input") else block.get("input")
        draft.fragment(index, block.get("id"), block.get("name"), whole)
    elif block.get("type") == "text":
        draft.say(block.get("text"))
    else:
        draft.think(block.get("thinking"))


def _count(usage: dict[str, int], record: Any) -> None:
    usage.update({name: value for name, value in (record or {}).items() if isinstance(value, int)})


def _whole(body: bytes, stream: Stream, who: str) -> Draft:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict) or record.get("type") != "message":
        raise fault(hear(stream.status, body, stream.headers), who)
    draft = Draft(model=str(record.get("model") or ""))
    for index, block in enumerate(record.get("content") or ()):
        _block(draft, index, block, streamed=False)
    reason = record.get("stop_reason")
    draft.finish = FINISH.get(str(reason), str(reason or "stop"))
    draft.usage = usage_of(record.get("usage") or {})
    return draft


def usage_of(usage: Mapping[str, Any]) -> Usage | None:
    """`input_tokens` leaves out what was read from or written to the cache; our `prompt` is all of it."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    whole = sum(usage[name] for name in names if isinstance(usage.get(name), int))
    return counted(whole, usage.get("output_tokens"), usage.get("cache_read_input_tokens"))
