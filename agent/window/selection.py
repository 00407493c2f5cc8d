"""A part of the view, where somebody asked for less than all of it: `working_memory_limit`, no session summary.

The view itself stays whole; a plan then names the bytes of the lines that are sent.  Groups stay whole too: an answer
with calls and its results are sent together or not at all, and the newest group always is.  Called by the planner, only
where one of the two options is set; it reads the view once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from agent.tokens.counters import count_message
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.values import Counter


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the view: its bytes, its role, its tokens without any ratio."""

    start: int
    end: int
    role: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Selection:
    """`tokens` are those of the chosen lines, without any ratio; `working` is how many of them are conversation."""

    spans: tuple[Span, ...]
    tokens: int
    working: int


def select(
    path: Path, end: int, counter: Counter, *, limit: int | None, summary: bool, has_summary: bool, bridged: bool
) -> Selection:
    """The lines up to byte `end` without the summary (unless `summary`), and with at most `limit` messages of the
    conversation.  `has_summary`: one stands behind the briefing; `bridged`: a user's line of the program behind it."""
    lines = _lines(path, end, counter)
    head = next((number for number, line in enumerate(lines) if line.role == "user"), -1) + 1
    body = head + has_summary + bridged
    fixed = lines[:head] + lines[head if summary else head + has_summary : body]
    conversation = lines[body:]
    first = max(0, len(conversation) - limit) if limit else 0
    while 0 < first < len(conversation) and conversation[first].role == "tool":
        first += 1
    if first == len(conversation):  # the newest group alone is longer
        first = max((n for n, line in enumerate(conversation) if line.role != "tool"), default=0)
    chosen = fixed + conversation[first:]
    tokens = sum(line.tokens for line in chosen)
    return Selection(_spans(path, chosen), tokens, len(conversation) - first)


def _lines(path: Path, end: int, counter: Counter) -> list[Line]:
    found: list[Line] = []
    start = 0
    with path.open("rb") as file:
        while start < end and (data := file.readline()):
            message = orjson.loads(data)
            found.append(Line(start, start + len(data), message["role"], count_message(counter, message)))
            start += len(data)
    return found


def _spans(path: Path, lines: Sequence[Line]) -> tuple[Span, ...]:
    """Neighbours as one span."""
    parts: list[tuple[int, int]] = []
    for line in lines:
        if parts and parts[-1][1] == line.start:
            parts[-1] = (parts[-1][0], line.end)
        else:
            parts.append((line.start, line.end))
    return tuple(Span(path, start, end) for start, end in parts)
