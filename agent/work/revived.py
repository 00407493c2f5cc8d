"""The work tree of a task for a host that has none: saved at the end of each turn, made again from the mirror.

Saved are a small state (`tree.json`) and a patch of the whole work against the base commit (`tree.patch`): that commit
is in every mirror, while commits of our own may not have been pushed, or their branch may be removed.  Made again, the
tree is byte for byte the saved one (its object name is compared).  The branch stands at the newest commit of ours that
the mirror has; everything beyond is a change that is not committed.  Not saved: what `.gitignore` names, and new
content of Git LFS.  Called by `run/replicating.py` (save) and `run/task_run.py` (revive).
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import disk, proc
from agent.errors import GitError, WorkError
from agent.gitcmd import git
from agent.store.replica import PATCH, TREE
from agent.work import changes, gitdir, rebase, tree
from agent.work.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.work.mirror import Mirror
    from agent.work.workspace import Workspace

LARGEST = 64 << 20
"""Bytes of changed files, and of the patch, up to which work that is not committed is saved."""


@dataclass(frozen=True, slots=True)
class Revived:
    """What became of a saved tree: `head`, where the branch stands; `lacks`, what could not be had, "" for nothing."""

    head: str | None
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """`word` tells one saved tree from another, `files` are to be kept, `lacks` says what is not in them."""

    word: str
    files: dict[str, bytes]
    lacks: str = ""


def save(workspace: Workspace, known: str = "") -> Saved:
    """The tree as it is now, with `files` {} when its word is `known`.  Where more was changed than LARGEST, or git
    fails, `lacks` says so, and only the state is saved."""
    state, head = workspace.state, workspace.head()
    said = {**asdict(state), "head": head, "tree": "", "lacks": ""}
    files: dict[str, bytes] = {}
    try:
        said["tree"] = _written(workspace)
        if _word(said) == known:
            return Saved(known, {})
        base = workspace.base_commit or changes.empty_tree(workspace.git_dir)
        files[PATCH] = _bounded(b"".join(changes.patch(workspace.git_dir, base, said["tree"])))
    except (GitError, WorkError) as error:
        files, said["tree"], said["lacks"] = {}, "", str(error)
    if _word(said) == known:
        return Saved(known, {}, said["lacks"])
    files[TREE] = orjson.dumps(said, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return Saved(_word(said), files, said["lacks"])


def _bounded(patch: bytes) -> bytes:
    if len(patch) > LARGEST:
        raise WorkError(f"the patch of the work has {len(patch):,} bytes; at most {LARGEST:,} are kept")
    return patch


def _written(workspace: Workspace) -> str:
    """The name of the tree that all of the work makes; the index of the task stays as it is."""
    index = workspace.git_dir / "replica.index"
    env = {proc.MARK: workspace.context_dir.name, "GIT_INDEX_FILE": str(index)}
    if (workspace.git_dir / "index").exists():
        with disk.writing(index):
            shutil.copyfile(workspace.git_dir / "index", index)  # what git knows of unchanged files
    else:
        index.unlink(missing_ok=True)  # ours
    stage = Stage(workspace.git_dir, workspace.tree, env)
    found = stage.look()
    changed = stage.uncommitted(found)
    size = sum(_size(workspace.tree, path) for path in changed)
    if size > LARGEST:
        raise WorkError(f"{len(changed)} changed files have {size:,} bytes; at most {LARGEST:,} are kept")
    stage.update(found)
    return git("write-tree", git_dir=workspace.git_dir, env=env).output.decode().strip()


def _word(said: Mapping[str, Any]) -> str:
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()


def waits(folder: Path) -> bool:
    """Whether a tree in a task's folder is to be made again from what was fetched."""
    return (folder / TREE).exists()


def settled(folder: Path) -> None:
    """The tree is made, and the model knows of it."""
    for name in (TREE, PATCH):
        (folder / name).unlink(missing_ok=True)  # ours


def revive(workspace: Workspace, author: str) -> Revived:
    """Make git directory and tree from what lies in the task's folder; begun anew when it was cut off.

    `author`: the address under which this program commits.  The mirror was fetched just now.
    """
    folder = workspace.context_dir
    tree.remove(workspace.tree)
    tree.remove(workspace.git_dir)
    try:
        said = orjson.loads((folder / TREE).read_bytes())
        wanted, saved_head, lacks = said.pop("tree"), said.pop("head"), said.pop("lacks")
        state = gitdir.State(**said)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return _anew(workspace, f"what was saved of the work tree cannot be read ({error})")
    mirror = workspace.mirror
    if state.base_commit is not None and not _has(mirror, state.base_commit):
        return _anew(
            workspace, f"commit {state.base_commit[:12]}, where the work began, is not in the repository any more"
        )
    begin = gitdir.State(state.branch, state.base, state.base_commit, state.base_commit)
    workspace.open(begin)
    lacks = lacks or _apply(workspace, folder / PATCH, wanted)
    head, pushed = _newest(mirror, state, saved_head, author)
    start = state.start if _has(mirror, state.start) else state.base_commit
    workspace.take_over("" if lacks else wanted, head, start=start, pushed=pushed)
    return Revived(head, lacks)


def _anew(workspace: Workspace, why: str) -> Revived:
    workspace.open()
    return Revived(workspace.head(), why)


def _apply(workspace: Workspace, patch: Path, wanted: str) -> str:
    """Make the objects of the saved tree, in an index of its own; why not, "" when they are there."""
    git_dir = workspace.git_dir
    env = {"GIT_INDEX_FILE": str(git_dir / "replica.index")}
    (git_dir / "replica.index").unlink(missing_ok=True)  # ours
    base = workspace.base_commit
    git("read-tree", *((base,) if base else ("--empty",)), git_dir=git_dir, env=env)
    if patch.exists() and patch.stat().st_size:
        try:
            options = ("--cached", "--whitespace=nowarn", "--binary")
            git("apply", *options, "--", str(patch), git_dir=git_dir, env=env, timeout=600)
        except GitError as error:
            return f"the changes that were not committed cannot be applied ({error})"
    made = git("write-tree", git_dir=git_dir, env=env).output.decode().strip()
    (git_dir / "replica.index").unlink(missing_ok=True)  # ours
    return "" if made == wanted else "the changes that were not committed do not make what was saved"


def _newest(mirror: Mirror, state: gitdir.State, head: str | None, author: str) -> tuple[str | None, str | None]:
    """(where our branch is to stand, what the other side has of ours).

    A commit that was pushed after the last save is ours too, when all behind what we know was written by `author`.
    """
    theirs = mirror.commit_of(state.branch)
    known = next((one for one in (state.pushed, state.start, state.base_commit) if _has(mirror, one)), None)
    if theirs is not None and known is not None and _goes_on(mirror, known, theirs, author):
        return theirs, theirs
    if _has(mirror, head):
        known = head
    return known, state.pushed if _has(mirror, state.pushed) else None


def _goes_on(mirror: Mirror, known: str, theirs: str, author: str) -> bool:
    ours = theirs != known and rebase.is_ancestor(mirror.path, known, theirs)
    return ours and rebase.all_of(mirror.path, known, theirs, author)


def _has(mirror: Mirror, commit: str | None) -> bool:
    return commit is not None and rebase.has_commit(mirror.path, commit)


def _size(top: Path, path: str) -> int:
    try:
        return disk.stat_beneath(top, path.rstrip("/")).st_size
    except OSError:
        return 0


__all__ = ["Revived", "revive", "save", "settled", "waits"]
