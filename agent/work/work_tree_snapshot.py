"""Saves and recreates the work tree of a task, so that another host can continue from the mirror and the saved files.

A saved tree consists of a small state (`tree.json`) and two patches: the task's commits against the base commit
(`committed.patch`), and the uncommitted work against the newest commit (`tree.patch`). `committed.patch` starts at the
base commit because every mirror has that commit; the task's own commits may be unpushed, or their branch may be
removed. `committed.patch` is made again only when the newest commit changes, since it may have many megabytes. The
object name of the recreated tree is compared with the saved tree's; if they differ, the recreated tree is reported as
incomplete. In a recreated tree, the branch is set to the newest of the task's commits that the mirror has; all later
work becomes an uncommitted change. Files that `.gitignore` excludes, files that are too large for a commit, and new
content of Git LFS are not saved. `worker/replicator.py` saves the work tree, and `worker/work_tree_start.py` recreates
it.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files, proc
from agent.errors import GitError, WorkError
from agent.gitcmd import git
from agent.store.replica import COMMITTED, MADE, PATCH, TREE
from agent.work import changes, gitdir, rebase, untrusted_tree
from agent.work.commit import Index, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.work.mirror import Mirror
    from agent.work.workspace import Workspace

LARGEST = 64 << 20
"""The maximum number of bytes of changed files, and of both patches together, for which work is saved."""


@dataclass(frozen=True, slots=True)
class RestoredTree:
    """The result of recreating a tree: `head` is the commit at which the task's branch is now; `lacks` is the reason
    why work is missing, "" if the tree is complete."""

    head: str | None
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class SavedTree:
    """`word` identifies the saved tree, `files` are the files to store, `lacks` is the reason why work is missing from
    it.

    `span` has the names of the base commit and of the newest commit; `committed.patch` is the difference between
    them."""

    word: str
    files: Mapping[str, bytes]
    lacks: str = ""
    span: str = ""


def save(workspace: Workspace, last: SavedTree | None = None) -> SavedTree:
    """Save the present work tree; returns `last` if it is the same tree.

    If the changes exceed LARGEST, or git fails, only the state is saved and `lacks` gives the reason.
    """
    state, head = workspace.state, workspace.head()
    said = {**asdict(state), "head": head, "tree": "", "lacks": ""}
    files: dict[str, bytes] = {}
    span = f"{workspace.base_commit} {head}"
    try:
        said["tree"] = _written(workspace)
        if last is not None and _word(said) == last.word:
            return last
        base = workspace.base_commit or changes.empty_tree(workspace.git_dir)
        if head not in (None, workspace.base_commit):
            known = last.files.get(COMMITTED) if last is not None and last.span == span else None
            files[COMMITTED] = known or _bounded(changes.patch(workspace.git_dir, base, head), LARGEST)
            base = head
        left = LARGEST - sum(map(len, files.values()))
        files[PATCH] = _bounded(changes.patch(workspace.git_dir, base, said["tree"]), left)
    except (GitError, WorkError) as error:
        files, said["tree"], said["lacks"] = {}, "", str(error)
    if last is not None and _word(said) == last.word:
        return last
    files[TREE] = orjson.dumps(said, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return SavedTree(_word(said), files, said["lacks"], span)


def _bounded(patch: Iterable[bytes], most: int) -> bytes:
    """All chunks of a patch, joined. Raises WorkError if all chunks together have more than `most` bytes."""
    kept = bytearray()
    for chunk in patch:
        kept += chunk
        if len(kept) > most:
            raise WorkError(f"the patches of the work have more than {LARGEST:,} bytes; at most that many are kept")
    return bytes(kept)


def _written(workspace: Workspace) -> str:
    """The name of a git tree object that contains all of the work; the task's index does not change."""
    index = workspace.git_dir / "replica.index"
    env = {proc.MARK: workspace.context_dir.name, "GIT_INDEX_FILE": str(index)}
    if (workspace.git_dir / "index").exists():
        with durable_files.writing(index):
            # the copied index has the file times and sizes of unchanged files, so git need not read them
            shutil.copyfile(workspace.git_dir / "index", index)
    else:
        index.unlink(missing_ok=True)  # ours
    stage = Index(workspace.git_dir, workspace.tree, env, largest=workspace.largest)
    found = stage.read_changes()
    changed = stage.uncommitted(found)
    sizes = (size_of(workspace.tree, path.rstrip("/")) for path in changed)
    size = sum(size for size in sizes if workspace.largest is None or size <= workspace.largest)
    if size > LARGEST:
        raise WorkError(f"{len(changed)} changed files have {size:,} bytes; at most {LARGEST:,} are kept")
    stage.update(found)
    return git("write-tree", git_dir=workspace.git_dir, env=env).output.decode().strip()


def _word(said: Mapping[str, Any]) -> str:
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()


def is_waiting(folder: Path) -> bool:
    """Whether the task's folder contains a saved tree from the replica that is not recreated yet."""
    return (folder / TREE).exists()


def started_at(folder: Path) -> str:
    """The commit at which the task's work began, from its git directory or from a fetched tree; "" if it has not begun,
    or that is unknown."""
    state = gitdir.read_state(folder / "git")
    if state is not None and not is_waiting(folder):
        return state.start or ""
    try:
        return str(orjson.loads((folder / TREE).read_bytes())["start"] or "")
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def mark_restored(folder: Path) -> None:
    """Remove the saved files after the tree was recreated and the model was notified."""
    for name in MADE:
        (folder / name).unlink(missing_ok=True)  # ours


def restore(workspace: Workspace, author: str) -> RestoredTree:
    """Recreate the git directory and the tree from the files in the task's folder; a call after an interruption starts
    over. If the saved state is unreadable, or the mirror lacks its base commit, the tree is created anew, without work.

    `author`: the email address with which this program commits. The caller must have fetched into the mirror just
    before.
    """
    folder = workspace.context_dir
    untrusted_tree.remove(workspace.tree)
    untrusted_tree.remove(workspace.git_dir)
    try:
        said = orjson.loads((folder / TREE).read_bytes())
        wanted, saved_head, lacks = said.pop("tree"), said.pop("head"), said.pop("lacks")
        state = gitdir.WorkspaceState(**said)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return _anew(workspace, f"what was saved of the work tree cannot be read ({error})")
    mirror = workspace.mirror
    if state.base_commit is not None and not _has(mirror, state.base_commit):
        return _anew(
            workspace, f"commit {state.base_commit[:12]}, where the work began, is not in the repository any more"
        )
    begin = gitdir.WorkspaceState(state.branch, state.base, state.base_commit, state.base_commit)
    workspace.open(begin)
    lacks = lacks or _apply(workspace, [folder / COMMITTED, folder / PATCH], wanted)
    head, pushed = _newest(mirror, state, saved_head, author)
    start = state.start if _has(mirror, state.start) else state.base_commit
    workspace.take_over("" if lacks else wanted, head, start=start, pushed=pushed)
    return RestoredTree(head, lacks)


def _anew(workspace: Workspace, why: str) -> RestoredTree:
    workspace.open()
    return RestoredTree(workspace.head(), why)


def _apply(workspace: Workspace, patches: Sequence[Path], wanted: str) -> str:
    """Create the objects of the saved tree, with a separate index; returns the reason for a failure, "" on success.

    Earlier versions of this program saved the whole work as one patch, `tree.patch`."""
    git_dir = workspace.git_dir
    env = {"GIT_INDEX_FILE": str(git_dir / "replica.index")}
    (git_dir / "replica.index").unlink(missing_ok=True)  # ours
    base = workspace.base_commit
    git("read-tree", *((base,) if base else ("--empty",)), git_dir=git_dir, env=env)
    for patch in patches:
        if not (patch.exists() and patch.stat().st_size):
            continue
        try:
            options = ("--cached", "--whitespace=nowarn", "--binary")
            git("apply", *options, "--", str(patch), git_dir=git_dir, env=env, timeout=600)
        except GitError as error:
            return f"the changes that were not committed cannot be applied ({error})"
    made = git("write-tree", git_dir=git_dir, env=env).output.decode().strip()
    (git_dir / "replica.index").unlink(missing_ok=True)  # ours
    return "" if made == wanted else "the changes that were not committed do not make what was saved"


def _newest(
    mirror: Mirror, state: gitdir.WorkspaceState, head: str | None, author: str
) -> tuple[str | None, str | None]:
    """(the commit for the task's branch, the newest commit that the remote has from this task); each may be None.

    A commit that was pushed after the last save also counts as the task's, if `author` wrote all commits after the last
    known one.
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


__all__ = ["RestoredTree", "is_waiting", "mark_restored", "restore", "save", "started_at"]
