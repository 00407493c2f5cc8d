"""Selects the lines of a command's output that show why the command failed, within a budget of tokens.

A command's output is read once, line by line, in bounded memory (`FailureLines`). The token budget is used first for
lines that name failing tests, then for the first error, the last lines, further errors, and places in files. Lines of
the excerpt are copied, each once and without the middle of a line of more than WIDTH characters, and stay in their
order. The module `output_lines.py` determines the class of a line.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from agent.store.storable_text import replace_surrogates
from agent.window.output_lines import FAULT, NAME, PLACE, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WIDTH = 240
"""The maximum characters of one line in an excerpt."""

NAMES = 0.6
"""The share of the token budget for lines that name failing tests; the other lines get the rest."""

END = 0.3
"""The share of the token budget for the last lines of the output; further errors and places in files get the rest."""

MOST = 200
"""The maximum number of lines of each class in memory, half of them the first and half the newest ones. Of the last
lines of the output, 2 * MOST are in memory."""

GAP = "…"
_GAP_TOKENS = 2


class FailureLines:
    """The lines of a command's output that matter for a failure, and its last lines, each with its number.

    `size` is the number of characters of all lines that are stored.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._sorts: dict[int, dict[str, int]] = {NAME: {}, FAULT: {}, PLACE: {}}
        self._texts: dict[int, str] = {}
        self._last: deque[tuple[int, str]] = deque(maxlen=2 * MOST)
        self._count = 0
        for line in lines:
            if any(map(str.isalnum, line)):
                self._add_line(_short(replace_surrogates(line)))
        self._texts.update(self._last)
        self.size = sum(map(len, self._texts.values()))

    def _add_line(self, line: str) -> None:
        number = self._count
        self._count += 1
        self._last.append((number, line))
        sort, name = parse_line(line)
        if sort not in self._sorts:
            return
        known = self._sorts[sort]
        key = name or line
        if sort == NAME:  # of the lines about one test only the newest is stored
            self._texts.pop(known.pop(key, -1), None)
        elif key in known:
            return
        known[key] = number
        self._texts[number] = line
        if len(known) > MOST:
            self._texts.pop(known.pop(next(islice(known, MOST // 2, None))), None)

    def excerpt(self, room: int, count: Callable[[str], int]) -> str:
        """The output if it has at most `room` tokens by `count`, else its most important lines in about `room` tokens;
        "" if not even one fits."""
        if self._count <= len(self._last):
            whole = "\n".join(line for _, line in self._last)
            if count(whole) <= room:
                return whole
        return _joined(self._chosen(room, count))

    def _chosen(self, room: int, count: Callable[[str], int]) -> dict[int, str]:
        taken: dict[int, str] = {}
        shown: set[str] = set()
        left = room
        for numbers, share, needed in self._order():
            most = min(left, int(room * share))
            fitting = left if needed else most
            is_first = needed
            for number in numbers:
                line = self._texts[number]
                if number in taken or line in shown:
                    continue
                cost = count(line) + _GAP_TOKENS
                if cost > fitting and is_first:
                    line = _cut(line, fitting - _GAP_TOKENS, count)
                    cost = count(line) + _GAP_TOKENS
                if line and cost <= fitting:
                    taken[number] = line
                    shown.add(self._texts[number])
                    most -= cost
                    left -= cost
                fitting, is_first = most, False
        return taken

    def _order(self) -> Iterator[tuple[Iterable[int], float, bool]]:
        """Yields (numbers of lines, their share of the budget, whether the first of them is cut if it does not fit), in
        the order in which the budget is used."""
        names, faults, places = (list(self._sorts[sort].values()) for sort in (NAME, FAULT, PLACE))
        last = [number for number, _ in reversed(self._last)]
        yield names, NAMES, True
        # The first error is usually the cause of the others.
        yield (faults or places)[:1], 1.0, not names
        yield last, END, False
        yield _from_both_ends(faults), 1.0, False
        yield _from_both_ends(places), 1.0, False
        yield names, 1.0, False
        yield last, 1.0, False


def _from_both_ends(numbers: list[int]) -> Iterator[int]:
    row = deque(numbers)
    while row:
        yield row.pop()
        if row:
            yield row.popleft()


def _joined(taken: dict[int, str]) -> str:
    """Join the selected lines in order, with `…` where lines were left out."""
    shown: list[str] = []
    before = -1
    for number in sorted(taken):
        if number > before + 1:
            shown.append(GAP)
        shown.append(taken[number])
        before = number
    return "\n".join(shown)


def _short(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH * 2 // 3]} {GAP} {line[-WIDTH // 3 :]}"


def _cut(line: str, room: int, count: Callable[[str], int]) -> str:
    """The beginning of a line, cut to at most `room` tokens; "" if it has no letter or digit."""
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        if count(line[:middle] + GAP) <= room:
            low = middle
        else:
            high = middle - 1
    return line[:low] + GAP if any(map(str.isalnum, line[:low])) else ""
