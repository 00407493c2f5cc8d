"""Selects the lines of the view that are sent if `working_memory_limit` is set, or if the summary is not to be sent.

The file with the view does not change; the plan of the request names the bytes that are sent. Groups stay whole: an
answer with calls is sent together with its results or not at all. The newest group of the view is always sent. The
limit `working_memory_limit` never removes the carry-over of a compaction, and removes comments of people only if they
exceed a budget of tokens. The file with the view is read once for each selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from agent.tokens.counters import count_message
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from agent.values import Counter


@dataclass(frozen=True, slots=True)
class ViewLine:
    """One line of the view: its bytes, its role and its tokens without the token ratio; `is_word` marks a comment of a
    person."""

    start: int
    end: int
    role: str
    tokens: int
    is_word: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """The lines of the view that were selected.

    `tokens` is the number of tokens of the lines, without the token ratio; `working` is the number of lines that are
    messages of the conversation.
    """

    spans: tuple[Span, ...]
    tokens: int
    working: int


def select_lines(
    path: Path,
    end: int,
    counter: Counter,
    *,
    limit: int | None,
    summary: bool,
    bridge: tuple[int, int],
    words: Collection[str] = (),
    room: int = 0,
) -> Selection:
    """Select lines up to byte `end`, with at most `limit` messages of the conversation; the summary is selected only if
    `summary` is set.

    `bridge` is (number of lines after the briefing that are the summary, number of lines that are the carry-over); the
    carry-over is always selected.  Messages above `limit` with a content in `words` (comments of people) are selected
    too, the newest first, within `room` tokens by `counter`.
    """
    lines = _lines(path, end, counter, words)
    head = next((number for number, line in enumerate(lines) if line.role == "user"), -1) + 1
    body = head + sum(bridge)
    fixed = lines[:head] + lines[head if summary else head + bridge[0] : body]
    conversation = lines[body:]
    first = max(0, len(conversation) - limit) if limit else 0
    while 0 < first < len(conversation) and conversation[first].role == "tool":
        first += 1
    if first == len(conversation):  # the newest group alone has more than `limit` messages, and is sent nevertheless
        first = max((n for n, line in enumerate(conversation) if line.role != "tool"), default=0)
    said: list[ViewLine] = []
    for line in reversed(conversation[:first]):
        if line.is_word and line.tokens <= room:
            said.insert(0, line)
            room -= line.tokens
    working = said + conversation[first:]
    chosen = fixed + working
    return Selection(_spans(path, chosen), sum(line.tokens for line in chosen), len(working))


def _lines(path: Path, end: int, counter: Counter, words: Collection[str]) -> list[ViewLine]:
    found: list[ViewLine] = []
    start = 0
    with path.open("rb") as file:
        while start < end and (data := file.readline()):
            message = orjson.loads(data)
            role, tokens = message["role"], count_message(counter, message)
            is_word = role == "user" and message.get("content") in words
            found.append(ViewLine(start, start + len(data), role, tokens, is_word))
            start += len(data)
    return found


def _spans(path: Path, lines: Sequence[ViewLine]) -> tuple[Span, ...]:
    """The spans of the selected lines; adjacent lines are joined into one span."""
    parts: list[tuple[int, int]] = []
    for line in lines:
        if parts and parts[-1][1] == line.start:
            parts[-1] = (parts[-1][0], line.end)
        else:
            parts.append((line.start, line.end))
    return tuple(Span(path, start, end) for start, end in parts)
