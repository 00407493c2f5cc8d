"""Yields the lines that a diff adds, for the searches for secrets and for hidden characters.

`added_lines.py` reads the diff as a stream of chunks; its memory is bounded by LONGEST_LINE and the size of a chunk,
for any length of line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LONGEST_LINE = 1 << 16
"""If the chunks read so far contain more than this many bytes of a line, but not its end, the line is yielded in pieces
of this size; any other line is yielded as a whole."""

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def added_lines(
    diff: Iterable[bytes], suspects: Callable[[bytes], bool], overlap: int = 0
) -> Iterator[tuple[str, bytes]]:
    """(where, line) of the lines that a diff adds, in order, without the lines of blocks that `suspects` rejects.

    `diff` is git's output in chunks of any size. `suspects` is a fast filter: it gets a block of lines and returns
    False if none of them matters. Removed and unchanged lines of a diff are skipped; text outside of hunks (file names,
    commit messages) counts as added. `where` is like `src/app.py, line 3`; outside of hunks it is the path alone, or
    `the change` where no path is known. A line of a hunk begins with its `+`. The pieces of a long line (LONGEST_LINE)
    overlap by `overlap` bytes; its `+` is in the first piece.
    """
    path = where = ""
    kind = b""
    number = left_old = left_new = 0
    for block, is_rest, suspect in _blocks(diff, suspects, overlap):
        continued = is_rest  # True: the first line of this block is the rest of a long line of the previous block
        if not suspect and not continued and left_old <= 0 < left_new and (count := _added(block, left_new)):
            left_new, number, kind = left_new - count, number + count, b"+"
            where = f"{path or 'the change'}, line {number - 1}"
            continue
        for line in block.split(b"\n"):
            if continued:
                continued = False
            elif left_old > 0 or left_new > 0:
                # Inside a hunk `+++ x` is an added line `++ x`; the hunk's header gives the number of its lines.
                kind = line[:1]
                if kind == b"+":
                    where = f"{path or 'the change'}, line {number}"
                    left_new, number = left_new - 1, number + 1
                elif kind == b"-":
                    left_old -= 1
                elif kind != b"\\":
                    left_old, left_new, number = left_old - 1, left_new - 1, number + 1
            else:
                kind = b"+"
                if hunk := _HUNK.match(line):
                    left_old, number, left_new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
                elif line.startswith(b"+++ "):
                    path = _path(line[4:])
                where = path or "the change"
            if suspect and kind == b"+":
                yield where, line


def _added(block: bytes, most: int) -> int:
    """The number of lines of `block` if all of them belong to the current hunk, of which `most` lines, all of them
    added lines, remain; else 0."""
    if not block.startswith(b"+") or b"\n\\" in block:
        return 0
    count = block.count(b"\n") + 1
    return count if count <= most else 0


def _path(name: bytes) -> str:
    text = name.rstrip(b"\r\n\t").decode("utf-8", "replace").strip('"')
    return text.removeprefix("b/") if text != "/dev/null" else ""


def _blocks(
    chunks: Iterable[bytes], suspects: Callable[[bytes], bool], overlap: int
) -> Iterator[tuple[bytes, bool, bool]]:
    """The lines of a stream as (block of lines, whether its first line continues the last line of the previous block,
    the result of `suspects` for the block).

    A long line is yielded in overlapping pieces (see LONGEST_LINE).
    """
    rest = b""
    continued = False
    for chunk in chunks:
        rest += chunk
        end = rest.rfind(b"\n")
        if end >= 0:
            block, rest = rest[:end], rest[end + 1 :]
            yield block, continued, suspects(block)
            continued = False
        while len(rest) > LONGEST_LINE:
            piece = rest[:LONGEST_LINE]
            yield piece, continued, suspects(piece)
            rest = rest[LONGEST_LINE - overlap :]
            continued = True
    if rest:
        yield rest, continued, suspects(rest)
