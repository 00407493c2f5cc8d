"""Shows the present content of the files that the model used last, within a budget of tokens.

Without the content of the files, a model often begins by reading these files again after a compaction. The content
comes from the work tree through `values.PresentWork`, which masks secrets in it. If a file does not fit into the budget
as a whole, the lines around its newest edits are shown, or the file is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST = 3
"""The maximum number of files of which the content is shown."""

AROUND = 40
"""The number of lines that are shown on either side of an edit, if they fit."""

LEAST = 3
"""The minimum number of lines on either side of an edit; if fewer lines fit, the edit is not shown."""


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file, and the texts that the newest calls wrote into it, newest first; no texts if a call wrote the whole
    file."""

    path: str
    texts: tuple[str, ...] = ()


def render_files(
    edits: Iterable[EditedFile], room: int, count: Callable[[str], int], text: Callable[[str], str | None]
) -> tuple[str, list[str]]:
    """Returns (text with the content of files, their paths), the newest file first; ("", []) if no file fits.

    In the text, a line with the path is above the content of each file. The text shows at most MOST files, and has at
    most `room` tokens as `count` counts.
    """
    parts: list[str] = []
    paths: list[str] = []
    for edit in edits:
        if len(parts) == MOST or room <= 0:
            break
        content = text(edit.path)
        if not content or content.isspace():
            continue
        shown = _excerpt(edit, replace_surrogates(content), room, count)
        if shown:
            parts.append(shown)
            paths.append(edit.path)
            room -= count(shown) + 2
    return "\n\n".join(parts), paths


def _excerpt(edit: EditedFile, content: str, room: int, count: Callable[[str], int]) -> str:
    lines = content.rstrip("\n").split("\n")
    whole = _part(edit.path, lines, 0, len(lines))
    # content with more than 16 characters per token of the budget hardly ever fits, so its tokens are not counted
    if len(content) <= room * 16 and count(whole) <= room:
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
    """The range of lines (number of the first, number after the last) of each of the texts that occurs in the
    content."""
    for text in texts:
        at = content.find(text) if text.strip() else -1
        if at >= 0:
            first = content.count("\n", 0, at)
            yield first, first + text.strip("\n").count("\n") + 1
