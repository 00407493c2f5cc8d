"""Implements append-only files with one JSON object per line, each with a number; they stay readable after `kill -9`
and after a power loss.

An append-only file has one writer and any number of readers. A record is appended with one write to an open O_APPEND
descriptor; the number of the next record is known without reading the file. When a file is opened, the damage of a
crash is repaired: an incomplete last line is cut off and saved as `<file>.torn`. Damaged lines inside a file (with NUL
bytes or invalid JSON) are skipped and listed in `damaged`. `refresh` detects that another program (an editor) has
replaced or removed the file, and appends the records that the new file lacks. The package `context` defines the meaning
of the records. The rules for these files are in docs/files.md, "Rules".
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.errors import ContextError, DiskError
from agent.store.storable_text import line as to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.values import Json

DURABILITIES = ("turn", "message", "none")
MOST_REPORTED = 100
"""The maximum number of damaged lines of a file that are stored in memory and listed one by one; further damaged lines
are skipped without a report."""

FIRST_TAIL, MOST_TAIL = 1 << 20, 16 << 20
"""The number of bytes at the end of a file that `tail` reads at first, and the maximum number."""


class DamagedLines:
    """The damaged lines that a reader found in a file: offset → description.  At most MOST_REPORTED damaged lines are
    stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[int, str] = {}

    def add(self, offset: int, what: str) -> None:
        """Record a damaged line, unless one at this offset is recorded already."""
        if len(self.found) < MOST_REPORTED:
            self.found.setdefault(offset, what)

    def sentences(self) -> list[str]:
        """Sentences for a person about the damaged lines of a file, in the order of the file."""
        return [f"{self.path.name}: line at byte {at} skipped: {what}" for at, what in sorted(self.found.items())]


def parse(line: bytes, id_key: str) -> Json | str:
    """Decode one line of a JSONL file, given without its newline: the record, or a text that says what is wrong with
    the line."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return "NUL bytes" if b"\0" in line else f"not JSON ({error.msg})"
    if not isinstance(record, dict):
        return "not a JSON object"
    if type(record.get(id_key)) is not int:
        return f"no whole number in {id_key!r}"
    return record


def records(
    path: Path, start: int = 0, *, id_key: str = "seq", damage: DamagedLines | None = None, end: int | None = None
) -> Iterator[tuple[int, Json]]:
    """`(offset, record)` of every valid line that begins at or after byte `start` (the first byte of a line) and before
    byte `end`; one line is in memory at a time.

    A missing file reads as empty; a last line without its newline is an unfinished write and is left out.
    """
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=durable_files.BLOCK)
    except FileNotFoundError:
        return
    with file:
        file.seek(start)
        offset = start
        for line in file:
            if not line.endswith(b"\n") or (end is not None and offset >= end):
                return
            found = parse(line, id_key)
            if isinstance(found, str):
                if damage is not None and line != b"\n":
                    damage.add(offset, found)
            else:
                yield offset, found
            offset += len(line)


def record_at(path: Path, offset: int, *, id_key: str = "seq", damage: DamagedLines | None = None) -> Json | None:
    """The record of the line that begins at byte `offset`; None if the file ends before, or if the line is damaged."""
    line = records(path, offset, id_key=id_key, damage=damage, end=offset + 1)
    return next((record for _, record in line), None)


def backwards(path: Path, *, id_key: str = "seq") -> Iterator[tuple[int, Json]]:
    """`(offset, record)` of every valid line, from the last line to the first; a missing file reads as empty."""
    try:
        descriptor = durable_files.open_regular(path)
    except FileNotFoundError:
        return
    try:
        end = last_newline(descriptor, os.fstat(descriptor).st_size)
        for offset, line in durable_files.read_backwards(descriptor, end):
            found = parse(line, id_key)
            if not isinstance(found, str):
                yield offset, found
    finally:
        os.close(descriptor)


def tail(
    path: Path,
    enough: Callable[[list[Json]], bool],
    *,
    id_key: str = "seq",
    damage: DamagedLines | None = None,
    most: int = MOST_TAIL,
) -> tuple[list[Json], bool]:
    """(the valid records at the end of the file, whether they begin with the first line of the file).

    The last FIRST_TAIL bytes of the file are read, then twice as many, and so on until `enough` accepts the records or
    `most` bytes were read, so that the time does not depend on the size of the file. A missing file counts as an empty
    one.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return [], True
    length = FIRST_TAIL
    while True:
        start = _next_line(path, size - length) if length < size else 0
        found = [record for _, record in records(path, start, id_key=id_key, damage=damage, end=size)]
        if start == 0 or enough(found) or length >= most:
            return found, start == 0
        length *= 2


def _next_line(path: Path, position: int) -> int:
    """The offset of the first line that begins after `position`; the end of the file if there is none."""
    with os.fdopen(durable_files.open_regular(path), "rb", buffering=durable_files.BLOCK) as file:
        file.seek(position)
        while (part := file.readline(durable_files.COPY)) and not part.endswith(b"\n"):
            pass
        return file.tell()


def last_record(path: Path, *, id_key: str = "seq") -> Json | None:
    """The newest valid record of a file, None when it has none. Changes nothing."""
    return next((record for _, record in backwards(path, id_key=id_key)), None)


def find(path: Path, number: int, *, id_key: str = "seq") -> Json | None:
    """The record with the number `number`, None when there is none; found by binary search, since numbers only
    increase."""
    try:
        file = os.fdopen(durable_files.open_regular(path), "rb", buffering=durable_files.BLOCK)
    except FileNotFoundError:
        return None
    with file:
        low, high = 0, file.seek(0, os.SEEK_END)
        while high - low > durable_files.BLOCK:
            middle = (low + high) // 2
            file.seek(middle)
            at = middle + len(file.readline())
            while at < high and isinstance(found := parse(line := file.readline(), id_key), str) and line:
                at += len(line)
            if at >= high or isinstance(found, str) or found[id_key] > number:
                high = middle
            else:
                low = at
        for _, record in records(path, low, id_key=id_key):
            if record[id_key] >= number:
                return record if record[id_key] == number else None
    return None


def last_newline(descriptor: int, size: int) -> int:
    """The offset after the last newline in the first `size` bytes, 0 when there is none."""
    position = size
    while position > 0:
        length = min(durable_files.BLOCK, position)
        position -= length
        found = durable_files.read_at(descriptor, length, position).rfind(b"\n")
        if found >= 0:
            return position + found + 1
    return 0


def as_int(value: Any) -> int | None:
    """The value of a field of a record if it is a whole number; None for any other value, such as `true`."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class JsonlFile:
    """One append-only JSONL file. The file is created at the first append; `id_key` is the key under which each record
    has its number.

    `durability`: with "message" each append is flushed to the disk, with "turn" each call of `sync` does this, with
    "none" only `sync(force=True)`.  A failed write raises DiskError and leaves the file unchanged.
    """

    def __init__(self, path: Path, *, durability: str = "turn", id_key: str = "seq") -> None:
        if durability not in DURABILITIES:
            raise ValueError(f"durability is {durability!r}; allowed are {', '.join(DURABILITIES)}")
        self.path = path
        self.id_key = id_key
        self.durability = durability
        self.size = 0
        self.last_id = 0
        self.torn = 0
        self.damage = DamagedLines(path)
        self._descriptor = -1
        self._dirty = False
        self._made = False
        self._closed = False
        self._name = str(path)
        self._identity = (0, 0)  # device and inode of the open file
        # called with a sentence when another program has changed the file
        self.noticed: Callable[[str], None] | None = None
        if path.exists():
            self._open()

    def create(self) -> None:
        """Create an empty file if it is missing, so that people can open it before it has a record.

        Raises DiskError.
        """
        if self._descriptor < 0 and not self._closed:
            self._open()

    @property
    def count(self) -> int:
        """The number of records in the file.

        The numbers of records have no gaps (unless another program has removed records), so the number of records is
        the number of the last record, and the file need not be read.
        """
        return self.last_id

    @property
    def damaged(self) -> list[str]:
        """Sentences about the damaged lines found so far, and about the incomplete last line if one was cut off."""
        torn = [f"{self.path.name}: torn tail of {self.torn} bytes moved to {self.path.name}.torn"] if self.torn else []
        return torn + self.damage.sentences()

    def next_id(self) -> int:
        """The number that the next record must have."""
        return self.last_id + 1

    def append(self, record: Mapping[str, Any]) -> int:
        """Append one record, which must have the number `next_id()`; returns the byte offset of its line. Raises
        ValueError for a record with a number other than `next_id()`."""
        if record[self.id_key] != self.last_id + 1:
            raise ValueError(f"{self.path.name}: {self.id_key} is {record[self.id_key]}, {self.last_id + 1} is next")
        return self.append_line(to_line(record))

    def append_line(self, line: bytes) -> int:
        """Append the line of one encoded record, with its newline; the record must have the number `next_id()`; returns
        the byte offset of the line."""
        if self._descriptor < 0:
            self._open()
        offset = self.size
        try:
            durable_files.append(self._descriptor, line, self.path)
            self.size = offset + len(line)
            self._dirty = True
            if self.durability == "message":
                self.sync()
        except DiskError:
            self.cut_back(offset)
            raise
        self.last_id += 1
        return offset

    def cut_back(self, offset: int, last_id: int | None = None) -> None:
        """Shorten the file to `offset` bytes, which removes the records that begin there or later."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, offset)
        self.size = offset
        if last_id is not None:
            self.last_id = last_id

    def refresh(self) -> bool:
        """Read what another instance of this class, or another program, has changed in the file; returns True when
        there was a change.

        An editor replaces the file by a new one, made from the content that it had read earlier.  The records that only
        the old file has are appended to the new file; if the old file was removed, all its records are written to a new
        file.  A number that this JsonlFile has already used for a record is not used again.
        """
        try:
            found = os.stat(self._name)  # noqa: PTH116 - `os.stat` is faster than Path, and this runs at each append
        except FileNotFoundError:
            if self._descriptor < 0:
                return False
            found = None
        if self._descriptor < 0 and found is not None and found.st_size == 0:
            return False
        same = found is not None and (found.st_dev, found.st_ino) == self._identity
        if same and found is not None and found.st_size == self.size:
            return False
        before, last, size = self._descriptor, self.last_id, self.size
        self._descriptor, self._closed = -1, False
        try:
            self._open()
            added = 0 if same or before < 0 else self._add_missing(before, size)
        finally:
            if before >= 0:
                os.close(before)
        shrunk = self.last_id < last
        self.last_id = max(self.last_id, last)
        if before >= 0 and (not same or shrunk):
            did = "changed" if found is not None else "removed"
            more = f", {added} record{'' if added == 1 else 's'} that it lacked added again" if added else ""
            lost = "; what it held before and does not now is lost" if shrunk else ""
            self._notice(f"{self.path.name}: {did} by another program; read again{more}{lost}")
        return True

    def _notice(self, what: str) -> None:
        if self.noticed is not None:
            self.noticed(what)

    def _add_missing(self, descriptor: int, size: int) -> int:
        """Append the records that only the old file has (`descriptor`, removed or replaced): those with numbers above
        the newest number in the new file; returns how many there were."""
        missing: list[tuple[int, bytes]] = []
        for _, line in durable_files.read_backwards(descriptor, size):
            found = parse(line, self.id_key)
            if not isinstance(found, str):
                if found[self.id_key] <= self.last_id:
                    break
                missing.append((found[self.id_key], line))
        for number, line in reversed(missing):
            durable_files.append(self._descriptor, line + b"\n", self.path)
            self.size += len(line) + 1
            self.last_id = number
            self._dirty = True
        return len(missing)

    def records(self, start: int = 0) -> Iterator[tuple[int, Json]]:
        """`(offset, record)` of each record from byte `start` to the present end of the file."""
        return records(self.path, start, id_key=self.id_key, damage=self.damage, end=self.size)

    def backwards(self) -> Iterator[Json]:
        """The records of the file, newest first."""
        for _, record in backwards(self.path, id_key=self.id_key):
            yield record

    def at(self, offset: int) -> Json | None:
        """The record of the line at `offset`; None if the file ends before, or if the line is damaged."""
        return record_at(self.path, offset, id_key=self.id_key, damage=self.damage)

    def last(self) -> Json | None:
        """The newest record of the file, None when it has none."""
        return last_record(self.path, id_key=self.id_key)

    def sync(self, *, force: bool = False) -> None:
        """Flush all appended records of the file to the disk. Does nothing if no record was appended since the last
        sync, or if `durability` is "none" and `force` is not set."""
        if not self._dirty or self._descriptor < 0 or (self.durability == "none" and not force):
            return
        with durable_files.writing(self.path):
            durable_files.fsync(self._descriptor, self.path, data=True)
            if self._made:
                durable_files.sync_dir(self.path.parent)
        self._made = self._dirty = False

    def close(self) -> None:
        """Close the file descriptor. An append after `close` raises ContextError."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise ContextError(f"{self.path} is closed; its task has ended, nothing can be added")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._made = not self.path.exists()
        with durable_files.writing(self.path):
            self._descriptor = os.open(self.path, flags, 0o600)
            status = os.fstat(self._descriptor)
            size, self._identity = status.st_size, (status.st_dev, status.st_ino)
            self.size = last_newline(self._descriptor, size)
            if self.size < size:
                self._keep_torn(size)
        self.last_id = self._newest_id()

    def _keep_torn(self, size: int) -> None:
        """Copy the bytes after the last newline (an incomplete line) to `<file>.torn`, then cut them off; both files
        are flushed to the disk."""
        self.torn = size - self.size
        torn = self.path.with_name(self.path.name + ".torn")
        target = os.open(torn, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            for position in range(self.size, size, durable_files.COPY):
                durable_files.write_all(
                    target, durable_files.read_at(self._descriptor, min(durable_files.COPY, size - position), position)
                )
            durable_files.write_all(target, b"\n")
            durable_files.fsync(target, torn)
        finally:
            os.close(target)
        durable_files.sync_dir(self.path.parent)
        os.ftruncate(self._descriptor, self.size)
        durable_files.fsync(self._descriptor, self.path)

    def _newest_id(self) -> int:
        """The number of the last valid record of the file; damaged lines after this record stay in the file and are
        reported."""
        for offset, line in durable_files.read_backwards(self._descriptor, self.size):
            found = parse(line, self.id_key)
            if not isinstance(found, str):
                return int(found[self.id_key])
            self.damage.add(offset, found)
        return 0
