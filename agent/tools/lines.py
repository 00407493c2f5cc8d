r"""Lines of a text of any size in flat memory: what is too long of one line is counted, not kept.

A line ends with `\n` (a `\r` before it belongs to the end), as git and compilers count; in a file that has only
`\r` it ends there.  Called by the tools that page, search and cap.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.tools.text import Form

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end.  `missing` characters lie between `head` and `tail`; 0 means `head` is the line."""

    head: str
    tail: str = ""
    missing: int = 0

    def shown(self, keep: int) -> str:
        """The line in at most about `keep` characters: head, a statement of what is left out, tail."""
        if not self.missing:
            return shorten(self.head, keep)
        head, tail = self.head[: keep * 2 // 3], self.tail[-(keep // 3) :]
        left = len(self.head) - len(head) + self.missing + len(self.tail) - len(tail)
        return f"{head}{gap(left)}{tail}"


def gap(count: int) -> str:
    """The sign that stands for `count` characters of a line."""
    return f" […{count:,} characters left out…] "


def shorten(text: str, keep: int) -> str:
    """One line in at most about `keep` characters."""
    if len(text) <= keep:
        return text
    head, tail = keep * 2 // 3, keep // 3
    return f"{text[:head]}{gap(len(text) - head - tail)}{text[len(text) - tail :]}"


def split(chunks: Iterable[str], *, keep: int, end: str = "\n") -> Iterator[Line]:
    """The lines of a text that comes in chunks; of each at most `keep` characters at either side are kept."""
    head: list[str] = []
    size = 0  # characters in head
    tail = ""
    missing = 0

    def take(part: str) -> None:
        nonlocal size, tail, missing
        if size < keep:
            head.append(part[: keep - size])
            part = part[keep - size :]
            size += len(head[-1])
        if part:
            tail += part
            if len(tail) > keep:
                missing += len(tail) - keep
                tail = tail[-keep:]

    def close() -> Line:
        nonlocal size, tail, missing
        first, last, left = "".join(head), tail, missing
        head.clear()
        size, tail, missing = 0, "", 0
        if left:
            return Line(first, last.removesuffix("\r") if end == "\n" else last, left)
        first += last
        return Line(first.removesuffix("\r") if end == "\n" else first)

    for chunk in chunks:
        parts = chunk.split(end)
        for part in parts[:-1]:
            take(part)
            yield close()
        take(parts[-1])
    if size or tail:
        yield close()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line: `number` of the line, the `text`, how many characters of the line lie `before` it, and whether
    the line `ends` with it."""

    number: int
    text: str
    before: int = 0
    ends: bool = True


def pieces(chunks: Iterable[str], *, size: int, overlap: int, end: str = "\n") -> Iterator[Piece]:
    """The lines of a text that comes in chunks, in order; a line over `size` + `overlap` characters in pieces.

    A piece begins with the last `overlap` characters of the one before it, so that a match of at most so many
    characters lies whole in one of them."""
    held, number, before = "", 1, 0
    for chunk in chunks:
        first, *rest = chunk.split(end)
        held += first
        while len(held) > size + overlap:
            yield Piece(number, held[:size], before, ends=False)
            held, before = held[size - overlap :], before + size - overlap
        for part in rest:
            yield Piece(number, held.removesuffix("\r") if end == "\n" else held, before)
            held, number, before = part, number + 1, 0
    if held:
        yield Piece(number, held.removesuffix("\r") if end == "\n" else held, before)


def decoded(blocks: Iterable[bytes], form: Form | None) -> Iterator[str]:
    r"""The text of a file's bytes after its mark; bytes that do not fit come as `\xNN`."""
    decoder = codecs.getincrementaldecoder(form.codec if form else "utf-8")("backslashreplace")
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def folded(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines with the long ones folded at `width` characters, so that all of a text can be paged by lines."""
    for line in lines:
        if len(line) <= width:
            yield line
        else:
            yield from (line[start : start + width] for start in range(0, len(line), width))
