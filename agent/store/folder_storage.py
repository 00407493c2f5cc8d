"""Stores replicas of tasks in a folder, as plain files; no additional Python package is needed.

A file of a replica is written under a temporary name, synced, and renamed: so a reader on another host sees the whole
file or none. Files and folders get the permissions of the storage's topmost folder, so the owner of that folder decides
who can read and write the replicas; if the topmost folder is missing, it is created with mode 0700.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import durable_files, filetree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Folder:
    """The storage of replicas in the folder `top`.

    The name of a file is its path relative to `top`, with `/`. Not thread-safe. The methods of this storage raise
    DiskError or OSError.
    """

    def __init__(self, top: Path) -> None:
        self.top = top

    def put(self, name: str, data: bytes) -> None:
        """Write a file atomically and flush it to the disk; an existing file is replaced."""
        path = self.top / name
        rights = stat.S_IMODE(durable_files.make_dir(self.top).stat().st_mode)
        if not path.parent.is_dir():
            for parent in reversed(path.parents):
                if self.top in parent.parents:
                    durable_files.make_dir(parent, rights)
        durable_files.write_file(path, data, rights & 0o666 | 0o600)

    def get(self, name: str) -> bytes | None:
        """The content of a file, None when it does not exist."""
        try:
            return (self.top / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Names of all files below a folder of the storage, in no order; [] if the folder does not exist.

        Temporary files of unfinished writes are left out.
        """
        try:
            return [
                f"{folder}/{entry.path}"
                for entry in filetree.walk(self.top / folder)
                if entry.is_file and not _is_temporary(entry.name)
            ]
        except FileNotFoundError:
            return []

    def remove(self, names: Sequence[str]) -> None:
        """Remove files from the storage; names of missing files are ignored."""
        for name in names:
            (self.top / name).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with everything below it, including temporary files of unfinished writes."""
        with suppress(FileNotFoundError):
            filetree.remove(self.top / folder)


def _is_temporary(name: str) -> bool:
    """Whether the name belongs to a file that `durable_files.replacing` has not renamed yet, or never will because its
    process died."""
    return name.startswith(".") and name.endswith(".tmp")
