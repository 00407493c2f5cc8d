"""Reads a part of a JSONL file of any size: the last lines, the lines from an offset, or the lines around a number.

The cost of reading a part of a file hardly depends on the size of the file. No index is needed, since the record
numbers in a file only increase: binary search finds the offset of a number. `file_window.py` repairs nothing and takes
no lock. A damaged line is skipped and named. A line of more than LONGEST_LINE bytes is skipped without being parsed:
only its end is searched, once in each call.
"""

from __future__ import annotations

import errno
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
"""The number of bytes of lines after which one call reads no further line."""
MOST_SKIPPED = 8 << 30
"""The number of bytes without a newline after which a search for the end of a line raises OSError."""
BLOCK, LARGE_BLOCK = 1 << 16, 1 << 20
LAST_LINES = 20
"""The number of last lines among which `newest` looks for a valid record, and `pages.py` for a question."""


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
    """The first valid records from the byte `start` on, where a line must begin: at most `count`, and of at most about
    MOST_BYTES. The read ends at the byte `until` at the latest. A missing file counts as empty. Raises OSError."""
    found: list[Json] = []
    damage = DamagedLines(path)
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=BLOCK)
    except FileNotFoundError:
        return FileWindow()
    with file:
        lines = _Lines(file)
        stop = lines.size if until is None else min(until, lines.size)
        position, taken = min(start, stop), 0
        while len(found) < count and position < stop and taken < MOST_BYTES:
            line, end = lines.at(position, stop)
            is_long = end - position > LONGEST_LINE
            if not line.endswith(b"\n") and not is_long:
                break  # the line is not completely written yet
            record = f"{end - position:,} bytes are too long to be shown" if is_long else parse(line, id_key)
            if isinstance(record, dict):
                found.append(record)
            elif line != b"\n":
                damage.add(position, record)
            position = end
            taken += min(len(line), LONGEST_LINE)
    return FileWindow(tuple(found), start, position, lines.size, tuple(damage.sentences()))


def read_before(path: Path, count: int, *, end: int | None = None, id_key: str = "seq") -> FileWindow:
    """The valid records among the last `count` lines that end at the byte `end` or before (by default the end of the
    file); fewer lines if they have more than MOST_BYTES. An unfinished last line is left out, and a missing file counts
    as empty. Raises OSError."""
    try:
        descriptor = durable_files.open_regular(path)
    except FileNotFoundError:
        return FileWindow()
    try:
        size = os.fstat(descriptor).st_size
        stop = _last_newline(descriptor, size if end is None else min(end, size))
        start = _start_of_lines(descriptor, stop, count)
    finally:
        os.close(descriptor)
    return read_from(path, start, count, id_key=id_key, until=stop)


def page_from(path: Path, start: int, count: int) -> FileWindow:
    """`read_from`, continued past parts of the file without a valid record, such as lines that are too long to be
    shown; at most about MOST_SKIPPED bytes are passed. Raises OSError."""
    window = read_from(path, start, count)
    while not window.records and window.end < window.size and window.end - window.start < MOST_SKIPPED:
        later = read_from(path, window.end, count)
        if later.end == window.end:
            break  # no line follows that is completely written
        window = replace(later, start=window.start, damage=(*window.damage, *later.damage))
    return window


def page_before(path: Path, count: int, *, end: int | None = None, id_key: str = "seq") -> FileWindow:
    """`read_before`, continued past parts of the file without a valid record, such as lines that are too long to be
    shown; at most about MOST_SKIPPED bytes are passed. Raises OSError."""
    window = read_before(path, count, end=end, id_key=id_key)
    while not window.records and window.start > 0 and window.end - window.start < MOST_SKIPPED:
        earlier = read_before(path, count, end=window.start, id_key=id_key)
        window = replace(earlier, end=window.end, damage=(*earlier.damage, *window.damage))
    return window


def newest(path: Path, *, id_key: str = "seq") -> Json | None:
    """The newest record of a file; None if none of the last LAST_LINES lines is a valid record. Raises OSError."""
    return next(reversed(read_before(path, LAST_LINES, id_key=id_key).records), None)


def offset_of(path: Path, number: int, *, key: str = "seq", id_key: str = "seq") -> int:
    """The offset of the first line of which the whole number under `key` is at least `number`, found by binary search;
    the size of the file if there is no such line, 0 for a missing file.

    The numbers under `key` must not decrease in the file.  Raises OSError.
    """
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=BLOCK)
    except FileNotFoundError:
        return 0
    with file:
        lines = _Lines(file)
        low, high = 0, lines.size
        while high - low > BLOCK:
            middle = (low + high) // 2
            at, found = lines.next_number(lines.after(middle), high, key, id_key)
            if found is None or found >= number:
                high = middle
            else:
                low = at
        at = low
        while at < lines.size:
            at, found = lines.next_number(at, lines.size, key, id_key)
            if found is None or found >= number:
                return at
            at = lines.at(at, lines.size)[1]
        return lines.size


def sampled(path: Path, count: int, *, id_key: str = "seq") -> FileWindow:
    """At most `count` records, spread evenly over the bytes of the file; all records if the file has at most BLOCK
    bytes. Raises OSError."""
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=1 << 12)
    except FileNotFoundError:
        return FileWindow()
    found: dict[int, Json] = {}
    with file:
        lines = _Lines(file)
        if lines.size <= BLOCK:
            return read_from(path, 0, lines.size, id_key=id_key)
        end = 0
        for number in range(count):
            at = lines.size * number // count
            if at < end:
                continue  # the offset lies inside a line that was already read or skipped
            line, end = lines.at(lines.after(at) if at else 0, lines.size)
            record = parse(line, id_key) if line.endswith(b"\n") else ""
            if isinstance(record, dict):
                found[record[id_key]] = record
    return FileWindow(tuple(found[number] for number in sorted(found)), 0, lines.size, lines.size)


class _Lines:
    """Reads the lines of an open file, and remembers the end of the last line of which the end was far away."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size
        self._without = (0, 0)
        """The offsets of the start and end of a part of the file that has no newline before its last byte."""

    def at(self, position: int, stop: int) -> tuple[bytes, int]:
        """(the line that begins at `position`, the offset at which it ends); a line ends at `stop` at the latest. Of a
        line of more than LONGEST_LINE bytes only the beginning is read into memory."""
        self.file.seek(position)
        line = self.file.readline(min(LONGEST_LINE + 1, max(0, stop - position)))
        end = position + len(line)
        if len(line) <= LONGEST_LINE or line.endswith(b"\n"):
            return line, end
        return line, min(self.after(end), stop)

    def after(self, position: int) -> int:
        """The offset after the first newline from `position` on; the size of the file if no newline follows. Raises
        OSError when the search reads more than MOST_SKIPPED bytes."""
        start, length = position, BLOCK
        while position < self.size:
            if self._without[0] <= position < self._without[1]:
                position = self._without[1]
                break
            block = os.pread(self.file.fileno(), length, position)
            found = block.find(b"\n")
            if found >= 0 or not block:
                position = position + found + 1 if block else self.size
                break
            position += len(block)
            length = LARGE_BLOCK
            _check(position - start)
        if position - start > LARGE_BLOCK:
            self._without = (start, position)
        return position

    def next_number(self, at: int, stop: int, key: str, id_key: str) -> tuple[int, int | None]:
        """(offset, number) of the first line between `at` and `stop` that has a number under `key`; (`stop`, None) if
        no line has one."""
        while at < stop:
            line, end = self.at(at, stop)
            record = parse(line, id_key) if end - at <= LONGEST_LINE else ""
            if isinstance(record, dict) and isinstance(found := record.get(key), int):
                return at, found
            at = end
        return stop, None


def _last_newline(descriptor: int, end: int) -> int:
    """The offset after the last newline before the byte `end`; 0 if there is no newline. Raises OSError when the search
    reads more than MOST_SKIPPED bytes."""
    position, length = end, BLOCK
    while position > 0:
        size = min(length, position)
        position -= size
        found = os.pread(descriptor, size, position).rfind(b"\n")
        if found >= 0:
            return position + found + 1
        length = LARGE_BLOCK
        _check(end - position)
    return 0


def _start_of_lines(descriptor: int, end: int, count: int) -> int:
    """The offset at which the last `count` lines before `end` begin, or fewer lines with together at most MOST_BYTES,
    but at least one line; `end` is 0 or the offset after a newline. Raises OSError when a line is too long."""
    position, begin, found, taken, length = end, end, 0, 0, BLOCK
    while position > 0:
        size = min(length, position)
        position -= size
        block = os.pread(descriptor, size, position)
        at = size
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at + 1 == end:
                continue  # this newline ends the last line, and no line begins after it
            taken += min(begin - position - at - 1, LONGEST_LINE)
            if found and taken > MOST_BYTES:
                return begin
            begin = position + at + 1
            found += 1
            if found == count:
                return begin
        length = LARGE_BLOCK if begin - position > LARGE_BLOCK else BLOCK
        _check(begin - position)
    return begin if found and taken + min(begin, LONGEST_LINE) > MOST_BYTES else 0


def _check(skipped: int) -> None:
    """Raise OSError if a search for the end of a line has read more than MOST_SKIPPED bytes."""
    if skipped > MOST_SKIPPED:
        raise OSError(errno.EFBIG, f"a line has more than {MOST_SKIPPED >> 30} GiB")
