"""Parses server-sent events (WHATWG, section 9.2) as model servers send them: lines become pairs of event name and JSON
value.

Comments, `id`, `retry`, unknown fields, events without data and heartbeats in a stream are skipped.  A `data` line that
is valid JSON is an event, with or without an empty line after it; if a `data` line is not valid JSON, the next `data`
line continues it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson

from agent.errors import AnswerUnreadable
from agent.llm.error_mapping import RESAMPLE_TRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DONE = object()
"""The value of the event `data: [DONE]`, which marks the end of the stream."""
BEGINS = re.compile(rb"\A(?:\xef\xbb\xbf)?(?:(?:data|event|id|retry)[ \t]*(?::|\Z)|:)")
HEARTBEAT = re.compile(r"(?i)ping|pong|heart-?beat|keep-?alive")
HALF = re.compile(rb"\\u[dD][89a-fA-F]")
MARK = b"\xef\xbb\xbf"


def is_stream(first: bytes, kind: str = "") -> bool:
    """Whether an answer with the first line `first` is a stream of server-sent events; `kind` is its content type."""
    named = kind.startswith("text/event-stream") and not first.lstrip().startswith((b"{", b"[", b"<"))
    return named or BEGINS.match(first) is not None


def events(lines: Iterable[bytes], who: str) -> Iterator[tuple[str, Any]]:
    """Yield each server-sent event as (name of the event, "" when it has none; value of the event: JSON, DONE, or the
    text of an event named `error` that is not JSON).

    Raises AnswerUnreadable, which allows a few retries, for an event with data that is not JSON.
    """
    name, data = "", list[bytes]()
    for line in _lines(lines):
        if not line:
            if data:
                yield from _broken(name, b"\n".join(data), who)
            name, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace").strip()
        elif field == b"data" and (data or value.strip()):
            data.append(value)
            if (found := _parsed(data)) is not None:
                if not HEARTBEAT.fullmatch(name):
                    yield name, found[0]
                name, data = "", []
        # some servers send an error as a JSON object outside of the events
        elif line.startswith(b"{") and (found := _parsed([line])) is not None:
            yield name, found[0]
    if data:
        yield from _broken(name, b"\n".join(data), who)


def _lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream without a byte order mark at its beginning; a carriage return without a line feed also ends
    a line."""
    first = True
    for line in lines:
        whole = line.removeprefix(MARK) if first else line
        first = False
        if b"\r" in whole:
            yield from whole.split(b"\r")
        else:
            yield whole


def _parsed(data: list[bytes]) -> list[Any] | None:
    """A list with the decoded value of the `data` lines; None while the lines are not complete JSON."""
    whole = data[0] if len(data) == 1 else b"\n".join(data)
    if whole.strip() == b"[DONE]":
        return [DONE]
    if len(data) > 1 and not data[-1].rstrip().endswith((b"}", b"]")):
        return None
    try:
        return [parse(whole)]
    except json.JSONDecodeError:
        return None


def _broken(name: str, data: bytes, who: str) -> Iterator[tuple[str, Any]]:
    """For an event with data that is not JSON: yield the event if it is an error, skip a heartbeat, raise
    AnswerUnreadable for any other event."""
    text = data.decode("utf-8", "replace")
    if name == "error":
        yield name, text
    elif not HEARTBEAT.fullmatch(name or text.strip()):
        load(data, who)


def load(data: bytes, who: str) -> Any:
    """Decode the JSON of one event or line of a stream; raises AnswerUnreadable, which allows a few retries, if the
    text is not JSON."""
    try:
        return parse(data)
    except json.JSONDecodeError as error:
        broken = AnswerUnreadable(f"{who} sent a line that is not JSON: {data[:200].decode('utf-8', 'replace')!r}")
        broken.tries = RESAMPLE_TRIES
        raise broken from error


def parse(data: bytes) -> Any:
    """Decode JSON that may contain half of a surrogate pair, since some servers split an emoji between two chunks.

    Raises json.JSONDecodeError for a text that is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if HALF.search(data):
            try:
                return json.loads(data)
            except RecursionError:
                raise json.JSONDecodeError("nested too deeply", "", 0) from None
        raise
