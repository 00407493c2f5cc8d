"""Writes the file current.jsonl, the model's view: the view is derived, or appended to if that gives the same result.

`MessageStore` decides the contents of current.jsonl; this module writes the file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import durable_files
from agent.context import projection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.context.projection import Line


class ViewFile:
    """`tokens` is the sum of the tokens of all lines of current.jsonl; `size` is the length of its complete lines in
    bytes, after which a failed append may have left a part of a line."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self.size = 0
        self.tokens = 0
        self._sync = sync
        self._descriptor = -1
        self._name = str(path)
        self._identity = (0, 0)  # device and inode of current.jsonl

    def ensure(self, lines: Callable[[], Iterable[Line]]) -> bool:
        """Write `lines()` to current.jsonl unless the file already has exactly these lines; returns True if it had
        them."""
        for leftover in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            leftover.unlink(missing_ok=True)
        tokens = projection.tokens_if_same(self.path, lines())
        if tokens is None:
            self.replace(lines())
            return False
        self.tokens = tokens
        self._reopen()
        return True

    def replace(self, lines: Iterable[Line]) -> None:
        """Write a new version of the file: to a temporary file, which is synced (with `sync`) and renamed over the old
        one."""
        tokens = 0

        def chunks() -> Iterable[bytes]:
            nonlocal tokens
            for data, count in lines:
                tokens += count
                yield data

        with durable_files.replacing(self.path, sync=self._sync) as descriptor:
            projection.write(descriptor, chunks())
        self.tokens = tokens
        self._reopen()

    def is_ours(self) -> bool:
        """Whether current.jsonl is still the file that this process wrote, and has the same size."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - os.stat is faster than Path.stat, and each append calls it
        except FileNotFoundError:
            return False
        return found.st_size == self.size and (found.st_dev, found.st_ino) == self._identity

    def append(self, data: bytes, tokens: int) -> None:
        """Append one line to current.jsonl."""
        durable_files.append(self._descriptor, data, self.path)
        self.size += len(data)
        self.tokens += tokens

    def cut_back(self) -> None:
        """Remove the part of a line that a failed append left in current.jsonl."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self.size)

    def sync(self) -> None:
        """Sync current.jsonl to the disk."""
        with durable_files.writing(self.path):
            durable_files.fsync(self._descriptor, self.path, data=True)

    def close(self) -> None:
        """Close the file descriptor of current.jsonl."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _reopen(self) -> None:
        self.close()
        with durable_files.writing(self.path):
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            status = os.fstat(self._descriptor)
            self.size, self._identity = status.st_size, (status.st_dev, status.st_ino)
