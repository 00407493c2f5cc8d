"""Finds conflict marks that are left in the files of a merge.  `workspace.py` puts the merge into the work tree."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from agent import durable_files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BEGIN, END = b"<<<<<<< ", b">>>>>>> "
LARGEST = 10_000_000
"""In a file of more than LARGEST bytes, only the first LARGEST bytes are searched for conflict marks."""


def files_with_conflict_marks(tree: Path, paths: Iterable[str]) -> tuple[str, ...]:
    """A line for each of the files `paths` that still has a conflict mark; a missing file has none."""
    found = []
    for path in paths:
        for number, line in enumerate(_read(tree, path).split(b"\n"), 1):
            if line.startswith((BEGIN, END)):
                found.append(f"{path}:{number} still has a conflict mark; resolve the conflict there")
                break
    return tuple(found)


def _read(tree: Path, path: str) -> bytes:
    """The content of a plain file of the tree, which commands may have changed; b"" for anything else."""
    try:
        root = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.fdopen(durable_files.open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                return file.read(LARGEST) if plain else b""
        finally:
            os.close(root)
    except OSError:
        return b""
