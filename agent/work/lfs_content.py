"""Manages the Git LFS content that a task's work tree gets, and the content that its commits need on the remote.

Downloaded content is stored in the mirror, for every task of the repository; content that the task created is stored in
the task's git directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import MakimonoError
from agent.work import changes, git_filters
from agent.work.lfs import LfsTree, Objects, Pointer, as_added

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from agent.work.lfs_server import LfsServer

LIMIT = 1 << 30


class Content:
    """The Git LFS content of one task.

    `limit` is the maximum number of bytes that one call adds to the content that the task already has. A line about
    missing content is appended to `reports`.
    """

    def __init__(self, git_dir: Path, mirror: Path, server: LfsServer, limit: int, reports: list[str]) -> None:
        self.git_dir = git_dir
        self.server = server
        self.limit = limit
        self.reports = reports
        self.own, self._shared = Objects(git_dir), Objects(mirror)

    def fill(self, tree: Path, env: Mapping[str, str]) -> dict[str, Pointer]:
        """Replace the pointers in `tree` by content that is available and within the limit; returns path → pointer of
        each file that was filled.

        `fill` raises no error for missing content: the pointer stays in the tree, and `reports` gets a line about that.
        The caller passes the filled files to `LfsTree.add` after it has set their owner.
        """
        try:
            files = LfsTree(self.git_dir, tree, env)
            wanted = files.pointers()
            lacking, large = self._lacking(wanted.values())
            problems = self.server.download(lacking, self._shared) if lacking else []
            filled = files.fill(
                {path: pointer for path, pointer in wanted.items() if pointer not in large}, (self.own, self._shared)
            )
        except (MakimonoError, OSError) as error:
            self._append_line(f"Git LFS: {error}")
            return {}
        if large:
            problems.append(f"{len(large)} of them are more than `workspace.lfs_limit` ({self.limit:,} bytes) allows")
        if problems:
            self._append_line(f"Git LFS: some content is not here: {'; '.join(problems[:3])}")
        return filled

    def pointers(self, entries: Iterable[changes.RawChange], tree: Path, env: Mapping[str, str]) -> dict[Pointer, str]:
        """Pointer → path, for the content that the commits with the changes `entries` need on the remote: content that
        this program converted to pointers, and pointers that the model wrote."""
        blobs = {entry.object: entry.path for entry in entries if entry.new_mode.startswith("100")}
        found: dict[Pointer, str] = {}
        for data, path in changes.small(self.git_dir, blobs, git_filters.LARGEST):
            if (pointer := Pointer.read(data)) is not None:
                found[pointer] = path
        under = set(LfsTree(self.git_dir, tree, env).files(found.values()))
        return {pointer: path for pointer, path in found.items() if path in under or self.own.has(pointer)}

    def added(self, pointers: Mapping[Pointer, str]) -> Iterator[bytes]:
        """The content that a push would upload, as a diff that adds it."""
        for pointer, path in pointers.items():
            if self.own.has(pointer):
                yield from as_added(self.own.path(pointer), path)

    def _lacking(self, wanted: Iterable[Pointer]) -> tuple[list[Pointer], set[Pointer]]:
        """(pointers with content that must be downloaded, pointers that exceed what is left of `limit`, which holds for
        all content together)."""
        room, lacking, large = self.limit, [], set()
        for pointer in dict.fromkeys(wanted):
            if self.own.has(pointer):
                continue
            if pointer.size > room:
                large.add(pointer)
                continue
            room -= pointer.size
            if not self._shared.has(pointer):
                lacking.append(pointer)
        return lacking, large

    def _append_line(self, line: str) -> None:
        if line not in self.reports:
            self.reports.append(line)
