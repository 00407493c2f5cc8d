"""The present content of the files that were worked on last, in a budget of tokens.

A model's next act after a compaction is to read them again.  The content comes from the work tree through
`values.PresentWork`, which masks it.  A file that has no room whole is shown by the lines around its newest edits, or
left out.  Called by `carried.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.store.text import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST = 3
"""Files at most."""

AROUND = 40
"""Lines on either side of an edit, where there is room."""

LEAST = 3
"""Lines on either side, with which an edit is worth showing."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A file and the texts that the newest calls put into it, newest first; none for a file written as a whole."""

    path: str
    texts: tuple[str, ...] = ()


def contents(
    edits: Iterable[Edit], room: int, count: Callable[[str], int], text: Callable[[str], str | None]
) -> tuple[str, list[str]]:
    """(the files under a line each, their paths), newest first, at most MOST of them in `room` tokens of `count`; ("",
    []) when none has room."""
    parts: list[str] = []
    paths: list[str] = []
    for edit in edits:
        if len(parts) == MOST or room <= 0:
            break
        content = text(edit.path)
        if not content or content.isspace():
            continue
        shown = _shown(edit, fit(content), room, count)
        if shown:
            parts.append(shown)
            paths.append(edit.path)
            room -= count(shown) + 2
    return "\n\n".join(parts), paths


def _shown(edit: Edit, content: str, room: int, count: Callable[[str], int]) -> str:
    lines = content.rstrip("\n").split("\n")
    whole = _part(edit.path, lines, 0, len(lines))
    if len(content) <= room * 16 and count(whole) <= room:  # a longer one has more tokens than that
        return whole
    for place in _places(content, edit.texts):
        around = AROUND
        while around >= LEAST:
            first, last = max(0, place[0] - around), min(len(lines), place[1] + around)
            part = _part(edit.path, lines, first, last)
            if count(part) <= room:
                return part
            around = around * 2 // 3
    return ""


def _part(path: str, lines: Sequence[str], first: int, last: int) -> str:
    where = f"{len(lines)} lines" if (first, last) == (0, len(lines)) else f"lines {first + 1}-{last} of {len(lines)}"
    return "\n".join((f"[{path}: {where}]", *lines[first:last]))


def _places(content: str, texts: Iterable[str]) -> Iterable[tuple[int, int]]:
    """(first line, line behind the last) of each of the texts that stands in the content."""
    for text in texts:
        at = content.find(text) if text.strip() else -1
        if at >= 0:
            first = content.count("\n", 0, at)
            yield first, first + text.strip("\n").count("\n") + 1
