"""Creates a commit from a work tree: selects the changes, and commits them without any hook, filter or editor.

A commit includes changed and removed tracked files, and new files that neither `.gitignore` nor the ignore list
excludes. Files that cannot or must not be committed are left out and reported, for example: files that a repository
cannot contain (FIFO, socket, device), unreadable files, files with a name that counts as `.git`, nested repositories,
files with too many holes (`HOLES`; git would read and store every zero), and files that are larger than the host
accepts. A file that is left out does not prevent the commit of the others. A commit never changes a submodule.

A commit preserves modes, renames and binary files. Paths are passed to git and read from git with `-z`, because git
otherwise quotes non-ASCII names.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from agent import clock, durable_files, filetree
from agent.gitcmd import Identity, fields_of, git
from agent.work import git_filters, refs
from agent.work.lfs import LfsTree
from agent.work.signing import UNSIGNED, Signing
from agent.work.untrusted_tree import has_git_name, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Changes = tuple[list[str], list[str]]

TRUE_STAT = ("core.checkStat=default", "core.trustctime=true")
MESSAGE_LIMIT = 20_000
MIB = 1 << 20
HOLES = 64 << 20
"""The maximum number of bytes of holes (unallocated parts) in all files of one commit together.

Git hashes and packs holes like content, and a command can create a file of terabytes at no cost.
"""
KEPT = "\u3000\u200b"
"""Non-printable characters that a commit message may contain: the ideographic space, and the zero-width space of
`security/inert_text.py`."""

_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_MARKER = re.compile(r"makimono:[0-9a-fA-F][\w-]{7,}(:[\w.-]+)?")


class Index:
    """The git index of one task.

    `uploads`: whether content of Git LFS can be uploaded; if not, such files are left out.  `largest`: the maximum
    bytes of a file that is not in Git LFS, None for no maximum.  `too_large` lists the files that `update` left out for
    their size, one line each; git never reads them.
    """

    def __init__(
        self, git_dir: Path, tree: Path, env: Mapping[str, str], *, uploads: bool = False, largest: int | None = None
    ) -> None:
        self.git_dir = git_dir
        self.tree = tree
        self.env = env
        self.uploads = uploads
        self.lfs = LfsTree(git_dir, tree, env)
        self.largest = largest
        self.too_large: list[str] = []
        self._holes = 0

    def update(self, changes: Changes | None = None) -> list[str]:
        """Update the index so that it matches the work tree; returns the files that were left out of it, one line each.

        `changes`: a result of `read_changes` for the present work tree, to avoid a second look.
        """
        removed, present = changes or self.read_changes()
        left_out: list[str] = []
        self._holes = 0
        taken = [path for path in present if self._can_be_taken(path, left_out)]
        same = self.lfs.unchanged(taken)
        taken = [path for path in taken if path not in same]
        refused = git_filters.why_not_raw(self.git_dir, self.tree, taken, self.env, lfs=self.uploads)
        left_out += [f"{shown(path)} was left out: {why}" for path, why in refused.items()]
        taken = [path for path in taken if path not in refused]
        large = set(self.lfs.files_with_content(taken)) if self.uploads else set()
        taken = self._small([path for path in taken if path not in large])
        if removed:
            self._update_index("--force-remove", paths=removed)
        if taken:
            self._update_index("--add", "--replace", paths=taken)
        self.lfs.add(sorted(large))
        return left_out + self.too_large

    def uncommitted(self, changes: Changes | None = None) -> list[str]:
        """Paths that `update` would consider for the commit. `changes` has the same meaning as in `update`."""
        removed, present = changes or self.read_changes()
        return sorted({*removed, *present} - self.lfs.unchanged(present))

    def read_changes(self) -> Changes:
        """The changes of the work tree: (removed paths, changed or new paths). A file behind a symlinked folder counts
        as removed, as git sees it."""
        options: dict[str, Any] = {"git_dir": self.git_dir, "work_tree": self.tree, "env": self.env}
        options |= {"config": TRUE_STAT, "timeout": 600}
        git("update-index", "-q", "--really-refresh", "--ignore-submodules", check=False, **options)
        raw = git("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all", **options)
        fields = fields_of(raw.output)
        removed: list[str] = []
        present: list[str] = []
        for status, path in zip(fields[::2], fields[1::2], strict=True):
            (removed if status == "D" else present).append(path)
        new = git("ls-files", "-z", "--others", "--exclude-standard", check=False, **options)
        return removed, present + fields_of(new.output)

    def _small(self, paths: list[str]) -> list[str]:
        """Those of `paths` that the host accepts; `too_large` becomes the list of the others."""
        self.too_large, small = [], []
        for path in paths:
            size = size_of(self.tree, path)
            if self.largest is None or size <= self.largest:
                small.append(path)
            else:
                self.too_large.append(
                    f"{shown(path)} has {size / MIB:,.1f} MiB and was left out, because the host takes files up to "
                    f"{self.largest / MIB:,.1f} MiB (`max_file_size`): remove it, make it smaller, name it in "
                    f".gitignore, or let a person add it with Git LFS"
                )
        return small

    def _can_be_taken(self, path: str, left_out: list[str]) -> bool:
        if has_git_name(path):
            left_out.append(f"{shown(path)} is taken for a git directory and was left out")
            return False
        if path.endswith("/"):
            left_out.append(f"{shown(path)} is a repository of its own and was left out")
            return False
        try:
            status = durable_files.stat_beneath(self.tree, path)
        except OSError:
            return False  # for example, the file was removed after it was listed: it is not committed
        if stat.S_ISLNK(status.st_mode):
            return True
        if not stat.S_ISREG(status.st_mode):
            left_out.append(f"{shown(path)} is not a regular file (FIFO, socket or device) and was left out")
            return False
        if not self._is_readable(path):
            left_out.append(f"{shown(path)} cannot be read (mode {stat.S_IMODE(status.st_mode):04o}) and was left out")
            return False
        holes = holes_of(self.tree, path, status, HOLES - self._holes)
        if self._holes + holes > HOLES:
            left_out.append(
                f"{shown(path)} has {status.st_size >> 20:,} MiB, most of them holes that no one has written, and was "
                f"left out; at most {HOLES >> 20} MiB of holes are committed: make it smaller"
            )
            return False
        self._holes += holes
        return True

    def _is_readable(self, path: str) -> bool:
        top = filetree.open_folder(self.tree)
        try:
            os.close(durable_files.open_beneath(top, path))
        except OSError:
            return False
        finally:
            os.close(top)
        return True

    def _update_index(self, *options: str, paths: list[str]) -> None:
        git(
            *("update-index", *options, "-z", "--stdin"),
            git_dir=self.git_dir,
            work_tree=self.tree,
            stdin=b"".join(os.fsencode(path) + b"\0" for path in paths),
            config=TRUE_STAT,
            env=self.env,
            timeout=600,
        )


def size_of(tree: Path, path: str) -> int:
    """The size of a regular file in bytes; 0 for any other kind of file, and for a missing one."""
    try:
        status = durable_files.stat_beneath(tree, path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def holes_of(tree: Path, path: str, status: os.stat_result, enough: int) -> int:
    """The number of bytes of holes in a regular file; counting stops above `enough`.

    Blocks that a file system compresses are not holes.
    """
    if status.st_size - status.st_blocks * 512 <= 0:
        return 0
    top = filetree.open_folder(tree)
    try:
        opened = durable_files.open_beneath(top, path)
    except OSError:
        return 0  # the file was removed in the meantime, so it has no holes
    finally:
        os.close(top)
    found = position = 0
    try:
        while found <= enough and position < status.st_size:
            start = os.lseek(opened, position, os.SEEK_HOLE)
            try:
                position = os.lseek(opened, start, os.SEEK_DATA)
            except OSError:  # the error ENXIO means a hole up to the end of the file
                position = status.st_size
            found += max(0, position - start)
    except OSError:  # for example, the file was truncated meanwhile: the sum so far is used
        pass
    finally:
        os.close(opened)
    return found


def commit(
    git_dir: Path,
    branch: str,
    parent: str | None,
    message: str,
    who: Identity,
    env: Mapping[str, str],
    signing: Signing = UNSIGNED,
    merged: str | None = None,
) -> str | None:
    """Commit the index to `branch`, which is at `parent` (None if it has no commit yet); returns the name of the new
    commit, None if nothing differs. `merged` is the second parent of a merge, which is committed even if nothing
    differs.

    git's plumbing commands make the commit, so that no hook, template or editor takes part; it is signed only with
    `signing`. The last step moves the branch and so completes the commit atomically.
    """
    tree = git("write-tree", git_dir=git_dir, env=env).output.decode().strip()
    if merged is None and parent is not None and tree == refs.tree_of(git_dir, parent):
        return None
    if parent is None and not git("ls-files", "-z", git_dir=git_dir).output:
        return None
    parents = [word for one in (parent, merged) if one for word in ("-p", one)]
    with signing.ready() as call:
        done = git(
            *("commit-tree", *call.options, *parents, "-F", "-", tree),
            git_dir=git_dir,
            stdin=clean_message(message).encode("utf-8"),
            env={**env, **who.environment(clock.now().timestamp()), **dict(call.env)},
            config=("i18n.commitEncoding=UTF-8", *call.config),
        )
    made = done.output.decode().strip()
    expected = parent or "0" * len(made)
    refs.set_ref(git_dir, f"refs/heads/{branch}", made, why="commit", expected=expected, env=env)
    return made


def clean_message(message: str) -> str:
    """A model's commit message, safe to publish: without control characters, HTML comments and this program's markers,
    and with at most MESSAGE_LIMIT characters; `Change` if nothing of it remains."""
    text = message.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    text = _MARKER.sub("", _COMMENT.sub("", text))
    text = "".join(sign for sign in text if sign in "\n\t" or (sign.isprintable() or sign in KEPT))
    lines = [line.rstrip() for line in text[:MESSAGE_LIMIT].split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return f"{text or 'Change'}\n"
