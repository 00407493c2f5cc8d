"""What a command printed: the whole of it from the task's `outputs/`, else what its record has.

A result is capped, so that a failing test in the middle of a long output stands only in the stored file, which the
record's `output` names.  The file is read once, line by line, `MOST` bytes of it at most: its first and its last half.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from agent import disk
from agent.window.excerpt import Lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

MOST = 1 << 22
"""Bytes of a stored output that are read."""

LONGEST = 1 << 12
"""Bytes of a line that are looked at, so that a file without line ends takes little memory."""

NOTHING = "(no output)"
"""The result of a command that printed nothing."""

ENDING = re.compile(r"\[([^\n]*)\]")
"""The first line of a result: how the command ended."""

_NAME = re.compile(r"outputs/[0-9]{4,9}\.txt")


def printed(record: Mapping[str, Any], folder: Path | None) -> Lines:
    """The lines that the command of a record of tools.jsonl printed; `folder` is the task's, None where there is none.

    The record's own `result` stands for a file that is missing, cannot be read or is no text.
    """
    result = shown(record)
    name = record.get("output")
    is_notice = result.startswith("(") and "\n" not in result  # it stands for binary output
    if folder is not None and isinstance(name, str) and _NAME.fullmatch(name) and not is_notice:
        try:
            found = Lines(_stored(folder / name))
        except OSError:
            found = Lines(())
        if found.size:
            return found
    return Lines(result.split("\n"))


def shown(record: Mapping[str, Any]) -> str:
    """What a record itself has of what the command printed, "" for nothing."""
    result = str(record.get("result") or "")
    if ending := ENDING.match(result):
        result = result[ending.end() :]
    result = result.strip("\n")
    return "" if result == NOTHING else result


def _stored(path: Path) -> Iterator[str]:
    """The lines of a stored output; OSError when it is no plain file or cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path}: not a file")
        if found.st_size <= MOST:
            yield from _lines(descriptor, 0, MOST)
            return
        yield from _lines(descriptor, 0, MOST // 2)
        yield from _lines(descriptor, found.st_size - MOST // 2, MOST // 2)
    finally:
        os.close(descriptor)


def _lines(descriptor: int, start: int, size: int) -> Iterator[str]:
    """The lines of `size` bytes from `start` on, each in LONGEST bytes of its head."""
    held = b""
    end = start + size
    while start < end and (block := os.pread(descriptor, min(disk.BLOCK, end - start), start)):
        start += len(block)
        *whole, held = (held[:LONGEST] + block).split(b"\n")
        for line in whole:
            yield line[:LONGEST].decode("utf-8", "replace")
    if held:
        yield held[:LONGEST].decode("utf-8", "replace")
