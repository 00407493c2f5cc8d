"""current.jsonl as the planner sees it: checked and counted once, line by line, then only what is new.

Nothing of the text is kept: a few counters and the ids of open calls.  A file that was replaced, cut or changed below
the checkpoint is read again from the start.  The rules are wire.md section 1 and seed 000, 3.5; `assembler.py` and
`compressor.py` ask, nobody else.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson

from agent import disk
from agent.context.trims import ROLES as ROLES_TRIMMED
from agent.tokens import count_fields, count_message
from agent.tokens.counters import CALL, MESSAGE
from agent.window.base import IllegalContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.values import Counter, Json

LEAST_TOKENS = 72
"""Tokens of a message that is shortened as far as a trim can: a statement and a few words around it."""

ROLES = ("system", "user", "assistant", "tool")
KEYS = {"role", "content", "name", "tool_calls", "tool_call_id"}
NOT_SENT = MESSAGE - KEYS
"""What a record has and a request does not; any other field of an answer is its server's own."""
FINGERPRINT = 512
"""Bytes before the checkpoint that must still be there: a renamed file may get the old inode number again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the first `offset` bytes.

    `fields` and `tail_fields` are the tokens of provider fields in `tokens` and in `tail`, by name.
    `tail` is the tokens of the newest turn: the last assistant message that has calls with its results, or what came
    after a last plain answer; `least` the same when a trim shortens what it can (`context/trims.py`); `head` those of
    the leading system message, `briefing` of the user message behind it.  `problem` is the first rule that was broken,
    as a sentence.
    """

    offset: int = 0
    messages: int = 0
    tokens: int = 0
    head: int = 0
    briefing: int = 0
    tail: int = 0
    least: int = 0
    answered: bool = True
    last_role: str = ""
    users: int = 0
    calls: int = 0
    fields: Mapping[str, int] = field(default_factory=dict)
    tail_fields: Mapping[str, int] = field(default_factory=dict)
    open_calls: tuple[str, ...] = ()
    problem: str = ""
    identity: tuple[int, ...] = field(default=(), compare=False)


def lines(descriptor: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """(offset behind the line, line without its newline) of the whole lines between two offsets, one in memory."""
    at = start
    with os.fdopen(os.dup(descriptor), "rb", buffering=disk.BLOCK) as file:
        file.seek(start)
        for line in file:
            at += len(line)
            if at > end or not line.endswith(b"\n"):
                return
            if not line.isspace():
                yield at, line[:-1]


def fields_of(counter: Counter, message: Json) -> Mapping[str, int]:
    """Tokens of the provider fields of a message and of its calls, by name, as `count_message` counts them."""
    found: Mapping[str, int] = {
        name: count_fields(counter, {name: value}) for name, value in message.items() if name not in MESSAGE
    }
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            own = {name: value for name, value in call.items() if name not in CALL}
            found = added(found, {name: count_fields(counter, {name: value}) for name, value in own.items()})
    return found


def added(sums: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    """Both, name by name; the same object where there is nothing more."""
    return {name: sums.get(name, 0) + more.get(name, 0) for name in (*sums, *more)} if more else sums


class View:
    """The checked view of one task.  `path` is current.jsonl."""

    def __init__(self, path: Path, counter: Counter) -> None:
        self.path = path
        self.counter = counter
        self.seen = Seen()
        self.parsed = 0  # lines parsed so far, over all reads: what a plan costs
        self._looked: tuple[int, ...] = ()  # at this file, of this size and age

    def read(self) -> Seen:
        """Take in what is new and return the state.  A list that breaks a rule is counted all the same."""
        try:
            status = self.path.stat()
            looked = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if looked == self._looked:
                return self.seen
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.seen, self._looked = Seen(), ()
            return self.seen
        try:
            status = os.fstat(descriptor)
            seen = self.seen
            if status.st_size < seen.offset or seen.identity != self._identity(descriptor, status, seen.offset):
                seen = Seen()
            for behind, line in lines(descriptor, seen.offset, status.st_size):
                seen = self._take(seen, line, behind)
                self.parsed += 1
            self.seen = replace(seen, identity=self._identity(descriptor, status, seen.offset))
            self._looked = looked
        finally:
            os.close(descriptor)
        return self.seen

    def complete(self) -> Seen:
        """`read`, and IllegalContext when a line broke a rule or the whole list does: it is empty, something is
        unanswered, or neither a user nor a tool speaks last."""
        seen = self.read()
        if problem := seen.problem or self._whole(seen):
            raise IllegalContext(problem)
        return seen

    def _whole(self, seen: Seen) -> str:
        name = self.path.name
        if not seen.messages:
            return f"Messages cannot be empty: there is no line in {name}"
        if not seen.users:
            return f"No user message in {name}; local models refuse such a list"
        if seen.open_calls:
            return f"Last message must answer every call: {name} ends without results for {', '.join(seen.open_calls)}"
        if seen.last_role not in ("user", "tool"):
            return f"Last message must be user message or tool result: {name} ends with role {seen.last_role!r}"
        return ""

    @staticmethod
    def _identity(descriptor: int, status: os.stat_result, offset: int) -> tuple[int, ...]:
        start = max(0, offset - FINGERPRINT)
        return status.st_dev, status.st_ino, crc32(os.pread(descriptor, offset - start, start))

    def _take(self, seen: Seen, line: bytes, behind: int) -> Seen:
        """The state after one more line."""
        number = seen.messages + 1
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            message = {}
            problem = f"Message {number} in {self.path.name} is not JSON: {error}"
        else:
            problem = self._problem(seen, message, number)
        message = message if isinstance(message, dict) else {}
        role = str(message.get("role"))
        tokens = count_message(self.counter, message)
        calls = () if problem else tuple(str(call["id"]) for call in message.get("tool_calls") or ())
        opening = (number == 1 and role in ("system", "user")) or (number == 2 and role == "user" and seen.head > 0)
        plain = role == "assistant" and not message.get("tool_calls")
        begins = role == "assistant" or seen.answered
        own = fields_of(self.counter, message) if role == "assistant" else {}
        before: Mapping[str, int] = {} if opening or begins else seen.tail_fields
        least = min(tokens, LEAST_TOKENS) if role in ROLES_TRIMMED else tokens
        return Seen(
            offset=behind,
            messages=number,
            tokens=seen.tokens + tokens,
            head=tokens if opening and role == "system" else seen.head,
            briefing=tokens if opening and role == "user" else seen.briefing,
            tail=0 if opening or plain else tokens + (0 if begins else seen.tail),
            least=0 if opening or plain else least + (0 if begins else seen.least),
            answered=opening or plain,
            last_role=role,
            users=seen.users + (role == "user"),
            calls=seen.calls + len(calls),
            fields=added(seen.fields, own),
            tail_fields={} if opening or plain else added(before, own),
            open_calls=self._open(seen, message, calls),
            problem=seen.problem or problem,
        )

    def _open(self, seen: Seen, message: Json, calls: tuple[str, ...]) -> tuple[str, ...]:
        """The calls that still want a result."""
        if message.get("role") != "tool":
            return calls
        return tuple(call for call in seen.open_calls if call != message.get("tool_call_id"))

    def _problem(self, seen: Seen, message: Any, number: int) -> str:
        """The rule that a line breaks, as a sentence that names the line; "" for none."""
        where = f"message {number} in {self.path.name}"
        if not isinstance(message, dict):
            return f"Message {number} in {self.path.name} is {type(message).__name__}, not an object"
        role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
        if role not in ROLES:
            return f"Message {number} missing role: {where} has {role!r}; allowed are {', '.join(ROLES)}"
        if (
            extra := set(message) & NOT_SENT
            if role == "assistant"
            else set(message) - KEYS - ({"images"} if role == "user" else set())
        ):
            return f"Unknown keys in {where}: {', '.join(sorted(extra))}"
        if number == 1 and role != "system":
            return f"First message must be system prompt: {where} has role {role!r}"
        if number > 1 and role == "system":
            return f"Only the first message may be system: {where}"
        if content is not None and not isinstance(content, str):
            return f"Content must be text: {where} has {type(content).__name__}"
        if not content and not (role == "assistant" and calls):
            return f"Message {number} has empty content: {where}, role {role}"
        if role == "tool":
            return self._answers(seen, message, where)
        if seen.open_calls:
            return f"Results must follow their calls: {where} stands before {', '.join(seen.open_calls)}"
        return self._calls(role, calls, where) if "tool_calls" in message else ""

    def _answers(self, seen: Seen, message: Json, where: str) -> str:
        answer = message.get("tool_call_id")
        if answer in seen.open_calls:
            return ""
        waiting = ", ".join(seen.open_calls) or "none"
        return f"A tool result must answer an open call: {where} answers {answer!r}; open are {waiting}"

    def _calls(self, role: str, calls: Any, where: str) -> str:
        if role != "assistant" or not isinstance(calls, list) or not calls:
            return f"tool_calls in {where} must be a list with calls, of an assistant"
        ids = [call.get("id") if isinstance(call, dict) else None for call in calls]
        if not all(isinstance(one, str) and one for one in ids):
            return f"Every call needs an id: {where} has {ids}"
        return f"Duplicate ids of calls in {where}: {', '.join(map(str, ids))}" if len(set(ids)) < len(ids) else ""
