"""`read_file` and `read_output`: a page of lines, from files of any size in flat memory.

A page ends where its bytes are used up and says how to go on, so the general cap never cuts it.  A long line of a file
is shortened (line numbers must stay those of the file); a stored output has its long lines folded, so that every
character of it can be reached.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.filetree import printable
from agent.tools import kinds, lines, text
from agent.tools.base import Place, Product, schema, text_of, whole
from agent.tools.outputs import blocks
from agent.tools.tree import JUNK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.tools.room import Meter
    from agent.tools.text import Form
    from agent.tools.tree import Tree
    from agent.values import Json

SAMPLE = 1 << 16
SURE = 10_000_000  # up to this size the whole file is looked at to tell its encoding
COUNTED = 64_000_000  # up to this size all lines are counted
LINES = 2000  # lines of a page when no limit is given
LINE = 2000  # characters of a line
FOLD = 1000  # characters at which a stored output's lines are folded
LFS = "version https://git-lfs.github.com/spec/"
_CALL = re.compile(r"(tools|messages):([0-9]{1,9})")


def look(descriptor: int, size: int) -> tuple[Form | None, str | None]:
    """(form, None) of a text file, (None, kind) of a binary one, (None, None) of text in an unknown encoding."""
    sample = os.pread(descriptor, SAMPLE, 0)
    kind = kinds.binary_kind(sample)
    if kind is not None:
        return None, kind
    if len(sample) < size <= SURE:
        sample = b"".join(blocks(descriptor))
        if kinds.binary_kind(sample) is not None:
            return None, "data"
    return text.detect(sample, partial=size > len(sample)), None


def present(tree: Tree, path: str, most: int) -> str | None:
    """The whole of a text file of at most `most` bytes, None for any other; ToolError as `Tree.open` has it."""
    with tree.open(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > most:
            return None
        form, kind = look(descriptor, size)
        if kind is not None or form is None:
            return None
        return text.decode(b"".join(blocks(descriptor)), form)


def page(found: Iterable[str], limit: int, room: int, meter: Meter) -> tuple[list[str], bool]:
    """At most `limit` lines as long as they fit into `room` bytes and the tokens of `meter` (one always comes), and
    whether more may follow."""
    taken: list[str] = []
    for line in islice(found, limit):
        room -= text.size_of(line) + 1
        if not (meter.take(line) and room >= 0) and taken:
            return taken, True
        taken.append(line)
    return taken, len(taken) == limit


class ReadFile:
    """Lines of a text file; size and kind of any other."""

    name = "read_file"
    description = "Read a text file by lines. Long files come in pages."
    parameters = schema(
        ("path",),
        path=text_of("from the work tree's root"),
        offset=whole("first line, from 1"),
        limit=whole("number of lines"),
    )

    def __init__(self, place: Place) -> None:
        self.place = place

    def run(self, arguments: Json) -> Product:
        path, offset = arguments["path"], arguments.get("offset", 1)
        limit = arguments.get("limit", LINES)
        shown = printable(self.place.tree.relative(path))
        with self.place.tree.open(path) as descriptor:
            size = os.fstat(descriptor).st_size
            form, kind = look(descriptor, size)
            if kind is not None:
                return Product(f"{shown}: binary file ({kind}, {kinds.size_text(size)}); its content is not shown")
            if size == 0:
                return Product(f"{shown}: empty file")
            end = line_end(descriptor, form)
            room = self.place.page - 300
            keep = room // 4 if limit == 1 else min(LINE, room // 4)
            found = (line.shown(keep) for line in lines_from(descriptor, form, offset, end, keep))
            taken, more = page(found, limit, room, self.place.room.meter())
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
        return Product("\n".join(taken), paged=True, head=f"[{shown}: {'; '.join(facts)}]")


class ReadOutput:
    """Lines of a stored output, of a recorded result, or of a message that is shown shortened."""

    name = "read_output"
    description = "Read a stored tool output, or a person's comment, by lines."
    parameters = schema(
        ("name",),
        name=text_of("outputs/0001.txt, tools:41 or messages:12"),
        offset=whole("first line, from 1"),
        limit=whole("number of lines"),
    )

    def __init__(self, place: Place) -> None:
        self.place = place

    def run(self, arguments: Json) -> Product:
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
                taken, more = self._page(lines.decoded(blocks(descriptor), text.UTF8), offset, limit)
        if not taken:
            raise ToolError(f"{name} has fewer lines; offset {offset} is behind them")
        last = offset + len(taken) - 1
        rest = f"; go on with offset={last + 1}" if more else ""
        return Product("\n".join(taken), paged=True, head=f"[{name}: lines {offset}-{last}{rest}]")

    def _page(self, chunks: Iterable[str], offset: int, limit: int) -> tuple[list[str], bool]:
        found = lines.folded(_plain(chunks), FOLD)
        ready = list(islice(found, offset - 1, offset))  # skips without keeping
        if not ready:
            return [], False

        def rest() -> Iterator[str]:
            yield from ready
            yield from found

        stream = rest()
        taken, more = page(stream, limit, self.place.page - 300, self.place.room.meter())
        return taken, more and (len(taken) < limit or next(stream, None) is not None)


def _plain(chunks: Iterable[str]) -> Iterator[str]:
    """Whole lines, long ones in pieces whose length is a multiple of the fold."""
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


def line_end(descriptor: int, form: Form | None) -> str:
    r"""`\r` for a file that has no other line end in its beginning, else `\n`."""
    sample = os.pread(descriptor, SAMPLE, len(form.bom) if form else 0)
    told = "".join(lines.decoded([sample], form))
    return "\r" if "\r" in told and "\n" not in told else "\n"


def lines_from(descriptor: int, form: Form | None, offset: int, end: str, keep: int) -> Iterator[lines.Line]:
    """Lines from number `offset` on; what lies before is counted as bytes where the encoding allows it."""
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


def _count(descriptor: int, form: Form | None, end: str) -> int:
    if form is not None and form.codec.startswith("utf-") and form.codec != "utf-8":
        return sum(1 for _ in lines.split(lines.decoded(blocks(descriptor, len(form.bom)), form), keep=1, end=end))
    count, last = 0, b""
    for block in blocks(descriptor):
        count += block.count(end.encode())
        last = block[-1:]
    return count + (last != end.encode())
