"""Git LFS in a work tree, without git-lfs: content becomes a pointer in the commit, and a pointer content in the tree.

git-lfs itself is not run: it reads the repository's configuration, which may name programs and addresses.  A pointer is
three lines, and the content lies in `lfs/objects` of a git directory, where git-lfs keeps it too.  Our own attributes
switch every filter off; only `add` gives git one, for the paths it is called with, so that the index knows the file's
own size and time beside the pointer, and `git status` shows the file as unchanged.  `work/lfs_server.py` brings content
to the other side and from there.  Called by `Stage`, `Workspace` and `Checkout`.

Source: git-lfs/git-lfs docs/spec.md (pointer, where objects lie).
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import disk, filetree
from agent.gitcmd import git
from agent.work import filters, gitdir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

BLOCK = 1 << 20
PAST = 3
"""Seconds by which a file that is filled here is older: git reads anew each file that is as young as its index."""

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (0|[1-9][0-9]{0,17})\n"
)


class ContentWrong(ValueError):
    """Content is not what its pointer says."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """What stands in a commit for content."""

    oid: str
    size: int

    def __bytes__(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.oid}\nsize {self.size}\n".encode()

    @classmethod
    def read(cls, data: bytes) -> Pointer | None:
        """The pointer that `data` is; None for anything else, and for one that is written in another way or names
        an extension: made again from its content it would be another."""
        match = _POINTER.fullmatch(data)
        return cls(match[1].decode(), int(match[2])) if match else None


class Objects:
    """Content by its SHA-256, in the `lfs/objects` of one git directory."""

    def __init__(self, git_dir: Path) -> None:
        self.top = git_dir / "lfs" / "objects"

    def path(self, pointer: Pointer) -> Path:
        """Where the content lies, or would."""
        return self.top / pointer.oid[:2] / pointer.oid[2:4] / pointer.oid

    def has(self, pointer: Pointer) -> bool:
        """Whether the content is here.  An object appears by rename, and so is whole."""
        path = self.path(pointer)
        return path.is_file() and not path.is_symlink() and path.stat().st_size == pointer.size

    def put(self, pointer: Pointer, blocks: Iterable[bytes]) -> None:
        """Keep content; ContentWrong, and nothing is kept, when it is not what the pointer says."""
        path = self.path(pointer)
        disk.make_dir(path.parent)
        digest, size = hashlib.sha256(), 0
        with disk.replacing(path) as descriptor:
            for block in blocks:
                size += len(block)
                if size > pointer.size:
                    raise ContentWrong(f"there are more than the {pointer.size:,} bytes of the pointer")
                digest.update(block)
                disk.write_all(descriptor, block)
            if size != pointer.size:
                raise ContentWrong(f"there are {size:,} bytes, and the pointer says {pointer.size:,}")
            if digest.hexdigest() != pointer.oid:
                raise ContentWrong("the SHA-256 of the content is not that of the pointer")


class LfsTree:
    """The files of one work tree whose content belongs into Git LFS.  `index` in `env` may name another index."""

    def __init__(self, git_dir: Path, tree: Path, env: Mapping[str, str]) -> None:
        self.git_dir = git_dir
        self.tree = tree
        self.env = dict(env)
        self.objects = Objects(git_dir)

    def files(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` that the attributes of the tree give to Git LFS."""
        return [
            path for path, name in filters.filters_of(self.git_dir, self.tree, paths, self.env).items() if name == "lfs"
        ]

    def raw(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` whose content must become a pointer."""
        return [path for path in self.files(paths) if not filters.is_converted(self.tree, path, "lfs")]

    def pointers(self) -> dict[str, Pointer]:
        """path → pointer, for the tracked files of Git LFS whose content is not in the tree."""
        listed = git("ls-files", "-z", git_dir=self.git_dir, work_tree=self.tree, env=self.env).output
        found = {}
        for path in self.files(name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name):
            data = next(self._blocks(path), b"") if self._mode(path) else b""
            if (pointer := Pointer.read(data)) is not None:
                found[path] = pointer
        return found

    def unchanged(self, paths: Iterable[str]) -> set[str]:
        """Those of `paths` whose content is what the index has a pointer to."""
        return {path for path in self.raw(paths) if self._is_indexed(path)}

    def add(self, paths: Iterable[str], known: Mapping[str, Pointer] | None = None) -> None:
        """Put the pointers of the files into the index, and their content beside it.  `known`: content that is kept
        elsewhere already, with its pointer."""
        made = dict(known or {})
        for path in paths:
            pointer = made[path] = self._measure(path)
            if not self.objects.has(pointer):
                self.objects.put(pointer, self._blocks(path))
        if not made:
            return
        texts = disk.make_dir(self.git_dir / "lfs" / "pointers")
        for pointer in made.values():
            disk.write_file(texts / pointer.oid, bytes(pointer), sync=False)
        attributes = gitdir.ATTRIBUTES + b"".join(_pattern(path) + b" filter=lfs\n" for path in made)
        clean = f"cat {shlex.quote(str(texts))}/$(sha256sum | cut -c1-64)".replace("%", "%%")
        places = {
            "GIT_INDEX_FILE": self.env.get("GIT_INDEX_FILE", str(self.git_dir / "index")),
            "GIT_OBJECT_DIRECTORY": str(self.git_dir / "objects"),
        }
        git(
            *("update-index", "--add", "--replace", "-z", "--stdin"),
            git_dir=filters.plain(self.git_dir, "lfs.git", attributes),
            work_tree=self.tree,
            stdin=b"".join(os.fsencode(path) + b"\0" for path in made),
            env={**self.env, **places},
            config=(
                *("core.checkStat=default", "core.trustctime=true", "core.fsync=committed"),
                *(f"filter.lfs.clean={clean}", "filter.lfs.required=true"),
            ),
            timeout=1800,
        )

    def fill(self, wanted: Mapping[str, Pointer], stores: Iterable[Objects]) -> dict[str, Pointer]:
        """Put content in the place of pointers, where one of `stores` has it; returns what was filled.  `add` has to
        follow, once the files have their owner."""
        stores = list(stores)
        done = {}
        root = filetree.open_folder(self.tree)
        try:
            for path, pointer in wanted.items():
                store = next((one for one in stores if one.has(pointer)), None)
                if store is not None:
                    with disk.writing(self.tree / path):
                        _replace(root, path, store.path(pointer))
                    done[path] = pointer
        finally:
            os.close(root)
        return done

    def _measure(self, path: str) -> Pointer:
        digest, size = hashlib.sha256(), 0
        for block in self._blocks(path):
            digest.update(block)
            size += len(block)
        return Pointer(digest.hexdigest(), size)

    def _is_indexed(self, path: str) -> bool:
        """Whether the index has this very content and mode."""
        options: dict[str, Any] = {"git_dir": self.git_dir, "work_tree": self.tree, "env": self.env, "check": False}
        entry = git("ls-files", "-z", "--stage", "--", path, **options).output.decode("utf-8", "surrogateescape")
        mode, _, rest = entry.partition(" ")
        size = git("cat-file", "-s", rest[: rest.find(" ")], **options).output
        if not size.strip().isdigit() or int(size) > filters.LARGEST:
            return False
        pointer = Pointer.read(git("cat-file", "blob", rest[: rest.find(" ")], **options).output)
        executable = bool(self._mode(path) & stat.S_IXUSR)
        return pointer is not None and executable == (mode == "100755") and pointer == self._measure(path)

    def _mode(self, path: str) -> int:
        """Type and mode of a regular file of the tree; 0 for anything else."""
        try:
            mode = disk.stat_beneath(self.tree, path).st_mode
        except OSError:
            return 0
        return mode if stat.S_ISREG(mode) else 0

    def _blocks(self, path: str) -> Iterator[bytes]:
        """The file's bytes.  Its folder belongs to commands: no symlink is followed, and nothing but a file is read."""
        root = filetree.open_folder(self.tree)
        try:
            with disk.writing(self.tree / path):
                descriptor = disk.open_beneath(root, path)
        finally:
            os.close(root)
        try:
            while disk.is_regular(descriptor) and (block := os.read(descriptor, BLOCK)):
                yield block
        finally:
            os.close(descriptor)


def as_added(content: Path, path: str) -> Iterator[bytes]:
    """Content as the lines that a diff adds, in chunks: nothing in it can end the hunk."""
    with content.open("rb") as file:
        lines = 1 + sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b""))
        yield b"+++ b/" + os.fsencode(path).replace(b"\n", b"?") + b"\n@@ -0,0 +1,%d @@\n+" % lines
        file.seek(0)
        while block := file.read(BLOCK):
            yield block.replace(b"\n", b"\n+")
    yield b"\n"


def _pattern(path: str) -> bytes:
    """The pattern of gitattributes(5) that matches this path alone."""
    escaped = re.sub(rb"([\\*?\[])", rb"\\\1", os.fsencode(path))
    quoted = re.sub(rb"[\x00-\x1f\x7f\"\\]", lambda sign: b"\\%03o" % ord(sign[0]), escaped)
    return b'"/' + quoted + b'"'


def _replace(root: int, path: str, source: Path) -> None:
    folder, _, name = path.rpartition("/")
    parent = disk.open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & 0o777
        os.unlink(name, dir_fd=parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, mode, dir_fd=parent)
        try:
            os.fchmod(descriptor, mode)
            with source.open("rb") as content:
                while block := content.read(BLOCK):
                    disk.write_all(descriptor, block)
            when = time.time() - PAST
            os.utime(descriptor, (when, when))
        finally:
            os.close(descriptor)
    finally:
        os.close(parent)
