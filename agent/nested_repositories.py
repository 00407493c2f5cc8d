"""Checks repositories that are nested in a work tree, before git reads the tree.

If a folder has an entry `.git`, git determines whether the folder is a repository, and for a submodule in the index,
its current commit.  To determine this, git opens files that a command of the model may have made: `HEAD`, `commondir`,
`packed-refs`, `config` and files below `refs/`.  A file `.git` (`gitdir: …`) and a file `commondir` can point to any
other folder, even one of the host.  A named pipe or a link to a device in place of such a file blocks git for ever; git
loads the files `commondir` and refs into memory as a whole.

The files that git opens in a nested repository must therefore be regular and short and must not be links, and a
reference to another folder must stay within the work tree. A file in a nested repository that git does not read is not
refused. The places in git's sources are setup.c (`is_git_directory`, `read_gitfile_gently`, `get_common_dir_noenv`) and
refs/files-backend.c (`files_read_raw_ref`).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import durable_files, filetree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = ".git"
LARGEST = 1 << 20
LARGEST_PACKED = 64 << 20
"""The maximum bytes of a file that git loads as a whole (LARGEST), and of `packed-refs`, which git maps
(LARGEST_PACKED)."""

READ = {"HEAD": LARGEST, "config": LARGEST, "config.worktree": LARGEST, "packed-refs": LARGEST_PACKED}
LONGEST_WAY = 4096
"""The maximum bytes of a `.git` file or a `commondir`, which is more than the longest path."""

_WAY = b"gitdir: "
_SYMBOLIC = b"ref:"


def findings(top: int, within: int, folder: str, stop: Callable[[], None]) -> Iterator[str]:
    """The reasons, one line each, why git must not read the entry `.git` of the folder.

    `top` is the descriptor of the work tree, `within` the descriptor of the folder `folder`, which was opened without
    following a link. `stop` is called between the files of a large nested repository.
    """
    judge = _Judge(top, within, folder, stop)
    kind = judge.kind(NAME)
    if kind == "symbolic link":
        yield f"{judge.printable_path(NAME)} is a symbolic link, which git would follow: remove it"
    elif kind == "folder":
        yield from judge.directory(NAME)
    elif kind == "file":
        start = judge.start(NAME)
        if start.startswith(_WAY):
            yield from judge.behind(NAME, "", start[len(_WAY) :])


@dataclass(frozen=True, slots=True)
class _Judge:
    """Checks the entries of the folder `folder` in the work tree `top`; `within` is the descriptor of that folder."""

    top: int
    within: int
    folder: str
    stop: Callable[[], None]

    def printable_path(self, path: str) -> str:
        return filetree.printable(f"{self.folder}/{path}".lstrip("/"))

    def directory(self, place: str, *, common: bool = True) -> Iterator[str]:
        """Check a git directory in a work tree. With `common`, the refs of this git directory may be in another one,
        which its file `commondir` names.
        """
        for name, largest in READ.items():
            yield from self.file(f"{place}/{name}", largest, ref=name == "HEAD")
        way = f"{place}/commondir"
        if common:
            wrong = list(self.file(way, LONGEST_WAY))
            yield from wrong
            if not wrong and (start := self.start(way)):
                yield from self.behind(way, place, start, common=False)
        yield from self.refs(f"{place}/refs")

    def refs(self, place: str) -> Iterator[str]:
        if self.kind(place) == "symbolic link":
            yield f"{self.printable_path(place)} is a symbolic link, which git would follow: remove it"
        with suppress(OSError):
            opened = durable_files.open_beneath(self.within, place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                here = _Judge(self.top, opened, f"{self.folder}/{place}", self.stop)
                for entry in filetree.walk(".", within=opened, on_error=filetree.pass_over):
                    self.stop()
                    if not entry.is_folder:
                        yield from here.file(entry.path, LARGEST, ref=True)
            finally:
                os.close(opened)

    def file(self, path: str, largest: int, *, ref: bool = False) -> Iterator[str]:
        """Check a file of a git directory that git reads, if the file exists."""
        status = self.status(path)
        if status is None or stat.S_ISDIR(status.st_mode):
            return
        if not stat.S_ISREG(status.st_mode):
            kind = filetree.kind_of(status.st_mode)
            yield f"{self.printable_path(path)} is a {kind}; git reads it and would hang or read elsewhere: remove it"
        elif status.st_size > largest:
            size = f"{status.st_size / LARGEST:,.1f} MiB; git reads it, at most {largest / LARGEST:.3g} MiB are taken"
            yield f"{self.printable_path(path)} has {size}: remove it"
        elif ref and _is_astray(self.start(path)):
            yield f"{self.printable_path(path)} names no ref but another file, which git would read: remove it"

    def behind(self, path: str, folder: str, way: bytes, *, common: bool = True) -> Iterator[str]:
        """Check the git directory at `way`, the text that the file `path` contains; a relative `way` begins at
        `folder`."""
        text = way.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
        if text.startswith("/"):
            yield f"{self.printable_path(path)} leads git to {filetree.printable(text)} of this host: remove it"
            return
        parts = [part for part in f"{self.folder}/{folder}".split("/") if part]
        down = False
        for part in text.split("/"):
            # `..` after a name may lead anywhere, since the name can be a link
            if part == ".." and (down or not parts):
                yield f"{self.printable_path(path)} leads git out of the work tree, or nobody knows where: remove it"
                return
            if part == "..":
                parts.pop()
            elif part not in ("", "."):
                down = True
                parts.append(part)
        whole = _Judge(self.top, self.top, "", self.stop)
        for count in range(1, len(parts) + 1):
            kind = whole.kind("/".join(parts[:count]))
            if kind == "symbolic link":
                yield f"{self.printable_path(path)} leads git through a symbolic link: remove it"
            if kind != "folder":
                return  # git finds no repository at the named path
        yield from whole.directory("/".join(parts), common=common)

    def kind(self, path: str) -> str | None:
        """The type of the file at `path`; None if there is none, or if a folder in the path is a link."""
        status = self.status(path)
        return None if status is None else filetree.kind_of(status.st_mode)

    def status(self, path: str) -> os.stat_result | None:
        folder, _, name = path.rpartition("/")
        try:
            parent = durable_files.open_beneath(self.within, folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError:
            return None
        finally:
            os.close(parent)

    def start(self, path: str) -> bytes:
        """The first LONGEST_WAY bytes of the regular file at `path`; b"" for anything else."""
        try:
            opened = durable_files.open_beneath(self.within, path)
        except OSError:
            return b""
        try:
            return os.read(opened, LONGEST_WAY) if durable_files.is_regular(opened) else b""
        finally:
            os.close(opened)


def _is_astray(ref: bytes) -> bool:
    """Whether a symbolic ref points to something that is not a ref."""
    return ref.startswith(_SYMBOLIC) and not ref[len(_SYMBOLIC) :].strip().startswith(b"refs/")
