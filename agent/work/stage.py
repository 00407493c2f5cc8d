"""From a work tree to a commit: which changes are taken, and the commit itself, without any hook, filter or editor.

What is taken: changed and removed tracked files, and new ones that neither `.gitignore` nor the ignore list names.
What cannot be a file of a repository (FIFO, socket, device), cannot be read, or is taken for `.git` is left out and
reported; nothing hangs on it.  Submodules are never touched.  Called by `Workspace.commit`.

Field facts: row 22 (staged set, modes, renames, binary), row 23 (names by -z, unquoted).
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from agent import clock, disk, filetree
from agent.gitcmd import Identity, git
from agent.work import filters
from agent.work.lfs import LfsTree
from agent.work.signing import UNSIGNED, Signing
from agent.work.tree import has_git_name, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Changes = tuple[list[str], list[str]]

TRUE_STAT = ("core.checkStat=default", "core.trustctime=true")
MESSAGE_LIMIT = 20_000
KEPT = "\u3000\u200b"
"""Signs of a message that are not printable: the wide space, and what keeps words apart (`security/inert.py`)."""

_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_MARKER = re.compile(r"makimono:[0-9a-fA-F][\w-]{7,}(:[\w.-]+)?")


class Stage:
    """The index of one task.  `uploads`: content of Git LFS can be brought to the other side; else it is
    left out."""

    def __init__(self, git_dir: Path, tree: Path, env: Mapping[str, str], *, uploads: bool = False) -> None:
        self.git_dir = git_dir
        self.tree = tree
        self.env = env
        self.uploads = uploads
        self.lfs = LfsTree(git_dir, tree, env)

    def update(self, changes: Changes | None = None) -> list[str]:
        """Make the index say what the work tree is; returns what was left out, one line each.  `changes`: what `look`
        found just now."""
        removed, present = changes or self.look()
        left_out: list[str] = []
        taken = [path for path in present if self._can_be_taken(path, left_out)]
        same = self.lfs.unchanged(taken)
        taken = [path for path in taken if path not in same]
        refused = filters.why_not_raw(self.git_dir, self.tree, taken, self.env, lfs=self.uploads)
        left_out += [f"{shown(path)} was left out: {why}" for path, why in refused.items()]
        taken = [path for path in taken if path not in refused]
        large = set(self.lfs.raw(taken)) if self.uploads else set()
        taken = [path for path in taken if path not in large]
        if removed:
            self._update_index("--force-remove", paths=removed)
        if taken:
            self._update_index("--add", "--replace", paths=taken)
        self.lfs.add(sorted(large))
        return left_out

    def uncommitted(self, changes: Changes | None = None) -> list[str]:
        """Paths that `update` would look at.  `changes` as there."""
        removed, present = changes or self.look()
        return sorted({*removed, *present} - self.lfs.unchanged(present))

    def look(self) -> Changes:
        """(removed, changed or new).  A file behind a symlinked folder is removed, as git sees it."""
        options: dict[str, Any] = {"git_dir": self.git_dir, "work_tree": self.tree, "env": self.env}
        options |= {"config": TRUE_STAT, "timeout": 600}
        git("update-index", "-q", "--really-refresh", "--ignore-submodules", check=False, **options)
        raw = git("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all", **options)
        fields = _names(raw.output)
        removed: list[str] = []
        present: list[str] = []
        for status, path in zip(fields[::2], fields[1::2], strict=True):
            (removed if status == "D" else present).append(path)
        new = git("ls-files", "-z", "--others", "--exclude-standard", check=False, **options)
        return removed, present + _names(new.output)

    def _can_be_taken(self, path: str, left_out: list[str]) -> bool:
        if has_git_name(path):
            left_out.append(f"{shown(path)} is taken for a git directory and was left out")
            return False
        if path.endswith("/"):
            left_out.append(f"{shown(path)} is a repository of its own and was left out")
            return False
        try:
            status = disk.stat_beneath(self.tree, path)
        except OSError:
            return False  # gone since it was listed
        if stat.S_ISLNK(status.st_mode):
            return True
        if not stat.S_ISREG(status.st_mode):
            left_out.append(f"{shown(path)} is not a regular file (FIFO, socket or device) and was left out")
            return False
        if not self._is_readable(path):
            left_out.append(f"{shown(path)} cannot be read (mode {stat.S_IMODE(status.st_mode):04o}) and was left out")
            return False
        return True

    def _is_readable(self, path: str) -> bool:
        top = filetree.open_folder(self.tree)
        try:
            os.close(disk.open_beneath(top, path))
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


def commit(
    git_dir: Path,
    branch: str,
    parent: str | None,
    message: str,
    who: Identity,
    env: Mapping[str, str],
    signing: Signing = UNSIGNED,
) -> str | None:
    """Commit the index onto `branch`, which is at `parent` (None: not born); None when nothing differs.

    Plumbing, so that no hook, template or editor of anybody has a part in it; signed by `signing` alone.  The last
    step, moving the branch, is the commit point.
    """
    tree = git("write-tree", git_dir=git_dir, env=env).output.decode().strip()
    if parent is not None and tree == git("rev-parse", f"{parent}^{{tree}}", git_dir=git_dir).output.decode().strip():
        return None
    if parent is None and not git("ls-files", "-z", git_dir=git_dir).output:
        return None
    with signing.ready() as call:
        done = git(
            *("commit-tree", *call.options, *(("-p", parent) if parent else ()), "-F", "-", tree),
            git_dir=git_dir,
            stdin=clean_message(message).encode("utf-8"),
            env={**env, **who.environment(clock.now().timestamp()), **dict(call.env)},
            config=("i18n.commitEncoding=UTF-8", *call.config),
        )
    made = done.output.decode().strip()
    git("update-ref", "-m", "commit", f"refs/heads/{branch}", made, parent or "0" * len(made), git_dir=git_dir, env=env)
    return made


def clean_message(message: str) -> str:
    """A commit message of a model as it may be published: text without control signs, comments or our markers."""
    text = message.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    text = _MARKER.sub("", _COMMENT.sub("", text))
    text = "".join(sign for sign in text if sign in "\n\t" or (sign.isprintable() or sign in KEPT))
    lines = [line.rstrip() for line in text[:MESSAGE_LIMIT].split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return f"{text or 'Change'}\n"


def _names(output: bytes) -> list[str]:
    return [name for name in output.decode("utf-8", "surrogateescape").split("\0") if name]
