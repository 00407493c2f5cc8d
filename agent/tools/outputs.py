"""Stores tool output that is too long for a message, in full, cleaned and masked, in the files `outputs/0001.txt` and
so on.

Stored outputs are numbered from 1, and a restart continues the numbers; each file is written once, with mode 0600. The
names that a model gives to the tool `read_output` are checked, so that the tool cannot read a file outside of
`outputs/`. The toolbox writes the files, `read_output` reads them.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import durable_files
from agent.errors import ToolError
from agent.tools.encodings import escape_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

FOLDER = "outputs"
_NAME = re.compile(r"outputs/([0-9]{4,9})\.txt")
STEP = 1 << 18  # number of characters of an output that are masked in one step
_TRIES = 16


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A stored output of a tool: its name for `read_output`, its lines and bytes, and the number of bytes that were not
    stored."""

    name: str
    lines: int
    size: int
    lost: int = 0


class Outputs:
    """The folder `outputs/` of a task, which is created with the first output."""

    def __init__(self, context_dir: Path) -> None:
        self.folder = context_dir / FOLDER
        names = os.listdir(self.folder) if self.folder.is_dir() else []  # noqa: PTH208 - only the names of the files are needed
        for name in names:
            if name.endswith(".spool"):  # the file was left by a process that died during a command
                (self.folder / name).unlink(missing_ok=True)  # ours
        found = [_NAME.fullmatch(f"{FOLDER}/{name}") for name in names]
        self.last = max((int(match.group(1)) for match in found if match), default=0)

    def spool(self) -> Path:
        """The path of the file for the next command's raw output; the toolbox removes the file after it has stored the
        output."""
        durable_files.make_dir(self.folder)
        return self.folder / f"{self.last + 1:04d}.spool"

    def store(self, chunks: Iterable[str], lost: int = 0) -> StoredOutput:
        """Store a new output, of which `lost` bytes did not arrive; raises DiskError when writing fails."""
        durable_files.make_dir(self.folder)
        descriptor = -1
        while descriptor < 0:
            self.last += 1
            path = self.folder / f"{self.last:04d}.txt"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise durable_files.disk_error(path, error) from error
        lines = size = 0
        last = ""
        try:
            with durable_files.writing(path):
                for chunk in chunks:
                    data = escape_surrogates(chunk).encode()
                    durable_files.write_all(descriptor, data)
                    lines += chunk.count("\n")
                    size += len(data)
                    last = chunk[-1:] or last
        finally:
            os.close(descriptor)
        return StoredOutput(f"{FOLDER}/{path.name}", lines + (last not in ("", "\n")), size, lost)

    @contextmanager
    def open(self, name: str) -> Iterator[int]:
        """A descriptor of the stored output with this name; raises ToolError if there is none."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ToolError(
                f"name {escape_surrogates(name)!r} is not a stored output; names look like outputs/0001.txt, tools:41 "
                "or messages:12"
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
    """The content of a file from `start` on, in blocks of 64 KiB."""
    while block := os.pread(descriptor, durable_files.BLOCK, start):
        yield block
        start += len(block)


def masked(chunks: Iterable[str], mask: Callable[[str], str], step: int = STEP) -> Iterator[str]:
    """Apply `mask` to a long text piece by piece in bounded memory, with the same result as for the whole text at once,
    unless 16 steps of text contain no safe place to cut.

    The text is cut only where masking both sides separately gives the same result as masking them together. Each cut is
    after a line end if one of the last line ends is a safe place, and at least a quarter of a step away from the part
    of the text that was not read yet. Because of this distance a cut does not divide a secret over several lines (a key
    in PEM form), and the secret is masked.
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
        # four million characters have no safe place to cut, so the text is cut at an unsafe one
        if len(held) > 16 * step:
            yield mask(held)
            held, enough = "", step
    if held:
        yield mask(held)


def _seams(text: str, end: int) -> Iterator[int]:
    """The positions up to `end` at which `text` may be cut: first the positions after its last line ends, and finally
    `end` itself."""
    cut = end + 1
    for _ in range(_TRIES):
        cut = text.rfind("\n", 0, cut - 1) + 1
        if cut <= 0:
            break
        yield cut
    yield end
