"""Reads a message list from files and checks it (`message_list_check.py`); a line is parsed again only if its file was
replaced or changed.

A later read parses only new lines: a MessageReader stores the offset that it has reached in the last file, and a
fingerprint of the bytes before that offset.  A file that was replaced, cut, or changed shortly before the stored offset
is read again from the start.  A MessageReader does not store the text of the messages.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson

from agent import durable_files
from agent.message_list_check import MessageList
from agent.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent.message_list_check import Shape
    from agent.values import Json

FINGERPRINT = 512
"""The number of bytes before the stored offset that must be unchanged, since a new file may have the inode number of a
deleted one."""

Identity = tuple[int, ...]


def lines(descriptor: int, start: int, end: int, *, unfinished: bool = False) -> Iterator[tuple[int, bytes]]:
    """(offset after the line, line without its newline) of the lines of a file between two offsets, without blank
    lines.

    One line of the file is in memory at a time. A last line without a newline, or a line that continues after `end`, is
    included only with `unfinished`.
    """
    return (found for found in _all_lines(descriptor, start, end, unfinished=unfinished) if found[1].strip())


def _all_lines(descriptor: int, start: int, end: int, *, unfinished: bool) -> Iterator[tuple[int, bytes]]:
    at = start
    with os.fdopen(os.dup(descriptor), "rb", buffering=durable_files.BLOCK) as file:
        file.seek(start)
        while at < end and (line := file.readline(end - at)):
            if not line.endswith(b"\n") and not unfinished:
                return
            at += len(line)
            yield at, line.removesuffix(b"\n")


@dataclass(frozen=True, slots=True)
class Reading:
    """The first `offset` bytes of a file, which were read and checked and are a legal list of messages.

    A request plan for the whole view contains the Reading of the view (`values.Plan.reading`), so that the client need
    not parse the same lines again.
    """

    path: Path
    offset: int
    messages: MessageList
    count: int
    identity: Identity

    def shape_of(self, spans: Sequence[Span]) -> Shape | None:
        """The properties of the messages in `spans` (`message_list_check.Shape`).

        Returns None if `spans` are not the lines of this Reading, if the file has changed since these lines were read,
        or if the reader of the file has read more lines since.
        """
        if tuple(spans) != (Span(self.path, 0, self.offset),) or self.messages.shape.count != self.count:
            return None
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return self.messages.shape if identity(descriptor, self.offset) == self.identity else None
        finally:
            os.close(descriptor)


def identity(descriptor: int, offset: int) -> Identity:
    """(device, inode, fingerprint of the bytes before `offset`) of a file that was read up to `offset`."""
    status = os.fstat(descriptor)
    start = max(0, offset - FINGERPRINT)
    return status.st_dev, status.st_ino, crc32(os.pread(descriptor, offset - start, start))


class MessageReader:
    """Reads one message list; its last file may grow.

    `system_first` has the same meaning as in MessageList.  With `unfinished` a last line without a newline counts as a
    message; otherwise this line is left for the next read, since another process may be writing it.  A subclass is
    informed of each message (`began`, `took`).
    """

    def __init__(self, *, system_first: bool = True, unfinished: bool = False) -> None:
        self.system_first = system_first
        self.unfinished = unfinished
        self.messages = MessageList(system_first=system_first)
        self.parsed = 0  # number of lines parsed so far in all reads of the message list
        self.offset = 0  # the offset after the last line that was read in the last file of the list
        # the spans of the last read, with the sizes and modification times of their files
        self._looked: tuple[Any, ...] | None = None
        self._read: tuple[Any, ...] = ()  # the spans of files that were read up to `offset`
        self._identity: Identity = ()  # identity of the last file of the list, up to `offset`

    def began(self) -> None:
        """Called when the reader begins to read a new message list. A subclass of MessageReader that sums up messages
        in `took` starts its sums again when a new list begins."""

    def took(self, message: Json) -> None:
        """Called with each message that was read, with {} for a line that is not a JSON object."""

    def read_list(self, spans: Sequence[Span]) -> MessageList:
        """Read the new lines of `spans`; a missing file counts as an empty one.

        If `read_list` returns the same MessageList object as before, the lines that were read before count as
        unchanged.
        """
        looked = _looked(spans)
        if looked != self._looked:
            self._looked = None  # if an error ends this call, the next call must not count the list as read
            try:
                self._take_in([part for part in looked if part[2] > part[1]])
            except FileNotFoundError:  # the last file was removed just now; the list counts as empty
                self._take_in([])
                return self.messages
            self._looked = looked
        return self.messages

    def reading(self, path: Path) -> Reading:
        """The result of reading a message list that is the beginning of the file `path`."""
        return Reading(path, self.offset, self.messages, self.messages.shape.count, self._identity)

    def _take_in(self, parts: Sequence[tuple[Any, ...]]) -> None:
        if not parts:
            self._restart(0)
            self._read, self._identity = (), ()
            return
        *fixed, (path, start, end, *_) = parts
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            known, self._read = self._read, ()
            read = (*((before, first, last, inode) for before, first, last, _, inode, *_ in fixed), path, start)
            if known != read or self.offset > end or self._identity != identity(descriptor, self.offset):
                self._restart(start)
                for before, first, last, *_ in fixed:
                    self._take_file(before, first, last)
                self.offset = start
            self._take_lines(descriptor, self.offset, end, path.name)
            self._identity = identity(descriptor, self.offset)
            if not self.unfinished or os.pread(descriptor, 1, self.offset - 1) == b"\n":
                self._read = read  # a last line without a newline may continue, so the list is then read again
        finally:
            os.close(descriptor)

    def _restart(self, start: int) -> None:
        self.messages, self.offset = MessageList(system_first=self.system_first), start
        self.began()

    def _take_file(self, path: Path, start: int, end: int) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._take_lines(descriptor, start, end, path.name)
        finally:
            os.close(descriptor)

    def _take_lines(self, descriptor: int, start: int, end: int, name: str) -> None:
        for behind, line in _all_lines(descriptor, start, end, unfinished=self.unfinished):
            try:
                message = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                message = {}
                self.messages.add_unreadable(str(error), name)
            else:
                self.messages.add(message, name)
            self.took(message if isinstance(message, dict) else {})
            self.parsed += 1
            self.offset = behind


def _looked(spans: Sequence[Span]) -> tuple[tuple[Any, ...], ...]:
    """(path, start, end, device, inode, size, modification time) of each span with an existing file; the end of an open
    span is the present size."""
    found = []
    for span in spans:
        try:
            status = span.path.stat()
        except FileNotFoundError:
            continue
        end = status.st_size if span.end is None else span.end
        found.append(
            (span.path, span.start, end, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns),
        )
    return tuple(found)
