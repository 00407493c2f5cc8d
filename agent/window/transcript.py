"""Presents the conversation to the model that summarises it: one JSON object per line, inside a fence with the marker
of this run, which no other text can imitate.

In the transcript, a message is `{"role", "name", "content", "calls"}`. The briefing and the previous summary are not
messages; they have objects of their own, `{"task"}` and `{"summary_so_far"}`. The text of a message is a JSON string: a
line of it that looks like a message, or like the fence, stays inside the string.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from agent.message_reader import lines
from agent.security.fence import defuse, edges
from agent.store.storable_text import dumps
from agent.window.head_tail import head_and_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.values import Json

SOURCE = "the conversation, one JSON object a line"
LEAST_RESULT = 40
"""A tool result is cut to no fewer tokens than this."""
OVERHEAD = 12
"""The tokens of the line for a tool result without the result's text."""
MOST_LEAST = 400
"""With a large window the minimum for a tool result is higher, but at most this number of tokens."""


@dataclass
class Transcript:
    """Makes the transcript lines of one JSONL file with messages in OpenAI's wire form.

    `count` counts tokens. In the transcript a message gets at most `most` tokens, a tool result at most `result`; the
    middle of a longer one is left out.
    """

    source: Path
    marker: str
    count: Callable[[str], int]
    most: int = 1 << 60
    result: int = 1 << 60
    names: dict[str, str] = field(default_factory=dict)
    """id of a call → name of its tool, for the newest calls, so that their results can be shown with the name."""

    def limit(self, room: int) -> None:
        """Set the maximum tokens of a message (`most`) and of a tool result (`result`), so that the transcript of the
        whole file fits into `room` tokens, if that is possible.

        Tool results share the tokens that the other messages leave, but each gets at least a small part.
        """
        results: list[int] = []
        rest = room * 9 // 10
        with open_file(self.source) as (descriptor, size):
            for _, line in lines(descriptor, 0, size):
                tokens = self.count(line.decode())
                if line.startswith(b'{"role":"tool"'):
                    results.append(tokens)
                else:
                    rest -= tokens
        self.most = max(LEAST_RESULT, room // 3)
        least = min(MOST_LEAST, max(LEAST_RESULT, room // LEAST_RESULT))
        self.result = min(self.most, max(least, common_limit(results, rest) - OVERHEAD))

    def records(self, start: int = 0) -> Iterator[tuple[int, Json]]:
        """Yields (offset after its line, shortened record) for every message from byte `start` on."""
        with open_file(self.source) as (descriptor, size):
            for after, line in lines(descriptor, start, size):
                yield after, self._shorten_message(orjson.loads(line))

    def line(self, record: Mapping[str, Any]) -> str:
        """The transcript line for a record; text in it that looks like a fence is changed."""
        return defuse(dumps(record).decode(), self.marker)[0] + "\n"

    def edges(self) -> tuple[str, str]:
        """The first and the last line of the fence around the transcript's records."""
        before, behind = edges(self.marker, source=SOURCE)
        return f"{before}\n", f"{behind}\n"

    def _shorten_message(self, message: Json) -> Json:
        role = str(message.get("role") or "")
        content = message.get("content") or ""
        shown: Json = {"role": role}
        if role == "tool":
            name = message.get("name") or self.names.get(str(message.get("tool_call_id")))
            shown |= {"name": name} if name else {}
            shown["content"] = head_and_tail(content, min(self.most, self.result), self.count)
            return shown
        if content:
            shown["content"] = head_and_tail(content, self.most, self.count)
        if role == "assistant":
            calls = message.get("tool_calls") or ()
            self.names = {str(call.get("id")): str(call["function"].get("name")) for call in calls}
            if calls:
                shown["calls"] = [self._call(call["function"], len(calls)) for call in calls]
        return shown

    def _call(self, function: Mapping[str, Any], among: int) -> Json:
        text = str(function.get("arguments") or "")
        short = head_and_tail(text, max(LEAST_RESULT, self.most // among), self.count)
        arguments: Any = short
        if short == text:
            try:
                arguments = orjson.loads(text)
            except orjson.JSONDecodeError:
                arguments = text
        return {"name": function.get("name"), "arguments": arguments}


def common_limit(sizes: list[int], room: int) -> int:
    """The largest limit with which the sum of `sizes` is at most `room`, if each size above the limit is reduced to
    it."""
    left = max(0, room)
    ordered = sorted(sizes)
    for number, size in enumerate(ordered):
        share = left // (len(ordered) - number)
        if size > share:
            return share
        left -= size
    return 1 << 60


@contextmanager
def open_file(path: Path) -> Iterator[tuple[int, int]]:
    """A context manager that yields (descriptor, size) of a file, and closes the descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
