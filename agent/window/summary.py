"""The summary request: the seed's files, in pieces when the text is longer than the summariser's window.

`[ROLE]: content` lines behind the configured prompt, sent by itself, outside the conversation (seed 002, 4.5 and 7.2;
design: section 6).  Nothing is recorded here; `compressor.py` does that with what comes back, or not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import orjson

from agent import disk
from agent.context.projection import shorter
from agent.context.records import is_legible, is_seen, wire
from agent.errors import ContextOverflow
from agent.window.view import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agent.values import Counter, Json

FILES = (
    "unsummarized.jsonl",
    "to_summarize.jsonl",
    "summary_prompt.txt",
    "formatted_messages.txt",
    "summary_request.txt",
)
"""Exist while a compaction is under way."""

PLACE = "{messages}"
SHRINKS = 4
"""How often the pieces are made smaller when the summariser says too long."""

LEAST_ROOM = 256
"""Tokens of text in a piece; below, a summariser cannot work."""

_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_ERROR = re.compile(
    r"""\A[\W_]*(?:
        (?:api\s+|internal\s+|server\s+|unexpected\s+)*error\b | exception\b | traceback\b | https?\s+\d{3}\b
        | "?error"?\s*: | <!doctype | <html | rate.?limit | too\s+many\s+requests
        | (?:request|connection)\s+(?:failed|timed\s+out|refused)
        | i(?:'m|\s+am)\s+(?:sorry|unable) | sorry,? | i\s+can(?:no|')t\b | as\s+an\s+ai\b
        | \(?no\s+summary | previous\s+conversation\s+was\s+too\s+long | n/?a\W*\Z | none\W*\Z | null\W*\Z
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR_LENGTH = 600
"""Only a short text is taken for an error: a long summary may well begin with the word."""


class Summariser(Protocol):
    """What is needed of a model client."""

    def get_summary(self, path: Path) -> str:
        """One request outside the conversation."""
        ...


class BadSummary(Exception):
    """What came back is not used; the text says why.  Never leaves this room."""


def cleaned(text: str) -> str:
    """The summary without a reasoning model's thoughts; BadSummary for what is none."""
    text = _THOUGHTS.sub("", text or "").strip()
    if not any(letter.isalnum() for letter in text):
        raise BadSummary("it is empty")
    if len(text) < _ERROR_LENGTH and _ERROR.match(text):
        raise BadSummary(f"it reads like an error: {text[:80]!r}")
    return text


def formatted(message: Json) -> str:
    """One message as text: role, content, calls; nothing else of it."""
    role = str(message.get("role") or "").upper()
    content = message.get("content")
    parts = [f"[{role}]: {content}\n"] if content else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        parts.append(f"[{role} → {function['name']}]: {function['arguments']}\n")
    return "".join(parts)


def write_lines(path: Path, records: Iterable[Json], masked: int) -> int:
    """Write the wire form of the messages among `records` as JSONL, results up to seq `masked` as pointers; returns
    how many there were."""
    written = 0

    def chunks() -> Iterator[bytes]:
        nonlocal written
        for record in records:
            if not is_legible(record) or not is_seen(record):
                continue
            message = wire(record)
            if record["role"] == "tool" and record["seq"] <= masked:
                message["content"] = shorter(record) or message["content"]
            written += 1
            yield orjson.dumps(message) + b"\n"

    _write(path, chunks())
    return written


def create_request(prompt_file: Path, formatted_file: Path, output_file: Path) -> Path:
    """prompt + formatted messages, which stand in the place of `{messages}`, or behind a prompt without it."""
    prompt = prompt_file.read_text(encoding="utf-8")
    before, place, after = prompt.partition(PLACE)
    ending = after if place else "\n"

    def chunks() -> Iterator[bytes]:
        yield (before if place else before.rstrip("\n") + "\n\n").encode()
        with formatted_file.open("rb") as file:
            while block := file.read(disk.BLOCK):
                yield block
        yield ending.encode()

    _write(output_file, chunks())
    return output_file


def format_file(source: Path, target: Path) -> Path:
    """Every message of a JSONL file as text."""
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = lines(descriptor, 0, os.fstat(descriptor).st_size)
        _write(target, (formatted(orjson.loads(line)).encode() for _, line in found))
    finally:
        os.close(descriptor)
    return target


@dataclass
class Pieces:
    """Summarises one JSONL file, piece by piece, each with the running summary.

    `room` is what one request may be, in tokens; a message that alone takes more than a third of what is left is cut
    in its middle, with a note.
    """

    folder: Path
    client: Summariser
    counter: Counter
    prompt: str
    room: int
    told: Callable[[str], None] = lambda _why: None
    asked: Callable[[], None] = lambda: None
    """Called after every request, whatever came of it."""

    def summarise(self, source: Path, running: str = "") -> str:
        """The summary of `running` and the messages of `source`.  BadSummary, or what the client raises."""
        prompt_file = self.folder / "summary_prompt.txt"
        _write(prompt_file, [self.prompt.encode()])
        room = self.room
        shrinks = 0
        offset = 0
        size = source.stat().st_size
        while offset < size:
            try:
                behind = self._piece(source, offset, running, room)
                running = cleaned(self._ask())
            except ContextOverflow as overflow:
                shrinks += 1
                if shrinks > SHRINKS:
                    raise BadSummary(f"its request is too long even in small pieces: {overflow}") from overflow
                room = min(room * 6 // 10, (overflow.limit or room) * 7 // 10)
                self.told(f"too long for the summariser; trying with pieces of {room} tokens")
                continue
            offset = behind
        return running

    def shorten(self, summary: str) -> str:
        """A summary of a summary that has grown too long."""
        source = self.folder / "to_summarize.jsonl"
        _write(source, [orjson.dumps({"role": "assistant", "content": summary}) + b"\n"])
        return self.summarise(source)

    def _ask(self) -> str:
        try:
            return self.client.get_summary(self.folder / "summary_request.txt")
        finally:
            self.asked()

    def _piece(self, source: Path, start: int, running: str, room: int) -> int:
        """Write the request for what fits from `start` on; returns the offset behind it."""
        left = room - self.counter.count(self.prompt) - self.counter.count(running)
        if left < LEAST_ROOM:
            raise BadSummary(f"prompt and running summary leave {max(0, left)} tokens for text")
        behind = start
        most = max(LEAST_ROOM, left // 3)

        def chunks() -> Iterator[bytes]:
            nonlocal behind, left
            if running:
                yield f"[SUMMARY SO FAR]: {running}\n".encode()
            for after, line in lines(descriptor, start, size):
                text = self._capped(formatted(orjson.loads(line)), most)
                left -= self.counter.count(text)
                if left < 0 and behind > start:
                    return
                yield text.encode()
                behind = after

        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            _write(self.folder / "formatted_messages.txt", chunks())
        finally:
            os.close(descriptor)
        create_request(
            self.folder / "summary_prompt.txt",
            self.folder / "formatted_messages.txt",
            self.folder / "summary_request.txt",
        )
        return behind

    def _capped(self, text: str, most: int) -> str:
        """`text`, its middle left out when it is over `most` tokens."""
        tokens = self.counter.count(text)
        while tokens > most:
            half = max(40, len(text) * most // tokens * 45 // 100)
            if 2 * half >= len(text):
                break
            dropped = len(text) - 2 * half
            text = f"{text[:half]}\n[… {dropped} characters left out …]\n{text[-half:]}"
            tokens = self.counter.count(text)
        return text


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    """An intermediate file, mode 0600; needs no sync, it is removed in any case."""
    with disk.writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with disk.writing(path):
            for chunk in chunks:
                disk.write_all(descriptor, chunk)
    finally:
        os.close(descriptor)
