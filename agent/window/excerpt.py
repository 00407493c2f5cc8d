"""The lines of a command's output that say why it failed, in a budget of tokens.

Structure decides: programs say at the end what came of it, and name places (`src/a.py:12`), tests (`test_a.py::test_b`)
and faults on lines of their own.  Lines are taken word for word and stay in order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.store.text import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH = 240
"""Characters of one line."""

END = 0.3
"""Share of the room up to which the last lines come before those in the middle."""

GAP = "…"

_TELLING = re.compile(
    r"""
    [\w/\\.-]+\.\w{1,8}[:(]\d+                # a place in a file
    | \w+::\w+                                # the name of a test
    | ^\s*(?:E\s\s | not\ ok\b | ---\s | [✗✕×✘●]\s | \#\#\[error\])
    | \b(?:\w*error | \w*exception | fail(?:s|ed|ure|ures)? | fatal | panic(?:ked)? | assert\w* | undefined)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)


def excerpt(text: str, room: int, count: Callable[[str], int]) -> str:
    """`text` in at most about `room` tokens of `count`: its last lines, and lines that name a place, a test or a fault,
    from both ends; "" when there is no room for a line."""
    lines = [_short(fit(line)) for line in text.split("\n") if any(map(str.isalnum, line))]
    whole = "\n".join(lines)
    if not lines or count(whole) <= room:
        return whole
    taken: set[int] = set()
    left = room
    for number, most in _order(lines, room):
        cost = count(lines[number]) + 2
        if number in taken or cost > min(left, left - (room - most)):
            continue
        taken.add(number)
        left -= cost
    shown: list[str] = []
    before = -1
    for number in sorted(taken):
        if number > before + 1:
            shown.append(GAP)
        shown.append(lines[number])
        before = number
    return "\n".join(shown)


def _order(lines: list[str], room: int) -> Iterator[tuple[int, int]]:
    """(line, tokens that may be used up with it), the most telling first."""
    last = range(len(lines) - 1, -1, -1)
    telling = [number for number, line in enumerate(lines) if _TELLING.search(line)]
    if telling:
        yield telling.pop(0), room  # the first fault is most often the cause of the others
    for number in last:
        yield number, int(room * END)
    while telling:
        yield telling.pop(), room
        if telling:
            yield telling.pop(0), room
    for number in last:
        yield number, room


def _short(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH * 2 // 3]} {GAP} {line[-WIDTH // 3 :]}"
