"""Cuts a result when it is recorded: no result exceeds its maximum size, and no line is longer than a few screens.

The head and tail of a cut result are shown, in whole lines if possible, with a statement about the omitted part and how
to read it. Sizes of results are in UTF-8 bytes (`encodings.size_of`). The functions of `truncate.py` are pure; the
toolbox stores the whole text, and gets the statement with the shown text from `Truncated.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from agent.tools.encodings import size_of
from agent.tools.file_types import size_text
from agent.tools.lines import shorten_line
from agent.tools.read_file import FOLD

if TYPE_CHECKING:
    from agent.tools.outputs import StoredOutput

LINE = 2000
NOTICE = 320  # bytes reserved for the statements about omitted parts


@dataclass(frozen=True, slots=True)
class Truncated:
    """A result that was too long, in its shown form.

    `lines` and `size` count the shown part; `next` is the line of the stored output at which reading continues;
    `shortened` is the number of lines without their middle.
    """

    head: str
    tail: str
    lines: int
    size: int
    next: int
    shortened: int

    def text(self, whole: StoredOutput) -> str:
        """The truncated text in the form that the model sees."""
        parts = [self.head] if self.head else []
        if self.tail or self.lines < whole.lines:
            left = max(1, whole.lines - self.lines)
            parts.append(
                f"[… {left:,} line{'' if left == 1 else 's'} left out, {in_all(whole)}; "
                f'read_output("{whole.name}", offset={self.next}) shows them …]'
            )
        if self.tail:
            parts.append(self.tail)
        if self.shortened:
            these = "1 long line is" if self.shortened == 1 else f"{self.shortened:,} long lines are"
            parts.append(f'[{these} shortened; whole, folded at {FOLD} characters: read_output("{whole.name}")]')
        return "\n".join(parts)


def in_all(whole: StoredOutput) -> str:
    """A text that gives the size of the whole output, and the size of the stored part if that is smaller."""
    if not whole.lost:
        return f"{size_text(whole.size)} in all"
    return f"{size_text(whole.size + whole.lost)} in all, only the first {size_text(whole.size)} of it kept"


@overload
def truncate(text: str, room: int, *, more: Literal[True], longest: int = LINE) -> Truncated: ...


@overload
def truncate(text: str, room: int, *, more: bool = False, longest: int = LINE) -> Truncated | None: ...


def truncate(text: str, room: int, *, more: bool = False, longest: int = LINE) -> Truncated | None:
    """The shown form of a text that is too long; None if `text` fits into `room` bytes and no line is over `longest`
    characters.

    `more`: the middle of `text` is missing already.
    """
    lines = text.removesuffix("\n").split("\n")
    if not more and max(map(len, lines)) <= longest and size_of(text) <= room:
        return None
    width = min(LINE, max(40, room // 16))
    short = [shorten_line(line, width) for line in lines]
    shortened = [len(line) > width for line in lines]
    sizes = [size_of(line) + 1 for line in short]
    if sum(sizes) + NOTICE <= room and not more:
        return Truncated("\n".join(short), "", len(lines), sum(sizes), 1, sum(shortened))
    half = max(1, (room - min(NOTICE, room // 2)) // 2)
    front, used = 0, 0
    while front < len(short) and used + sizes[front] <= half:
        used += sizes[front]
        front += 1
    back, spent = len(short), 0
    while back > front and spent + sizes[back - 1] <= half:
        back -= 1
        spent += sizes[back]
    return Truncated(
        "\n".join(short[:front]),
        "\n".join(short[back:]),
        front + len(short) - back,
        used + spent,
        1 + sum(max(1, -(-len(line) // FOLD)) for line in lines[:front]),
        sum(shortened[:front]) + sum(shortened[back:]),
    )
