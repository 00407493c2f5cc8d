"""A clean check-out of one commit beside the task's tree, where the repository's checks run.

The task's own tree holds what no push takes along: ignored files, compiled files, what commands left.  A check that
passes because of them says nothing of the commit.  Here lies the commit and nothing else, with the set-up as its
command left it (`setup.again`), at the paths that the task's commands know.  Made for one command and removed after it;
what a killed process left is removed when the task's folder is opened again.  Called by `run/task_run.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import disk
from agent.gitcmd import git
from agent.work import tree
from agent.work.lfs import LfsTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.work.workspace import Workspace

NAME = ".check.tmp"


@dataclass(frozen=True, slots=True)
class Checkout:
    """`tree` holds files, `home` is empty; both belong to whom commands run as.  `env` names the index that goes with
    the tree, for git."""

    workspace: Workspace
    tree: Path
    home: Path
    env: Mapping[str, str]

    def switch(self, commit: str) -> None:
        """Make the tracked files those of `commit`, whatever a command did to them; others stay unless they are in the
        way."""
        places: dict[str, Any] = {"git_dir": self.workspace.git_dir, "work_tree": self.tree, "env": self.env}
        git("read-tree", "--reset", "-u", commit, timeout=1800, **places)
        git("checkout-index", "--force", "--index", "--all", timeout=1800, **places)
        filled = self.workspace.lfs.fill(self.tree, self.env)
        tree.write_gitfile(self.tree, self.workspace.gitdir_inside)
        self.give()
        LfsTree(self.workspace.git_dir, self.tree, self.env).add((), filled)

    def give(self) -> None:
        """Let commands write here."""
        if self.workspace.owner_uid is not None:
            tree.give(self.tree, self.workspace.owner_uid)
            tree.give(self.home, self.workspace.owner_uid)


@contextmanager
def checked_out(workspace: Workspace, commit: str) -> Iterator[Checkout]:
    """A clean check-out of `commit`; it is gone afterwards."""
    place = workspace.context_dir / NAME
    tree.remove(place)
    try:
        disk.make_dir(place, disk.passable())
        made = Checkout(
            workspace,
            disk.make_dir(place / "tree"),
            disk.make_dir(place / "home"),
            {"GIT_INDEX_FILE": str(place / "index")},
        )
        made.switch(commit)
        yield made
    finally:
        tree.remove(place)
