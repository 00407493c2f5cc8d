"""The cap at entry: no result is larger than its room, and none has a line longer than a few screens.

Head and tail stay, whole lines where possible, with a statement of what lies between and how to read it.  Sizes are
UTF-8 bytes (`text.size_of`).  Pure; the toolbox stores the whole text and asks for the statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from agent.tools.kinds import size_text
from agent.tools.lines import shorten
from agent.tools.reading import FOLD
from agent.tools.text import size_of

if TYPE_CHECKING:
    from agent.tools.outputs import Whole

LINE = 2000
NOTICE = 320  # bytes kept free for the statements


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that was too long.  `lines` and `size` are what is shown of it; `next` is the line at which reading on
    begins in the stored output; `shortened` lines lack their middle."""

    head: str
    tail: str
    lines: int
    size: int
    next: int
    shortened: int

    def shown(self, whole: Whole) -> str:
        """What the model gets."""
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


def in_all(whole: Whole) -> str:
    """How much there was, and how much of it is kept."""
    if not whole.lost:
        return f"{size_text(whole.size)} in all"
    return f"{size_text(whole.size + whole.lost)} in all, only the first {size_text(whole.size)} of it kept"


@overload
def cut(text: str, room: int, *, more: Literal[True], longest: int = LINE) -> Cut: ...


@overload
def cut(text: str, room: int, *, more: bool = False, longest: int = LINE) -> Cut | None: ...


def cut(text: str, room: int, *, more: bool = False, longest: int = LINE) -> Cut | None:
    """None when `text` fits as it is and no line of it is over `longest` characters; `more` says that its middle is
    missing already."""
    lines = text.removesuffix("\n").split("\n")
    if not more and max(map(len, lines)) <= longest and size_of(text) <= room:
        return None
    width = min(LINE, max(40, room // 16))
    short = [shorten(line, width) for line in lines]
    shortened = [len(line) > width for line in lines]
    sizes = [size_of(line) + 1 for line in short]
    if sum(sizes) + NOTICE <= room and not more:
        return Cut("\n".join(short), "", len(lines), sum(sizes), 1, sum(shortened))
    half = max(1, (room - min(NOTICE, room // 2)) // 2)
    front, used = 0, 0
    while front < len(short) and used + sizes[front] <= half:
        used += sizes[front]
        front += 1
    back, spent = len(short), 0
    while back > front and spent + sizes[back - 1] <= half:
        back -= 1
        spent += sizes[back]
    return Cut(
        "\n".join(short[:front]),
        "\n".join(short[back:]),
        front + len(short) - back,
        used + spent,
        1 + sum(max(1, -(-len(line) // FOLD)) for line in lines[:front]),
        sum(shortened[:front]) + sum(shortened[back:]),
    )
