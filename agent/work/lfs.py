"""Handles Git LFS in a work tree, without the program git-lfs: converts content to a pointer for the commit, and a
pointer to content in the tree.

This program does not run git-lfs, because git-lfs reads the repository's configuration, which may name programs and
addresses. A pointer has three lines, and the content lies in `lfs/objects` of a git directory, as with git-lfs. The git
attributes that this program sets for a task disable every filter. Only `add` enables the LFS filter, for the given
paths: the index then stores size and time of the file itself with the pointer, and `git status` shows the file as
unchanged. `work/lfs_server.py` uploads and downloads content.

git-lfs/git-lfs docs/spec.md describes the pointer and the location of objects.
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

from agent import durable_files, filetree
from agent.errors import ContentWrong
from agent.gitcmd import fields_of, git
from agent.work import git_filters, gitdir
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

BLOCK = 1 << 20
PAST = 3
"""Seconds by which the modification time of a file that got its content is set back: git would reread at each call a
file that is as new as git's index."""

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (0|[1-9][0-9]{0,17})\n"
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer of Git LFS, the text that replaces content in a commit."""

    oid: str
    size: int

    def __bytes__(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.oid}\nsize {self.size}\n".encode()

    @classmethod
    def read(cls, data: bytes) -> Pointer | None:
        """Parse a pointer of Git LFS; None for other data, and for a pointer in another notation or with an extension,
        because recreating it from its content would give different bytes."""
        match = _POINTER.fullmatch(data)
        return cls(match[1].decode(), int(match[2])) if match else None


class Objects:
    """Content of Git LFS, addressed by its SHA-256, in the `lfs/objects` of one git directory."""

    def __init__(self, git_dir: Path) -> None:
        self.top = git_dir / "lfs" / "objects"

    def path(self, pointer: Pointer) -> Path:
        """The path for the content of a pointer, whether it exists or not."""
        return self.top / pointer.oid[:2] / pointer.oid[2:4] / pointer.oid

    def has(self, pointer: Pointer) -> bool:
        """Whether the content of the pointer exists.

        A stored object appears by a rename, so an existing object is complete.
        """
        path = self.path(pointer)
        return path.is_file() and not path.is_symlink() and path.stat().st_size == pointer.size

    def store_content(self, pointer: Pointer, blocks: Iterable[bytes]) -> None:
        """Store the content of a pointer; if it does not match the pointer, ContentWrong is raised and nothing is
        stored."""
        path = self.path(pointer)
        durable_files.make_dir(path.parent)
        digest, size = hashlib.sha256(), 0
        with durable_files.replacing(path) as descriptor:
            for block in blocks:
                size += len(block)
                if size > pointer.size:
                    raise ContentWrong(f"there are more than the {pointer.size:,} bytes of the pointer")
                digest.update(block)
                durable_files.write_all(descriptor, block)
            if size != pointer.size:
                raise ContentWrong(f"there are {size:,} bytes, and the pointer says {pointer.size:,}")
            if digest.hexdigest() != pointer.oid:
                raise ContentWrong("the SHA-256 of the content is not that of the pointer")


class LfsTree:
    """Handles the Git LFS files of one work tree. The variable GIT_INDEX_FILE in `env` may name another index."""

    def __init__(self, git_dir: Path, tree: Path, env: Mapping[str, str]) -> None:
        self.git_dir = git_dir
        self.tree = tree
        self.env = dict(env)
        self.objects = Objects(git_dir)

    def files(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` that the tree's attributes assign to the filter of Git LFS."""
        return [
            path
            for path, name in git_filters.filters_of(self.git_dir, self.tree, paths, self.env).items()
            if name == "lfs"
        ]

    def files_with_content(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` that contain the content of a Git LFS file instead of its pointer."""
        return [path for path in self.files(paths) if not git_filters.is_converted(self.tree, path, "lfs")]

    def pointers(self) -> dict[str, Pointer]:
        """path → pointer, for the tracked Git LFS files that contain only the pointer."""
        listed = git("ls-files", "-z", git_dir=self.git_dir, work_tree=self.tree, env=self.env).output
        found = {}
        for path in self.files(fields_of(listed)):
            data = next(self._blocks(path), b"") if self._mode(path) else b""
            if (pointer := Pointer.read(data)) is not None:
                found[path] = pointer
        return found

    def unchanged(self, paths: Iterable[str]) -> set[str]:
        """The files of `paths` that have, in the tree, the same mode as in the index, and the content to which their
        pointer in the index refers."""
        return {path for path in self.files_with_content(paths) if self._is_indexed(path)}

    def add(self, paths: Iterable[str], known: Mapping[str, Pointer] | None = None) -> None:
        """Add the pointers of Git LFS files to the index, and the files' content to `objects`.

        `known`: path → pointer, for files of which the content is stored elsewhere already. Raises ContentWrong for a
        file that changes while it is added.
        """
        made = dict(known or {})
        for path in paths:
            pointer = made[path] = self._measure(path)
            if not self.objects.has(pointer):
                try:
                    self.objects.store_content(pointer, self._blocks(path))
                except ContentWrong as error:
                    raise ContentWrong(f"{shown(path)} changed while it was committed: {error}") from error
        if not made:
            return
        texts = durable_files.make_dir(self.git_dir / "lfs" / "pointers")
        for pointer in made.values():
            durable_files.write_file(texts / pointer.oid, bytes(pointer), sync=False)
        attributes = gitdir.ATTRIBUTES + b"".join(pattern(path) + b" filter=lfs\n" for path in made)
        clean = f"cat {shlex.quote(str(texts))}/$(sha256sum | cut -c1-64)".replace("%", "%%")
        places = {
            "GIT_INDEX_FILE": self.env.get("GIT_INDEX_FILE", str(self.git_dir / "index")),
            "GIT_OBJECT_DIRECTORY": str(self.git_dir / "objects"),
        }
        git(
            *("update-index", "--add", "--replace", "-z", "--stdin"),
            git_dir=git_filters.git_dir_without_attributes(self.git_dir, "lfs.git", attributes),
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
        """Replace pointers by content if one of `stores` has it; returns the files that got their content. The caller
        must set the owner of the files that got their content, and then call `add` for them."""
        stores = list(stores)
        done = {}
        root = filetree.open_folder(self.tree)
        try:
            for path, pointer in wanted.items():
                store = next((one for one in stores if one.has(pointer)), None)
                if store is not None:
                    with durable_files.writing(self.tree / path):
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
        """Whether the index has the content and mode that the file in the tree has."""
        options: dict[str, Any] = {"git_dir": self.git_dir, "work_tree": self.tree, "env": self.env, "check": False}
        entry = git("ls-files", "-z", "--stage", "--", path, **options).output.decode("utf-8", "surrogateescape")
        mode, _, rest = entry.partition(" ")
        size = git("cat-file", "-s", rest[: rest.find(" ")], **options).output
        if not size.strip().isdigit() or int(size) > git_filters.LARGEST:
            return False
        pointer = Pointer.read(git("cat-file", "blob", rest[: rest.find(" ")], **options).output)
        executable = bool(self._mode(path) & stat.S_IXUSR)
        return pointer is not None and executable == (mode == "100755") and pointer == self._measure(path)

    def _mode(self, path: str) -> int:
        """Type and mode of a regular file of the tree; 0 for any other file."""
        try:
            mode = durable_files.stat_beneath(self.tree, path).st_mode
        except OSError:
            return 0
        return mode if stat.S_ISREG(mode) else 0

    def _blocks(self, path: str) -> Iterator[bytes]:
        """The bytes of a file of the work tree, in blocks.

        Commands can write to the file's folder, so the method follows no symlink and reads only a regular file.
        """
        root = filetree.open_folder(self.tree)
        try:
            with durable_files.writing(self.tree / path):
                descriptor = durable_files.open_beneath(root, path)
        finally:
            os.close(root)
        try:
            while durable_files.is_regular(descriptor) and (block := os.read(descriptor, BLOCK)):
                yield block
        finally:
            os.close(descriptor)


def as_added(content: Path, path: str) -> Iterator[bytes]:
    """Content as the added lines of a diff, in chunks; no byte of the content can end the hunk."""
    with content.open("rb") as file:
        lines = 1 + sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b""))
        yield b"+++ b/" + os.fsencode(path).replace(b"\n", b"?") + b"\n@@ -0,0 +1,%d @@\n+" % lines
        file.seek(0)
        while block := file.read(BLOCK):
            yield block.replace(b"\n", b"\n+")
    yield b"\n"


def pattern(path: str) -> bytes:
    """A pattern for gitattributes(5) that matches only this path."""
    escaped = re.sub(rb"([\\*?\[])", rb"\\\1", os.fsencode(path))
    quoted = re.sub(rb"[\x00-\x1f\x7f\"\\]", lambda sign: b"\\%03o" % ord(sign[0]), escaped)
    return b'"/' + quoted + b'"'


def _replace(root: int, path: str, source: Path) -> None:
    folder, _, name = path.rpartition("/")
    parent = durable_files.open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & 0o777
        os.unlink(name, dir_fd=parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, mode, dir_fd=parent)
        try:
            os.fchmod(descriptor, mode)
            with source.open("rb") as content:
                while block := content.read(BLOCK):
                    durable_files.write_all(descriptor, block)
            when = time.time() - PAST
            os.utime(descriptor, (when, when))
        finally:
            os.close(descriptor)
    finally:
        os.close(parent)
