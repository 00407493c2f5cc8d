"""Lists the files of the installed program, so that a process can detect that they were replaced."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parent
"""The folder of the Python package of this program."""
Stats = dict[str, tuple[int, int, int]]


def files(top: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """(path below `top`, whole path) of each file below `top` that has one of the suffixes, in a fixed order."""
    for folder, folders, names in os.walk(top):  # ours
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(suffixes):
                path = Path(folder, name)
                yield str(path.relative_to(top)), path


def stats(top: Path = TOP, suffixes: tuple[str, ...] = (".py",)) -> Stats:
    """Maps the path below `top` to (inode, size, modification time in nanoseconds), for each file with one of the
    suffixes."""
    found = {}
    for name, path in files(top, suffixes):
        with suppress(OSError):  # the file was removed while the folder was listed
            status = path.stat()
            found[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found
