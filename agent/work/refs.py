"""Reads, moves or removes a ref of one of this program's git directories, and reads the tree of a commit; a move that
git's death interrupted is made again.

`git update-ref` cannot simply be repeated (`gitcmd.REPEATABLE`): a killed process may have moved the ref already, and
the repetition, which expects the old commit, would fail. Before a retry of `git update-ref`, `set_ref` reads the ref.
The next git process that finds the locks of a killed process removes them (`stale_git_locks.py`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent import clock, gitcmd
from agent.errors import GitError
from agent.gitcmd import git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def set_ref(
    git_dir: Path,
    ref: str,
    commit: str | None,
    *,
    why: str = "",
    expected: str | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Set `ref` (a full name) to `commit`; with None the ref is removed.

    `expected` is the commit at which the ref must be before the move, zeros if the ref must not exist; None accepts any
    commit. `why` is the text for git's reflog. Raises GitError.
    """
    reason = ("-m", why) if why else ()
    change = ((ref, commit) if commit is not None else ("-d", ref)) + ((expected,) if expected is not None else ())
    for pause in (*gitcmd.PAUSES, None):
        try:
            git("update-ref", *reason, *change, git_dir=git_dir, env=env)
        except GitError as error:
            if pause is None or not gitcmd.has_died(error):
                raise
        else:
            return
        clock.sleep(pause)
        if read_ref(git_dir, ref) == commit:
            return  # the killed process had already moved the ref


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The object at which `ref` (a full name, or HEAD) is; None if the ref does not exist."""
    if (found := loose(git_dir, ref)) is not None:
        return found
    done = git("rev-parse", "--verify", "--quiet", "--end-of-options", ref, git_dir=git_dir, negative=1)
    return done.output.decode().strip() or None


def tree_of(git_dir: Path, commit: str) -> str:
    """The object name of the tree of a commit. Raises GitError."""
    return git("rev-parse", f"{commit}^{{tree}}", git_dir=git_dir).output.decode().strip()


def loose(git_dir: Path, ref: str) -> str | None:
    """The object at which `ref` is, from the file that git writes for a ref that was moved; None if only git can say it
    (the ref is packed, does not exist, or has another format).

    A task reads its HEAD about forty times, and a git process takes some milliseconds. The file of a ref has precedence
    over `packed-refs`, and git replaces it by a rename, so that it is always complete (gitrepository-layout(5)).
    """
    for _ in range(2):  # the second pass reads the branch that HEAD names
        if ".." in ref or not re.fullmatch(r"HEAD|refs/.+", ref):
            return None
        try:
            text = (git_dir / ref).read_text("utf-8", "surrogateescape")
        except (OSError, ValueError):
            return None
        if re.fullmatch(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\n", text):
            return text[:-1]
        if not text.startswith("ref: refs/heads/"):
            return None
        ref = text.removeprefix("ref: ").removesuffix("\n")
    return None


__all__ = ["loose", "read_ref", "set_ref"]
