"""Makes a clean checkout of one commit beside the task's tree, in which the repository's checks run.

The task's own tree also contains files that a push does not send: ignored files, compiled files, output of commands.  A
check that passes only because of files that are not in the commit is no evidence about the commit.  The checkout
contains only the commit and the set-up as its command left it (`setup.copy_setup`), mounted at the paths that the
task's commands use.

The files of the checkout are those of a fresh clone: the checkout has a git directory of its own, without this
program's attributes, so that git applies the line ends, `ident` and encodings of the commit's `.gitattributes`, except
encodings into which no conversion is safe (`_keep_encodings`). The task's own tree has the commit's bytes instead
(`gitdir.py`): a script that a clone gets with CRLF runs in the task's tree and fails in the checkout.

The checkout is created for one command and removed afterwards; leftovers of a killed process are removed when the
task's folder is opened again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import durable_files, treecopy
from agent.errors import WorkError
from agent.gitcmd import git
from agent.work import changes, lfs, refs, tree_encodings, untrusted_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.filetree import WalkedEntry
    from agent.work.workspace import Workspace

NAME = ".check.tmp"
COPIED = ("HEAD", "config", "packed-refs", "refs", "objects", "info", "shallow")
"""The parts of the task's git directory that a fresh clone also has."""
OURS = "info/attributes"


@dataclass(frozen=True, slots=True)
class Checkout:
    """`tree` is the folder with the files, `home` is an empty home folder; both belong to the user that runs commands.
    `git_dir` is the git directory of the tree; in it the task's branch points to the commit that is checked out."""

    workspace: Workspace
    tree: Path
    home: Path
    git_dir: Path

    def switch(self, commit: str) -> None:
        """Set the tracked files to those of `commit`, and undo all changes that a command made to them; other files
        stay, unless they occupy a path of the commit."""
        places: dict[str, Any] = {"git_dir": self.git_dir, "work_tree": self.tree, "timeout": 1800}
        if (self.git_dir / "index").exists():
            # unchanged files are written again too, since their attributes may have changed
            git("read-tree", "--reset", "-u", changes.empty_tree(self.git_dir), **places)
        self._keep_encodings(commit)
        refs.set_ref(self.git_dir, f"refs/heads/{self.workspace.branch}", commit)
        git("read-tree", "--reset", "-u", commit, **places)
        git("checkout-index", "--force", "--index", "--all", **places)
        env = {"GIT_INDEX_FILE": str(self.git_dir / "index")}
        filled = self.workspace.lfs.fill(self.tree, env)
        inside = self.workspace.gitdir_inside
        untrusted_tree.write_gitfile(self.tree, inside if inside == untrusted_tree.INSIDE else str(self.git_dir))
        self.change_owner()
        lfs.LfsTree(self.git_dir, self.tree, env).add((), filled)

    def _keep_encodings(self, commit: str) -> None:
        """Prevent git from converting files into encodings that are not safe to convert, and report these files."""
        index = self.git_dir / "encodings.index"
        found = tree_encodings.unconverted(self.git_dir, commit, index, {})
        index.unlink(missing_ok=True)  # ours
        lines = [lfs.pattern(path) + b" !working-tree-encoding\n" for path in found]
        if any(len(line) >= changes.ATTRIBUTES_LINE for line in lines):
            lines = [b"* !working-tree-encoding\n"]  # git ignores too long lines; this one matches every path
        durable_files.write_file(self.git_dir / OURS, b"".join(lines), 0o644, sync=False)
        for path, encoding in found.items():
            line = (
                f"{untrusted_tree.shown(path)}: the check ran on its UTF-8 form, since a conversion to the "
                f"`working-tree-encoding` {untrusted_tree.shown(encoding)[:40]!r} is not safe here"
            )
            if line not in self.workspace.reports:
                self.workspace.reports.append(line)

    def change_owner(self) -> None:
        """If commands run as another user, change the owner of the checkout, so that they can write to it."""
        if self.workspace.owner_uid is not None:
            untrusted_tree.change_owner(self.tree, self.workspace.owner_uid)
            untrusted_tree.change_owner(self.home, self.workspace.owner_uid)


@contextmanager
def checked_out(workspace: Workspace, commit: str) -> Iterator[Checkout]:
    """A context manager for a clean checkout of `commit`, which is removed at the end of the block."""
    place = workspace.context_dir / NAME
    untrusted_tree.remove(place)
    try:
        durable_files.make_dir(place, durable_files.passable())
        made = Checkout(
            workspace,
            durable_files.make_dir(place / "tree"),
            durable_files.make_dir(place / "home"),
            _git_dir(workspace.git_dir, place / "git"),
        )
        made.switch(commit)
        yield made
    finally:
        untrusted_tree.remove(place)


def _git_dir(source: Path, target: Path) -> Path:
    """Copy a task's git directory without its index, its attributes and the files that only this program reads."""

    def wanted(entry: WalkedEntry) -> bool:
        top = entry.path.partition("/")[0]
        return top in COPIED and entry.path != OURS and not entry.path.endswith(".lock")

    copy = treecopy.Copy()
    copy.tree(source, target, wanted=wanted)
    if copy.missed:
        raise WorkError(f"the git directory cannot be copied from {source}: {'; '.join(copy.missed[:5])}")
    return target
