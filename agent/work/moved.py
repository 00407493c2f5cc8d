"""What others did meanwhile: to our branch, and to the one that it goes to.  Once before the work is handed in.

Somebody's commits on our branch are never lost: ours go on top of them.  A base that has moved on gets our commits on
top of it, where every commit of the branch is ours; then the checks run on what is really handed in.  A conflict
changes nothing.  It fetches and rebases; it pushes nothing (`Publisher` does).  Called by `run/delivery.py`.
Design: section 8; field facts: row 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import PushRejected, RebaseConflict
from agent.work import rebase

if TYPE_CHECKING:
    from agent.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Moved:
    """What was found.  `notes` are sentences for people, `conflicts` the paths that keep it from going onto the base,
    `base_gone` says that there is no such branch any more."""

    notes: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    base_gone: bool = False


def catch_up(workspace: Workspace, who: tuple[str, str]) -> Moved:
    """Fetch, and bring our commits on top of what came; `who` writes them.

    PushRejected when commits of somebody else on our branch cannot be kept beside ours: nothing can be pushed then.
    The errors of `Mirror.fetch`.
    """
    workspace.mirror.fetch()
    notes = (*_removed(workspace), *_onto_their_commits(workspace, who))
    base = workspace.mirror.commit_of(workspace.base)
    head = workspace.head()
    if base is None or head is None:
        return Moved(notes, base_gone=workspace.base_commit is not None)
    parted = rebase.merge_base(workspace.git_dir, base, head)
    theirs = workspace.mirror.commit_of(workspace.branch)
    is_ours = theirs in (None, workspace.state.pushed) or rebase.is_ancestor(workspace.git_dir, theirs, head)
    if parted is None or parted == base:
        return Moved(notes)
    if not is_ours or not rebase.all_of(workspace.git_dir, parted, head, who[1]):
        said = f"{workspace.base} has moved on; the branch has commits of others and was not rebased onto it"
        return Moved((*notes, said))
    if why := rebase.too_old():
        return Moved((*notes, f"{workspace.base} has moved on; the branch was not rebased onto it: {why}"))
    try:
        workspace.move_onto(base, since=parted, who=who, base_commit=base, pushed=theirs)
    except RebaseConflict as conflict:
        return Moved(notes, conflicts=conflict.paths)
    return Moved((*notes, f"{workspace.base} had moved on; the commits were rebased onto {base[:12]}"))


def _removed(workspace: Workspace) -> tuple[str, ...]:
    """A branch of ours that was pushed and is gone: from then on it counts as not pushed."""
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
            f"{', or set `branch.prefix` to another beginning' if is_new else ''}, then set the label again",
            code="branch_taken" if is_new else "branch_moved",
        )
    if why := rebase.too_old():
        raise PushRejected(
            f"somebody pushed to {branch!r} ({theirs[:12]}), and this change cannot be put on top of it: {why}. "
            f"Nothing is overwritten; set the label again to have the work done anew on top of it",
            code="branch_moved",
        )
    try:
        workspace.move_onto(theirs, since=last, who=who, pushed=theirs)
    except RebaseConflict as conflict:
        raise PushRejected(
            f"somebody pushed to {branch!r} ({theirs[:12]}) what conflicts with this change in "
            f"{', '.join(conflict.paths)}; it is not overwritten. Resolve it by hand, or set the label again to have "
            f"the work done anew on top of it",
            code="conflict",
        ) from conflict
    return (f"somebody pushed to {branch} meanwhile; the commits of this task are on top of {theirs[:12]}",)
