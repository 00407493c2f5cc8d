"""Reads the output of a command: the stored output from the task's folder `outputs/` if there is one, else the part in
the record of the call.

The result of a call is shortened, so a failing test in the middle of a long output is only in the stored file, which
the field `output` of the record names. A stored output of a command is read once, line by line. At most `MOST` bytes of
a stored output are read: the first half of them from its beginning, the other half from its end.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from agent import durable_files
from agent.window.failure_excerpt import FailureLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

MOST = 1 << 22
"""The maximum number of bytes that are read of a stored output."""

LONGEST = 1 << 12
"""The maximum number of bytes of one output line that are used, so that a file without line ends takes little
memory."""

NOTHING = "(no output)"
"""The text that a result has in place of the output if the command printed nothing."""

ENDING = re.compile(r"\[([^\n]*)\]")
"""Matches the first line of a result, which describes how the command ended."""

_NAME = re.compile(r"outputs/[0-9]{4,9}\.txt")


def printed_lines(record: Mapping[str, Any], folder: Path | None) -> FailureLines:
    """The output lines of the command in a record of tools.jsonl.

    `folder` is the folder of the task, None if there is none. The record's `result` is used if there is no folder, or
    the stored output is missing, empty, unreadable or not text.
    """
    result = recorded_output(record)
    name = record.get("output")
    # a result of one line in parentheses is the notice that stands in place of binary output
    is_notice = result.startswith("(") and "\n" not in result
    if folder is not None and isinstance(name, str) and _NAME.fullmatch(name) and not is_notice:
        try:
            found = FailureLines(_stored(folder / name))
        except OSError:
            found = FailureLines(())
        if found.size:
            return found
    return FailureLines(result.split("\n"))


def recorded_output(record: Mapping[str, Any]) -> str:
    """The output of the command as its record in tools.jsonl has it (perhaps shortened), without the line about its
    end; "" if it printed nothing."""
    result = str(record.get("result") or "")
    if ending := ENDING.match(result):
        result = result[ending.end() :]
    result = result.strip("\n")
    return "" if result == NOTHING else result


def _stored(path: Path) -> Iterator[str]:
    """The lines of a stored output, without its middle if it has more than `MOST` bytes; raises OSError when it is not
    a regular file or cannot be read."""
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
    """The lines in `size` bytes from offset `start` on, each cut to its first LONGEST bytes."""
    held = b""
    end = start + size
    while start < end and (block := os.pread(descriptor, min(durable_files.BLOCK, end - start), start)):
        start += len(block)
        *whole, held = (held[:LONGEST] + block).split(b"\n")
        for line in whole:
            yield line[:LONGEST].decode("utf-8", "replace")
    if held:
        yield held[:LONGEST].decode("utf-8", "replace")
