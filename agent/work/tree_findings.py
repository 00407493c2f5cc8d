"""Finds what forbids the publication of a work tree and of the task's commits, before the secrets and the rules of the
policy are checked (`publish.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent import git_guard
from agent.errors import RulesRefused
from agent.gitcmd import git
from agent.work import changes, untrusted_tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.work.changes import RawChange


class TreeFindings(NamedTuple):
    """`reasons` prevent a publication; `notes` are for a person and do not prevent a publication."""

    reasons: list[str]
    notes: list[str]


def tree_findings(
    git_dir: Path, tree: Path, base: str | None, head: str | None, own: Sequence[RawChange]
) -> TreeFindings:
    """The findings about symlinks out of the tree, submodules and names that differ only in case in the task's commits,
    and about folders of the tree that cannot be read. If git must not read the tree at all (`git_guard.check_tree`),
    the reasons for that are the only findings.

    `base` is the base commit, `head` the newest commit of the task; `own` are the changes in the task's commits. A
    folder that cannot be read is a reason against a publication only if `base` or `head` has files in it. A `.git`
    below the top of the tree does no harm, since neither git nor `Index` adds it to a commit.
    """
    try:
        git_guard.check_tree(tree)
    except RulesRefused as refused:
        return TreeFindings(list(refused.findings), [])
    reasons, notes = [], []
    for folder in untrusted_tree.closed_folders(tree):
        name = f"{untrusted_tree.shown(folder)}/ cannot be looked into (its mode forbids it)"
        if any(commit and _has_files(git_dir, commit, folder) for commit in (base, head)):
            reasons.append(f"{name}; make it readable or remove it")
        else:
            notes.append(f"{name} and was left out")
    reasons += changes.mode_findings(git_dir, own)
    if new := [entry.path for entry in own if entry.status == "A"]:
        notes += changes.same_but_case(new, changes.files_at(git_dir, str(head)))
    return TreeFindings(reasons, notes)


def _has_files(git_dir: Path, commit: str, folder: str) -> bool:
    """Whether a commit has files in a folder of the tree; git sees these files as removed, because it cannot enter the
    folder."""
    return bool(git("ls-tree", "-z", commit, f"{folder}/", git_dir=git_dir).output)
