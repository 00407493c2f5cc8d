"""Chooses the branch and the commits from which a new workspace starts, from what its mirror has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import BaseMissing, WorkError
from agent.gitcmd import git
from agent.work import untrusted_tree
from agent.work.gitdir import WorkspaceState

if TYPE_CHECKING:
    from agent.work.mirror import Mirror


def first_state(mirror: Mirror, branch: str, base: str | None, start_at: str | None) -> WorkspaceState:
    """The state of a new workspace with the new branch `branch`; in an empty repository it starts without a commit.

    `base`: the branch from which the task starts (None means the default branch). `start_at`: a branch or commit of the
    mirror at which to start instead of the base. Raises BaseMissing if the base, or what `start_at` names, does not
    exist. Raises WorkError if `branch` cannot be the name of a branch.
    """
    checked = git("check-ref-format", f"refs/heads/{branch}", negative=1)
    if checked.returncode != 0 or branch.startswith("-"):
        raise WorkError(f"{branch!r} is not the name of a branch")
    base = base or mirror.default_branch()
    if mirror.is_empty():
        return WorkspaceState(branch, base or mirror.head_name(), None, None)
    tip = mirror.commit_of(base) if base else None
    if base is None or tip is None:
        raise BaseMissing(_base_missing(mirror, base))
    start, base_commit = tip, tip
    if start_at:
        start = mirror.commit_of(start_at) or _known_commit(mirror, start_at)
        merged = git("merge-base", tip, start, git_dir=mirror.path, negative=1)
        base_commit = merged.output.decode().strip() or tip
    return WorkspaceState(branch, base, base_commit, start)


def _base_missing(mirror: Mirror, base: str | None) -> str:
    names = mirror.branches()
    more = f" and {len(names) - untrusted_tree.SHOWN} more" if len(names) > untrusted_tree.SHOWN else ""
    known = untrusted_tree.first_shown(names) + more
    if base is None:
        return f"{mirror.url} has no default branch; name one as `base` in the issue. Branches: {known}"
    return (
        f"base branch {base!r} does not exist in {mirror.url}; make it, make another one the default branch, "
        f"or name one as `base` in the issue. There are: {known}"
    )


def _known_commit(mirror: Mirror, name: str) -> str:
    done = git(
        *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"),
        git_dir=mirror.path,
        negative=1,
    )
    if done.returncode != 0:
        raise BaseMissing(f"{name!r}, where the work was to go on, is neither a branch nor a commit of {mirror.url}")
    return done.output.decode().strip()
