"""A clean checkout of one commit beside the task's tree, in which the repository's checks run.

The task's own tree also contains files that a push does not send: ignored files, compiled files, output of commands.  A
check that passes because of them is no evidence about the commit.  The checkout contains only the commit and the set-up
as its command left it (`setup.copy_setup`), mounted at the paths that the task's commands use.  The checkout is created
for one command and removed afterwards; leftovers of a killed process are removed when the task's folder is opened
again.  `worker/command_runner.py` calls this module.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.gitcmd import git
from agent.work import untrusted_tree
from agent.work.lfs import LfsTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.work.workspace import Workspace

NAME = ".check.tmp"


@dataclass(frozen=True, slots=True)
class Checkout:
    """`tree` holds the files, `home` is empty; both belong to the user that runs commands.

    `env` tells git which index belongs to the tree.
    """

    workspace: Workspace
    tree: Path
    home: Path
    env: Mapping[str, str]

    def switch(self, commit: str) -> None:
        """Set the tracked files to those of `commit`, and undo all changes that a command made to them; other files
        stay, unless they occupy a path of the commit."""
        places: dict[str, Any] = {"git_dir": self.workspace.git_dir, "work_tree": self.tree, "env": self.env}
        git("read-tree", "--reset", "-u", commit, timeout=1800, **places)
        git("checkout-index", "--force", "--index", "--all", timeout=1800, **places)
        filled = self.workspace.lfs.fill(self.tree, self.env)
        untrusted_tree.write_gitfile(self.tree, self.workspace.gitdir_inside)
        self.give()
        LfsTree(self.workspace.git_dir, self.tree, self.env).add((), filled)

    def give(self) -> None:
        """Make the checkout writable for commands."""
        if self.workspace.owner_uid is not None:
            untrusted_tree.give(self.tree, self.workspace.owner_uid)
            untrusted_tree.give(self.home, self.workspace.owner_uid)


@contextmanager
def checked_out(workspace: Workspace, commit: str) -> Iterator[Checkout]:
    """A clean checkout of `commit`, removed at the end of the context."""
    place = workspace.context_dir / NAME
    untrusted_tree.remove(place)
    try:
        durable_files.make_dir(place, durable_files.passable())
        made = Checkout(
            workspace,
            durable_files.make_dir(place / "tree"),
            durable_files.make_dir(place / "home"),
            {"GIT_INDEX_FILE": str(place / "index")},
        )
        made.switch(commit)
        yield made
    finally:
        untrusted_tree.remove(place)
