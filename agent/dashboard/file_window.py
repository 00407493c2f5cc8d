"""Reads a part of a JSONL file of any size: the last lines, the lines from an offset, or the lines around a number.

The cost of reading a part of a file depends only on the size of the part, not of the file. No index is needed, since
the record numbers in a file only increase: binary search finds the place of a number. `file_window.py` repairs nothing
and takes no lock. A damaged line is skipped and named, and a line of more than LONGEST_LINE bytes is skipped without
being parsed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent import durable_files
from agent.store.jsonl import DamagedLines, parse

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from agent.values import Json

LONGEST_LINE = 4 << 20
MOST_BYTES = 16 << 20
"""The maximum number of bytes that one call reads from a file."""
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class FileWindow:
    """The part of a JSONL file that one call has read.

    `records` are the valid records from the byte `start` to the byte `end`, in order; `size` is the size of the file.
    `damage` has a sentence for each line that cannot be shown.
    """

    records: tuple[Json, ...] = ()
    start: int = 0
    end: int = 0
    size: int = 0
    damage: tuple[str, ...] = ()


def read_bytes(path: Path, most: int, at: int = 0) -> bytes:
    """At most `most` bytes of a regular file, read from the offset `at` on. Raises OSError."""
    with os.fdopen(durable_files.open_regular(path), "rb") as file:
        file.seek(at)
        return file.read(most)


def read_from(path: Path, start: int, count: int, *, id_key: str = "seq", until: int | None = None) -> FileWindow:
    """At most `count` records from the byte `start` on, where a line must begin; `until` is the byte at which the read
    ends at the latest. A missing file counts as empty. Raises OSError."""
    found: list[Json] = []
    damage = DamagedLines(path)
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=BLOCK)
    except FileNotFoundError:
        return FileWindow()
    with file:
        size = os.fstat(file.fileno()).st_size
        stop = size if until is None else min(until, size)
        position = min(start, stop)
        file.seek(position)
        while len(found) < count and position < stop and position - start < MOST_BYTES:
            line, length = _line(file, stop - position)
            if not line.endswith(b"\n") and length <= LONGEST_LINE:
                break  # the last line is an unfinished write
            record = parse(line, id_key) if length <= LONGEST_LINE else f"{length:,} bytes are too long to be shown"
            if isinstance(record, dict):
                found.append(record)
            elif line != b"\n":
                damage.add(position, record)
            position += length
    return FileWindow(tuple(found), start, position, size, tuple(damage.sentences()))


def read_before(path: Path, count: int, *, end: int | None = None, id_key: str = "seq") -> FileWindow:
    """At most `count` records that end before the byte `end` (by default the end of the file). Raises OSError."""
    try:
        descriptor = durable_files.open_regular(path)
    except FileNotFoundError:
        return FileWindow()
    try:
        size = os.fstat(descriptor).st_size
        stop = size if end is None else min(end, size)
        start = _start_of_lines(descriptor, stop, count)
    finally:
        os.close(descriptor)
    window = read_from(path, start, count, id_key=id_key, until=stop)
    if start < stop or stop == 0:
        return window
    return replace(window, damage=(f"{path.name}: no line ends in the {MOST_BYTES >> 20} MiB before byte {stop}",))


def offset_of(path: Path, number: int, *, key: str = "seq", id_key: str = "seq") -> int:
    """The offset of the first line of which the whole number under `key` is at least `number`, found by binary search;
    the size of the file if there is no such line.

    The numbers under `key` must not decrease in the file.  Raises OSError.
    """
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=BLOCK)
    except FileNotFoundError:
        return 0
    with file:
        size = os.fstat(file.fileno()).st_size
        low, high = 0, size
        while high - low > BLOCK:
            middle = (low + high) // 2
            file.seek(middle)
            at = middle + _line(file, size - middle)[1]
            at, found = _next_number(file, at, high, key, id_key)
            if found is None or found >= number:
                high = middle
            else:
                low = at
        file.seek(low)
        at = low
        while at < size:
            line, length = _line(file, size - at)
            record = parse(line, id_key) if length <= LONGEST_LINE else ""
            if isinstance(record, dict) and isinstance(found := record.get(key), int) and found >= number:
                return at
            at += length
        return size


def sampled(path: Path, count: int, *, id_key: str = "seq") -> FileWindow:
    """At most `count` records, spread evenly over the bytes of the file; all of them if the file is small."""
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=1 << 12)
    except FileNotFoundError:
        return FileWindow()
    found: dict[int, Json] = {}
    with file:
        size = os.fstat(file.fileno()).st_size
        if size <= BLOCK:
            return read_from(path, 0, size, id_key=id_key)
        for number in range(count):
            at = size * number // count
            file.seek(at)
            if at:
                _line(file, size - at)
            line = file.readline(LONGEST_LINE)
            record = parse(line, id_key) if line.endswith(b"\n") else ""
            if isinstance(record, dict):
                found[record[id_key]] = record
    return FileWindow(tuple(found[number] for number in sorted(found)), 0, size, size)


def _line(file: BinaryIO, most: int) -> tuple[bytes, int]:
    """(the next line, its length in bytes); of a line longer than LONGEST_LINE only a part is read into memory, and at
    most MOST_BYTES of it are skipped."""
    line = file.readline(min(LONGEST_LINE + 1, max(1, most)))
    length = len(line)
    if length <= LONGEST_LINE or line.endswith(b"\n"):
        return line, length
    while length < MOST_BYTES and (part := file.readline(BLOCK)):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return line, length


def _next_number(file: BinaryIO, at: int, high: int, key: str, id_key: str) -> tuple[int, int | None]:
    """(offset, number) of the first line between `at` and `high` that has a number under `key`; the number is None if
    no line has one."""
    while at < high:
        line, length = _line(file, high - at)
        if not length:
            break
        record = parse(line, id_key) if length <= LONGEST_LINE else ""
        if isinstance(record, dict) and isinstance(found := record.get(key), int):
            return at, found
        at += length
    return high, None


def _start_of_lines(descriptor: int, end: int, count: int) -> int:
    """The offset at which the last `count` lines before `end` begin, within MOST_BYTES."""
    position, found = end, 0
    while position > 0 and end - position < MOST_BYTES:
        size = min(BLOCK, position)
        position -= size
        block = os.pread(descriptor, size, position)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at + 1 == end:
                continue  # this newline is the end of the last line
            found += 1
            if found == count:
                return position + at + 1
    return 0 if position == 0 else _line_after(descriptor, position, end)


def _line_after(descriptor: int, position: int, end: int) -> int:
    """The offset of the first line that begins at `position` or later."""
    while position < end:
        block = os.pread(descriptor, min(BLOCK, end - position), position)
        at = block.find(b"\n")
        if at >= 0:
            return position + at + 1
        position += len(block) or end
    return end
