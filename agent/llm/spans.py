"""The message lines of a plan: sizes, lines, and the check of those that are new.

A request copies bytes and checks only what it has not seen (design: section 4).  `Lines` remembers how far it looked;
a view that was replaced is looked at from the start.  It holds ids and flags, never contents.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson

from agent.errors import HistoryRefused
from agent.tokens.counters import FUNCTION, MESSAGE
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FINGERPRINT = 512

KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content", "images"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
CALL = {"id", "type", "function"}
NOT_SENT = MESSAGE - KEYS["assistant"]
"""What a record has and a request does not; any other field of an answer is its server's own."""
NOT_SENT_IN_CALLS = {"invalid", "given_id", "name", "arguments"}
NAME = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


def sized(spans: Sequence[Span]) -> list[tuple[Path, int, int]]:
    """(path, start, end) of each span that is not empty; an open end is the size of the file now."""
    found = []
    for span in spans:
        end = span.path.stat().st_size if span.end is None else span.end
        if end > span.start:
            found.append((span.path, span.start, end))
    return found


def lines(spans: Sequence[Span]) -> Iterator[bytes]:
    """Each message line of the spans, without its newline; one line in memory at a time."""
    for path, start, end in sized(spans):
        with path.open("rb") as source:
            source.seek(start)
            left = end - start
            while left > 0 and (line := source.readline(left)):
                left -= len(line)
                if line := line.rstrip(b"\n"):
                    yield line


def fingerprint(path: Path, offset: int) -> int:
    """Of the bytes that end at `offset`: a view that was renamed over another may get an old inode number again."""
    with path.open("rb", buffering=0) as source:
        start = max(0, offset - FINGERPRINT)
        return crc32(os.pread(source.fileno(), offset - start, start))


@dataclass
class Shape:
    """What the lines seen so far look like.  `plain` conversations are copied; others are translated line by line."""

    count: int = 0
    systems: int = 0
    late_system: bool = False  # a second system message, or one that is not first
    late_user: bool = False  # the first message that is not a system's is not a user's
    empty: bool = False  # an assistant with neither text nor calls
    adjacent: bool = False  # two messages of one side in a row, where a template wants turns
    last_role: str = ""
    awaited: set[str] = field(default_factory=set)  # calls of the last group without a result
    ids: set[str] = field(default_factory=set)  # every call id of the view
    user_after_tool: bool = False  # a user's message directly behind a result
    answers: int = 0  # assistant messages
    fields: dict[str, int] = field(default_factory=dict)  # a server's own field → how many answers have a value there
    call_fields: set[str] = field(default_factory=set)  # the same of calls
    older_fields: set[str] = field(default_factory=set)  # those of both that stand before the last user's message
    unsigned: bool = False  # the first call of an answer has no field of its own
    images: int = 0  # pictures of users' messages
    loop: int = 0  # messages up to the last user's, with it
    answer: int = 0  # messages in front of the newest answer: with them the request before ended

    @property
    def tidy(self) -> bool:
        """Fit for a strict local template as it stands."""
        return not (self.late_system or self.late_user or self.empty or self.adjacent)


class Lines:
    """Checks the lines of one conversation, each once."""

    def __init__(self) -> None:
        self.shape = Shape()
        self._key: tuple[Any, ...] = ()
        self._seen = 0
        self._behind = 0

    def check(self, spans: Sequence[Span]) -> Shape:
        """Look at what is new.  HistoryRefused names the file and the line that is not legal."""
        parts = sized(spans)
        if not parts:
            raise HistoryRefused("there is no message to send; add a user message first")
        *fixed, (path, start, end) = parts
        key = (tuple((os.fspath(p), p.stat().st_ino, s, e) for p, s, e in fixed), path, path.stat().st_ino, start)
        if key != self._key or self._seen > end or self._behind != fingerprint(path, self._seen):
            self.shape, self._seen = Shape(), start
            for before, first, last in fixed:
                self._look(before, first, last)
        self._key = ()  # until all of it was looked at
        self._look(path, self._seen, end)
        self._key, self._seen, self._behind = key, end, fingerprint(path, end)
        self._judge_end(path)
        return self.shape

    def _look(self, path: Path, start: int, end: int) -> None:
        for line in lines((Span(path, start, end),)):
            self.shape.count += 1
            try:
                message = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise HistoryRefused(f"{path}: message {self.shape.count} is not JSON: {error}") from error
            if reason := self._take(message):
                raise HistoryRefused(f"{path}: message {self.shape.count} is not legal: {reason}")

    def _take(self, message: Any) -> str:
        """Take one message in; what is wrong with it, or ""."""
        if not isinstance(message, dict) or message.get("role") not in KEYS:
            found = message.get("role") if isinstance(message, dict) else message
            return f"role {found!r} is not one of {', '.join(KEYS)}"
        role = message["role"]
        if unknown := set(message) & NOT_SENT if role == "assistant" else set(message) - KEYS[role]:
            return f"a {role} message has no {', '.join(sorted(unknown))}"
        calls = message.get("tool_calls")
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and calls):
            return f"content is {type(content).__name__}; it must be text (null only beside tool_calls)"
        shape = self.shape
        if role == "tool":
            answered = message.get("tool_call_id")
            if answered not in shape.awaited:
                return f"it answers {answered!r}, which no open call has"
            shape.awaited.discard(answered)
        elif shape.awaited:
            return f"it stands between a call and its result; {', '.join(sorted(shape.awaited))} has no result yet"
        if role == "assistant" and "tool_calls" in message and (reason := self._take_calls(calls)):
            return reason
        if role == "assistant":
            shape.answer = shape.count - 1
            self._take_fields(message)
        elif role == "user":
            shape.images += len(message.get("images") or ())
            shape.loop = shape.count
            shape.older_fields |= shape.fields.keys() | shape.call_fields
        self._notice(role, empty=not content and not calls)
        return ""

    def _take_calls(self, calls: Any) -> str:
        if not isinstance(calls, list) or not calls:
            return "tool_calls is empty; the key must be left out"
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict) or not set(call) >= CALL or call["type"] != "function":
                return "a call needs id, type function, and function"
            if not isinstance(function.get("name"), str) or not NAME.match(function["name"]):
                return f"function name {function.get('name')!r} must be 1 to 64 of A-Z a-z 0-9 _ -"
            if not isinstance(function.get("arguments"), str):
                return f"the call of {function['name']} needs arguments as text"
            if ours := set(call) & NOT_SENT_IN_CALLS:
                return f"the call of {function['name']} has no {', '.join(sorted(ours))}"
            if not isinstance(call["id"], str) or not call["id"] or call["id"] in self.shape.ids:
                return f"call id {call['id']!r} is empty or used twice"
            self.shape.ids.add(call["id"])
            self.shape.awaited.add(call["id"])
        return ""

    def _take_fields(self, message: Mapping[str, Any]) -> None:
        """What only the server understands."""
        shape = self.shape
        shape.answers += 1
        for name in message.keys() - KEYS["assistant"]:
            shape.fields[name] = shape.fields.get(name, 0) + bool(message[name])
        for number, call in enumerate(message.get("tool_calls") or ()):
            own = (call.keys() - CALL) | (call["function"].keys() - FUNCTION)
            shape.call_fields |= own
            shape.unsigned |= number == 0 and not own

    def _notice(self, role: str, *, empty: bool) -> None:
        shape = self.shape
        if role == "system":
            shape.late_system |= shape.count > 1
            shape.systems += 1
            return
        if not shape.last_role:
            shape.late_user |= role != "user"
        if empty and role == "assistant":
            shape.empty = True
            return
        shape.user_after_tool |= role == "user" and shape.last_role == "tool"
        shape.adjacent |= role == shape.last_role and role in ("user", "assistant")
        shape.last_role = role

    def _judge_end(self, path: Path) -> None:
        shape = self.shape
        if shape.awaited:
            raise HistoryRefused(
                f"{path}: no result yet for {', '.join(sorted(shape.awaited))}; answer every call first"
            )
        if shape.last_role not in ("user", "tool"):
            raise HistoryRefused(
                f"{path}: the last message is {shape.last_role or 'a system'} message; it must be a user's or a tool's"
            )
