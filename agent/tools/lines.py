r"""Reads the lines of a text of any size in bounded memory: the middle of a too long line is counted, not stored.

A line ends with `\n` (a `\r` before it is part of the line end), as for git and compilers; if a file has only `\r`, its
lines end with that.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.tools.encodings import TextEncoding

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line end.

    `missing` is the number of characters between `head` and `tail`; if it is 0, `head` is the whole line.
    """

    head: str
    tail: str = ""
    missing: int = 0

    def shorten(self, keep: int) -> str:
        """The line, shortened to at most about `keep` characters: its head, a note on the omitted part, its tail."""
        if not self.missing:
            return shorten_line(self.head, keep)
        head, tail = self.head[: keep * 2 // 3], self.tail[-(keep // 3) :]
        left = len(self.head) - len(head) + self.missing + len(self.tail) - len(tail)
        return f"{head}{gap(left)}{tail}"


def gap(count: int) -> str:
    """The note that replaces `count` omitted characters of a line."""
    return f" […{count:,} characters left out…] "


def shorten_line(text: str, keep: int) -> str:
    """One line, shortened to at most about `keep` characters."""
    if len(text) <= keep:
        return text
    head, tail = keep * 2 // 3, keep // 3
    return f"{text[:head]}{gap(len(text) - head - tail)}{text[len(text) - tail :]}"


def split(chunks: Iterable[str], *, keep: int, end: str = "\n") -> Iterator[Line]:
    """The lines of a text that arrives in chunks; at most `keep` characters at either end of a line are stored."""
    head: list[str] = []
    size = 0  # number of characters in `head`
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
    """A part of a long line of a text, or a whole line.

    `number` is the number of the line, `before` the number of characters of the line before this part; `ends` tells
    whether the line ends here.
    """

    number: int
    text: str
    before: int = 0
    ends: bool = True


def pieces(chunks: Iterable[str], *, size: int, overlap: int, end: str = "\n") -> Iterator[Piece]:
    """The lines of a text that arrives in chunks, in order; a line over `size` + `overlap` characters is divided into
    pieces.

    A piece of a line begins with the last `overlap` characters of the piece before it, so that a match of at most that
    length is whole in one piece.
    """
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


def decoded(blocks: Iterable[bytes], form: TextEncoding | None) -> Iterator[str]:
    r"""The text of a file's bytes after the byte order mark; invalid bytes become `\xNN`."""
    decoder = codecs.getincrementaldecoder(form.codec if form else "utf-8")("backslashreplace")
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def fold_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """The lines, with long ones folded at `width` characters, so that the whole text can be paged by lines."""
    for line in lines:
        if len(line) <= width:
            yield line
        else:
            yield from (line[start : start + width] for start in range(0, len(line), width))
