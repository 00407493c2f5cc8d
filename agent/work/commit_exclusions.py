"""Determines whether a commit will include a file of the work tree, and if not, why; this is checked when a tool writes
the file, and at the delivery.

An ignore rule, a submodule's folder or a nested repository excludes a file from every commit, and git prints no message
about that. The tools check each path that they write (`why_left_out`), and the delivery compares the written files with
the commit (`left_behind`).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.gitcmd import git
from agent.work import git_filters
from agent.work.changes import SUBMODULE
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SHOWN = 20


class CommitExclusions:
    """Checks the paths of one work tree.  `lfs`: whether content of Git LFS is committed as a pointer."""

    def __init__(self, git_dir: Path, tree: Path, env: Mapping[str, str], *, lfs: bool = False) -> None:
        self._lfs = lfs
        self.tree = tree
        self.git_dir = git_dir
        self._options: dict[str, Any] = {"git_dir": git_dir, "work_tree": tree, "env": env}
        self._modules: list[str] | None = None

    def why_left_out(self, path: str) -> str:
        """The reason why no commit will contain the file `path`, as a sentence with advice; "" if nothing excludes it
        from a commit."""
        for parent in _parents(path):
            if parent in self.submodules():
                return (
                    f"it lies in {shown(parent)}, a submodule: a repository of its own, whose files are not changed "
                    "from here; put the file elsewhere"
                )
            if self._is_repository(parent):
                return (
                    f"it lies in {shown(parent)}, which is a git repository of its own ({shown(parent)}/.git); remove "
                    "that .git or put the file elsewhere"
                )
        done = git(
            *("check-ignore", "-v", "-z", "--stdin"),
            stdin=b"./" + os.fsencode(path) + b"\0",  # git would parse a leading `:` as pathspec magic
            check=False,
            paths=[path],
            # check-ignore fails with literal pathspecs.
            **{**self._options, "env": {**self._options["env"], "GIT_LITERAL_PATHSPECS": "0"}},
        )
        source, line, pattern, *_ = [*done.output.decode("utf-8", "surrogateescape").split("\0"), "", "", ""]
        if done.returncode != 0 or not pattern or pattern.startswith("!"):
            refused = git_filters.why_not_raw(self.git_dir, self.tree, [path], self._options["env"], lfs=self._lfs)
            return refused.get(path, "")
        if source == str(self.git_dir / "info" / "exclude"):
            exception = f"!{pattern}" if pattern.endswith("/") else f"!/{path}"
            return (
                f"it is on this program's own list of what builds and set-ups leave behind (`{shown(pattern)}`); a "
                f"line `{shown(exception)}` in .gitignore makes it part of the commit"
            )
        return (
            f"git ignores it ({shown(source)}, line {line}: `{shown(pattern)}`); put it elsewhere, or change that line "
            "if the file belongs in the repository"
        )

    def left_behind(self, written: Iterable[str], committed: set[str], differing: set[str]) -> list[str]:
        """The files of `written` that exist in the tree, but are missing or different in the commit; one line each, and
        after SHOWN of them one line with the number of the others."""
        found = []
        for path in dict.fromkeys(written):
            if (path in committed and path not in differing) or not self._is_file(path):
                continue
            why = self.why_left_out(path) or "git did not take it"
            found.append(f"{shown(path)} was written and is not in the commit: {why}")
        return [*found[:SHOWN], *([f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])]

    def submodules(self) -> list[str]:
        """Folders of the work tree that are submodules."""
        if self._modules is None:
            listed = git("ls-files", "-z", "--stage", **self._options).output.decode("utf-8", "surrogateescape")
            self._modules = [line.partition("\t")[2] for line in listed.split("\0") if line.startswith(SUBMODULE)]
        return self._modules

    def _is_repository(self, folder: str) -> bool:
        """Whether `folder` has a `.git` that is a file, or a folder with HEAD, objects and refs.  Git takes such a
        folder for another repository (gitrepository-layout(5)) and ignores its content."""
        with suppress(OSError):
            if stat.S_ISREG(durable_files.stat_beneath(self.tree, f"{folder}/.git").st_mode):
                return True  # a folder with a gitfile is a repository
            for name in ("HEAD", "objects", "refs"):
                durable_files.stat_beneath(self.tree, f"{folder}/.git/{name}")
            return True
        return False

    def _is_file(self, path: str) -> bool:
        with suppress(OSError):
            return stat.S_ISREG(durable_files.stat_beneath(self.tree, path).st_mode)
        return False


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
