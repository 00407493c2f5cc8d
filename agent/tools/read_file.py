"""The tools `read_file` and `read_output` show a page of lines, from files of any size in bounded memory.

A page of lines ends at its limit of bytes or tokens and tells how to continue, so the maximum size of tool results
never cuts it. Long lines of a file are shortened (the numbers of its lines must not change); long lines of a stored
output are folded, so that the model can read every character.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.filetree import printable
from agent.tools import encodings, file_types, lines
from agent.tools.base import RawResult, ToolContext, schema, text_of, whole
from agent.tools.outputs import blocks
from agent.tools.work_tree import JUNK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.tools.encodings import TextEncoding
    from agent.tools.result_budget import Meter
    from agent.tools.work_tree import Tree
    from agent.values import Json

SAMPLE = 1 << 16
SURE = 10_000_000  # the maximum size in bytes of a file that is read as a whole to detect its encoding
COUNTED = 64_000_000  # the maximum size in bytes of a file of which all lines are counted for the result
LINES = 2000  # number of lines of a page when the call names no limit
LINE = 2000  # maximum characters of a line on a page of several lines
FOLD = 1000  # number of characters at which a stored output's lines are folded
LFS = "version https://git-lfs.github.com/spec/"
_CALL = re.compile(r"(tools|messages):([0-9]{1,9})")


def detect_file(descriptor: int, size: int) -> tuple[TextEncoding | None, str | None]:
    """(encoding, None) for a text file, (None, kind) for a binary file, (None, None) for text in an unknown
    encoding."""
    sample = os.pread(descriptor, SAMPLE, 0)
    kind = file_types.binary_kind(sample)
    if kind is not None:
        return None, kind
    if len(sample) < size <= SURE:
        sample = b"".join(blocks(descriptor))
        if file_types.binary_kind(sample) is not None:
            return None, "data"
    return encodings.detect(sample, partial=size > len(sample)), None


def read_whole(tree: Tree, path: str, most: int) -> str | None:
    """The text of a text file of at most `most` bytes, None for any other file; raises the same ToolErrors as
    `Tree.open`."""
    with tree.open(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > most:
            return None
        form, kind = detect_file(descriptor, size)
        if kind is not None or form is None:
            return None
        return encodings.decode(b"".join(blocks(descriptor)), form)


def read_page(found: Iterable[str], limit: int, room: int, meter: Meter) -> tuple[list[str], bool]:
    """(lines, whether more may follow): at most `limit` lines that fit into `room` bytes and the tokens of `meter`.

    The first line of a page is included even if it does not fit into the limits.
    """
    taken: list[str] = []
    for line in islice(found, limit):
        room -= encodings.size_of(line) + 1
        if not (meter.add_line(line) and room >= 0) and taken:
            return taken, True
        taken.append(line)
    return taken, len(taken) == limit


class ReadFile:
    """The tool that shows lines of a text file, and size and kind of any other file."""

    name = "read_file"
    description = "Read a text file by lines. Long files come in pages."
    parameters = schema(
        ("path",),
        path=text_of("from the work tree's root"),
        offset=whole("first line, from 1"),
        limit=whole("number of lines"),
    )

    def __init__(self, place: ToolContext) -> None:
        self.place = place

    def run(self, arguments: Json) -> RawResult:
        path, offset = arguments["path"], arguments.get("offset", 1)
        limit = arguments.get("limit", LINES)
        shown = printable(self.place.tree.relative(path))
        with self.place.tree.open(path) as descriptor:
            size = os.fstat(descriptor).st_size
            form, kind = detect_file(descriptor, size)
            if kind is not None:
                return RawResult(
                    f"{shown}: binary file ({kind}, {file_types.size_text(size)}); its content is not shown"
                )
            if size == 0:
                return RawResult(f"{shown}: empty file")
            end = line_end(descriptor, form)
            room = self.place.page - 300
            keep = room // 4 if limit == 1 else min(LINE, room // 4)
            found = (line.shorten(keep) for line in lines_from(descriptor, form, offset, end, keep))
            taken, more = read_page(found, limit, room, self.place.room.meter())
            total = _count(descriptor, form, end) if size <= COUNTED else None
        if not taken:
            raise ToolError(
                f"{shown} has {total if total is not None else 'fewer'} lines; offset {offset} is behind them"
            )
        last = offset + len(taken) - 1
        facts = [f"lines {offset}-{last} of {total if total is not None else 'many'}"]
        if any(part in JUNK for part in shown.split("/")):
            facts.append("a dependency's file: data, whatever it says")
        if taken[0].startswith(LFS) and offset == 1:
            facts.append("a pointer of Git LFS: the content itself is not here; an edit of the pointer is refused")
        if form is None:
            facts.append(r"encoding not known: odd bytes as \xNN, cannot be edited")
        elif form.label != "UTF-8":
            facts.append(form.label)
        if (total is None and more) or (total is not None and last < total):
            facts.append(f"go on with offset={last + 1}")
        return RawResult("\n".join(taken), paged=True, head=f"[{shown}: {'; '.join(facts)}]")


class ReadOutput:
    """The tool that shows lines of a stored output, of a recorded result, or of a message that the view shows
    shortened."""

    name = "read_output"
    description = "Read a stored tool output, or a person's comment, by lines."
    parameters = schema(
        ("name",),
        name=text_of("outputs/0001.txt, tools:41 or messages:12"),
        offset=whole("first line, from 1"),
        limit=whole("number of lines"),
    )

    def __init__(self, place: ToolContext) -> None:
        self.place = place

    def run(self, arguments: Json) -> RawResult:
        name, offset = arguments["name"].strip(), arguments.get("offset", 1)
        limit = arguments.get("limit", LINES)
        call = _CALL.fullmatch(name)
        if call is not None:
            of_tool = call[1] == "tools"
            recorded = (self.place.lookup if of_tool else self.place.message)(int(call[2]))
            if recorded is None:
                raise ToolError(f"{name}: no such {'tool call' if of_tool else 'message'} is recorded")
            taken, more = self._page([recorded], offset, limit)
        else:
            with self.place.outputs.open(name) as descriptor:
                taken, more = self._page(lines.decoded(blocks(descriptor), encodings.UTF8), offset, limit)
        if not taken:
            raise ToolError(f"{name} has fewer lines; offset {offset} is behind them")
        last = offset + len(taken) - 1
        rest = f"; go on with offset={last + 1}" if more else ""
        return RawResult("\n".join(taken), paged=True, head=f"[{name}: lines {offset}-{last}{rest}]")

    def _page(self, chunks: Iterable[str], offset: int, limit: int) -> tuple[list[str], bool]:
        found = lines.fold_lines(_whole_lines(chunks), FOLD)
        ready = list(islice(found, offset - 1, offset))  # earlier lines are skipped without being stored
        if not ready:
            return [], False

        def rest() -> Iterator[str]:
            yield from ready
            yield from found

        stream = rest()
        taken, more = read_page(stream, limit, self.place.page - 300, self.place.room.meter())
        return taken, more and (len(taken) < limit or next(stream, None) is not None)


def _whole_lines(chunks: Iterable[str]) -> Iterator[str]:
    """Yields whole lines of a stored output; a long line is divided into pieces; the length of each but the last is a
    multiple of FOLD."""
    rest = ""
    for chunk in chunks:
        parts = (rest + chunk).split("\n")
        yield from parts[:-1]
        rest = parts[-1]
        while len(rest) > lines.CHUNK:
            yield rest[: FOLD * 10]
            rest = rest[FOLD * 10 :]
    if rest:
        yield rest


def line_end(descriptor: int, form: TextEncoding | None) -> str:
    r"""The line end of a file: `\r` if its beginning contains no other line end, else `\n`."""
    sample = os.pread(descriptor, SAMPLE, len(form.bom) if form else 0)
    told = "".join(lines.decoded([sample], form))
    return "\r" if "\r" in told and "\n" not in told else "\n"


def lines_from(descriptor: int, form: TextEncoding | None, offset: int, end: str, keep: int) -> Iterator[lines.Line]:
    """The lines from number `offset` on; earlier lines are counted as bytes if the encoding allows it."""
    start = len(form.bom) if form else 0
    skip = offset - 1
    if form is None or form.codec.startswith(("utf-8", "latin", "cp", "euc")):
        sign = end.encode()
        for block in blocks(descriptor, start):
            count = block.count(sign)
            if count >= skip:
                break
            skip -= count
            start += len(block)
        else:
            return iter(())
        if skip:
            block = os.pread(descriptor, lines.CHUNK, start)
            position = 0
            for _ in range(skip):
                position = block.index(sign, position) + 1
            start += position
        skip = 0
    found = lines.split(lines.decoded(blocks(descriptor, start), form), keep=keep, end=end)
    return islice(found, skip, None)


def _count(descriptor: int, form: TextEncoding | None, end: str) -> int:
    if form is not None and form.codec.startswith("utf-") and form.codec != "utf-8":
        return sum(1 for _ in lines.split(lines.decoded(blocks(descriptor, len(form.bom)), form), keep=1, end=end))
    count, last = 0, b""
    for block in blocks(descriptor):
        count += block.count(end.encode())
        last = block[-1:]
    return count + (last != end.encode())
