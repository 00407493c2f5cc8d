"""Detects changes that others made during the task, to the task's branch and to its base branch.

Each delivery looks once for changes that others made, before it publishes.

Commits of other authors on the task's branch are never lost: the task's commits are rebased onto them, or the delivery
ends with PushRejected. If the base branch has moved, the task's commits are rebased onto it, provided that the task
wrote every commit of its branch, that none is a merge, and that git is new enough; the checks then run on exactly the
commits that are delivered. If a rebase would conflict, the task's commits stay unchanged. `concurrent_changes.py`
fetches and rebases, but pushes nothing; `Publisher` pushes. docs/forges.md, "Others work too", describes the cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.errors import PushRejected, RebaseConflict
from agent.work import rebase

if TYPE_CHECKING:
    from agent.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ConcurrentChanges:
    """What other people changed in the base branch and in the task's branch, as `catch_up` found it.

    `notes` are sentences for people, `conflicts` the paths in which the base branch conflicts with the task's branch,
    `base_gone` is True if the base branch no longer exists, `removed` is True if somebody removed the pushed branch.
    """

    notes: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    base_gone: bool = False
    removed: bool = False


def catch_up(workspace: Workspace, who: tuple[str, str]) -> ConcurrentChanges:
    """Fetch from the remote, and rebase the task's commits onto new commits; `who` is their committer.

    Raises PushRejected if the task's branch on the remote has commits with which the task's cannot be combined: then no
    push is possible. `catch_up` also raises the errors of `Mirror.fetch`.
    """
    workspace.mirror.fetch()
    removed = _removed(workspace)
    return replace(_catch_up(workspace, who, removed), removed=bool(removed))


def _catch_up(workspace: Workspace, who: tuple[str, str], removed: tuple[str, ...]) -> ConcurrentChanges:
    notes = (*removed, *_onto_their_commits(workspace, who))
    base = workspace.mirror.commit_of(workspace.base)
    head = workspace.head()
    if base is None or head is None:
        return ConcurrentChanges(notes, base_gone=workspace.base_commit is not None)
    parted = rebase.merge_base(workspace.git_dir, base, head)
    theirs = workspace.mirror.commit_of(workspace.branch)
    is_ours = theirs in (None, workspace.state.pushed) or rebase.is_ancestor(workspace.git_dir, theirs, head)
    if parted is None or parted == base:
        return ConcurrentChanges(notes)
    if not is_ours or not rebase.all_of(workspace.git_dir, parted, head, who[1]):
        if paths := rebase.conflicts(workspace.git_dir, head, base):
            return ConcurrentChanges(notes, conflicts=paths)
        said = f"{workspace.base} has moved on; the branch has commits of others and was not rebased onto it"
        return ConcurrentChanges((*notes, said))
    if why := rebase.too_old():
        return ConcurrentChanges((*notes, f"{workspace.base} has moved on; the branch was not rebased onto it: {why}"))
    try:
        workspace.move_onto(base, since=parted, who=who, base_commit=base, pushed=theirs)
    except RebaseConflict as conflict:
        return ConcurrentChanges(notes, conflicts=conflict.paths)
    return ConcurrentChanges((*notes, f"{workspace.base} had moved on; the commits were rebased onto {base[:12]}"))


def _removed(workspace: Workspace) -> tuple[str, ...]:
    """If the pushed branch was removed on the remote, mark it in the state as not pushed; returns a sentence about that
    for people."""
    if workspace.state.pushed is None or workspace.mirror.commit_of(workspace.branch) is not None:
        return ()
    workspace.update_state(pushed=None)
    return (f"somebody had removed the branch {workspace.branch}",)


def _onto_their_commits(workspace: Workspace, who: tuple[str, str]) -> tuple[str, ...]:
    git_dir, branch, state = workspace.git_dir, workspace.branch, workspace.state
    theirs, head = workspace.mirror.commit_of(branch), workspace.head()
    if theirs is None or head is None or theirs == state.pushed:
        return ()
    if rebase.is_ancestor(git_dir, theirs, head) or rebase.is_ancestor(git_dir, head, theirs):
        return ()
    last = state.pushed or state.start
    if last is None or not (rebase.is_ancestor(git_dir, last, theirs) and rebase.is_ancestor(git_dir, last, head)):
        is_new = state.pushed is None and state.start == state.base_commit
        raise PushRejected(
            f"the branch {branch!r} {'is taken' if is_new else 'was moved by somebody'}: it is at {theirs[:12]}, which "
            f"has nothing to do with this task. It is not overwritten; remove or rename it"
            f"{', or set `branch.prefix` to another beginning' if is_new else ''}, then ask for it again",
            code="branch_taken" if is_new else "branch_moved",
        )
    if why := rebase.too_old():
        raise PushRejected(
            f"somebody pushed to {branch!r} ({theirs[:12]}), and this change cannot be put on top of it: {why}. "
            f"Nothing is overwritten; ask for it again to have the work done anew on top of it",
            code="branch_moved",
        )
    try:
        workspace.move_onto(theirs, since=last, who=who, pushed=theirs)
    except RebaseConflict as conflict:
        raise PushRejected(
            f"somebody pushed to {branch!r} ({theirs[:12]}) what conflicts with this change in "
            f"{', '.join(conflict.paths)}; it is not overwritten. Resolve it by hand, or ask for it again to have "
            f"the work done anew on top of it",
            code="conflict",
        ) from conflict
    return (f"somebody pushed to {branch} meanwhile; the commits of this task are on top of {theirs[:12]}",)
