"""`outputs/0001.txt`: tool output too long for a message, whole, cleaned and masked.

Numbered from 1, also across restarts; each file is written once, mode 0600.  Names are checked, so that `read_output`
can reach nothing else.  Used by the toolbox (writes) and `read_output` (reads).
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import disk
from agent.errors import ToolError
from agent.tools.text import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

FOLDER = "outputs"
_NAME = re.compile(r"outputs/([0-9]{4,9})\.txt")
STEP = 1 << 18  # characters that are masked at a time
_TRIES = 16


@dataclass(frozen=True, slots=True)
class Whole:
    """A stored output: its name for `read_output`, lines and bytes, and how many bytes behind them were not stored."""

    name: str
    lines: int
    size: int
    lost: int = 0


class Outputs:
    """The folder `outputs/` of a task, made when the first output is kept."""

    def __init__(self, context_dir: Path) -> None:
        self.folder = context_dir / FOLDER
        names = os.listdir(self.folder) if self.folder.is_dir() else []  # noqa: PTH208 - names only
        for name in names:
            if name.endswith(".spool"):  # left by a process that was killed during a command
                (self.folder / name).unlink(missing_ok=True)  # ours
        found = [_NAME.fullmatch(f"{FOLDER}/{name}") for name in names]
        self.last = max((int(match.group(1)) for match in found if match), default=0)

    def spool(self) -> Path:
        """Where the next command's raw output goes; removed when it has been taken over."""
        disk.make_dir(self.folder)
        return self.folder / f"{self.last + 1:04d}.spool"

    def keep(self, chunks: Iterable[str], lost: int = 0) -> Whole:
        """Write a new output, `lost` bytes of which did not come so far; DiskError when it cannot be."""
        disk.make_dir(self.folder)
        descriptor = -1
        while descriptor < 0:
            self.last += 1
            path = self.folder / f"{self.last:04d}.txt"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise disk.disk_error(path, error) from error
        lines = size = 0
        last = ""
        try:
            with disk.writing(path):
                for chunk in chunks:
                    data = fit(chunk).encode()
                    disk.write_all(descriptor, data)
                    lines += chunk.count("\n")
                    size += len(data)
                    last = chunk[-1:] or last
        finally:
            os.close(descriptor)
        return Whole(f"{FOLDER}/{path.name}", lines + (last not in ("", "\n")), size, lost)

    @contextmanager
    def open(self, name: str) -> Iterator[int]:
        """A descriptor of a stored output; ToolError for any other name."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ToolError(
                f"name {fit(name)!r} is not a stored output; names look like outputs/0001.txt, tools:41 or messages:12"
            )
        path = self.folder / f"{match.group(1)}.txt"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
            there = f"the newest is {FOLDER}/{self.last:04d}.txt" if self.last else "there are none yet"
            raise ToolError(f"{name}: no such output; {there}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def blocks(descriptor: int, start: int = 0) -> Iterator[bytes]:
    """A file from `start` on, in blocks of 64 KiB."""
    while block := os.pread(descriptor, disk.BLOCK, start):
        yield block
        start += len(block)


def masked(chunks: Iterable[str], mask: Callable[[str], str], step: int = STEP) -> Iterator[str]:
    """`mask` over a long text in bounded memory, as if over the whole.

    A piece ends where masking both sides apart gives what masking them together gives, at a line end if there is one,
    and a quarter of a step before what is not known yet: so nothing that spans lines (a key in PEM form, an escape
    sequence) slips through at a seam.
    """
    held = ""
    enough = step
    for chunk in chunks:
        held += chunk
        if len(held) < enough:
            continue
        whole = mask(held)
        for cut in _seams(held, len(held) - step // 4):
            before = mask(held[:cut])
            if before + mask(held[cut:]) == whole:
                yield before
                held = held[cut:]
                break
        enough = len(held) + step
        if len(held) > 16 * step:  # no seam in four million characters: go on without a good one
            yield mask(held)
            held, enough = "", step
    if held:
        yield mask(held)


def _seams(text: str, end: int) -> Iterator[int]:
    """Where `text` may be cut before `end`: after its newest line ends there, else at `end` itself."""
    cut = end + 1
    for _ in range(_TRIES):
        cut = text.rfind("\n", 0, cut - 1) + 1
        if cut <= 0:
            break
        yield cut
    yield end
