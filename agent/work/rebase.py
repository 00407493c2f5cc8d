"""Rebases the task's commits onto another commit, without a work tree, an editor, a hook or a driver.

Each rebased commit is made by a three-way merge of trees (`git merge-tree`, renames followed) and a new commit object.
A rebase changes no ref until the caller moves the branch. docs/forges.md, "Others work too", describes when a rebase
happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import RebaseConflict, WorkError
from agent.gitcmd import Identity, git, version
from agent.work.refs import tree_of
from agent.work.signing import NO_CALL, UNSIGNED, Signing, SigningOptions
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOST_COMMITTERS = frozenset({"noreply@github.com"})
"""The mail addresses of the committer of commits that a host has made."""

NEEDS = (2, 38)
"""The first version of git with `merge-tree --write-tree`.

With a version of git below NEEDS the program works, but never rebases.
"""


def too_old() -> str:
    """The reason why the git of this machine is too old to rebase, as the end of a sentence; "" if it can rebase."""
    if version() >= NEEDS:
        return ""
    found, least = (".".join(map(str, one)) for one in (version(), NEEDS))
    return f"git here is {found}, and {least} or newer is needed for it"


def has_commit(git_dir: Path, commit: str) -> bool:
    """Whether the repository has the commit `commit`."""
    return git("cat-file", "-e", f"{commit}^{{commit}}", git_dir=git_dir, check=False).returncode == 0


def is_ancestor(git_dir: Path, old: str, new: str) -> bool:
    """Whether the history of `new` contains `old`; False if one of them is missing."""
    return git("merge-base", "--is-ancestor", old, new, git_dir=git_dir, check=False).returncode == 0


def merge_base(git_dir: Path, one: str, other: str) -> str | None:
    """The last common commit of two histories, None if they have none."""
    done = git("merge-base", one, other, git_dir=git_dir, check=False)
    return done.output.decode().strip() or None


def commits(git_dir: Path, since: str, head: str) -> list[str]:
    """Commits of `head` that are not in `since`, the oldest first."""
    done = git("rev-list", "--reverse", "--topo-order", f"{since}..{head}", git_dir=git_dir)
    return done.output.decode().split()


def all_of(git_dir: Path, since: str, head: str, email: str) -> bool:
    """Whether the account with the mail address `email` committed every commit after `since`, and none is a merge.
    Commits that the forge itself made in the name of the account count as committed by the account
    (`forge_signed_commits.py`)."""
    done = git("log", "--format=%ae %ce %P", f"{since}..{head}", git_dir=git_dir)
    found = [line.split(" ") for line in done.output.decode("utf-8", "replace").splitlines()]
    return all(len(line) == 3 and _is_of(email, *line[:2]) for line in found)


def _is_of(email: str, author: str, committer: str) -> bool:
    return committer == email or (author == email and committer in HOST_COMMITTERS)


def conflicts(git_dir: Path, head: str, base: str) -> tuple[str, ...]:
    """The paths in which a merge of `base` into `head` conflicts, in printable form; () also if git is `too_old`."""
    return () if too_old() else merged_tree(git_dir, head, base)[1]


def merged_tree(git_dir: Path, head: str, base: str) -> tuple[str, tuple[str, ...]]:
    """(the tree of a merge of `base` into `head`, with conflict marks in its files; the conflicting paths in printable
    form). The conflict marks in the files contain the names by which the caller gives the two commits. Raises WorkError
    if git cannot merge the two commits at all."""
    done = git(
        *("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", head, base),
        git_dir=git_dir,
        check=False,
        timeout=600,
    )
    if done.returncode not in (0, 1):
        raise WorkError(f"git could not merge {base[:12]} into {head[:12]} (code {done.returncode})")
    tree, *paths = done.output.decode("utf-8", "surrogateescape").split("\0")
    return tree, tuple(dict.fromkeys(shown(path) for path in paths if path))


def replay(
    git_dir: Path,
    old: Sequence[str],
    onto: str,
    who: tuple[str, str],
    env: Mapping[str, str],
    signing: Signing = UNSIGNED,
) -> dict[str, str]:
    """Rebase the commits `old`, oldest first, onto `onto`; returns old name → new name.

    A commit that no longer changes anything after the rebase is left out: its new name is that of the commit below it.

    Raises RebaseConflict, which names the conflicting paths. Raises WorkError if git cannot merge a commit at all, or
    is `too_old`, which callers check first.
    """
    if why := too_old():
        raise WorkError(f"nothing was rebased: {why}")
    made: dict[str, str] = {}
    top = onto
    for commit in old:
        tree = _merged(git_dir, commit, top, env)
        if tree != tree_of(git_dir, top):
            top = _commit(git_dir, tree, top, commit, who, env, signing)
        made[commit] = top
    return made


def _merged(git_dir: Path, commit: str, top: str, env: Mapping[str, str]) -> str:
    """The tree of the commit `top` with the changes of `commit`.

    `git merge-tree` determines the common ancestor itself (passing it as an argument needs git 2.40). A temporary
    commit with the tree of `top` and the parent of `commit` makes that parent the common ancestor.
    """
    beside = _object(git_dir, tree_of(git_dir, top), f"{commit}^", "beside\n", Identity("x", "x@x").environment(0), env)
    done = git(
        *("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", beside, commit),
        git_dir=git_dir,
        env=env,
        check=False,
        timeout=600,
    )
    tree, *paths = done.output.decode("utf-8", "surrogateescape").split("\0")
    if done.returncode == 0:
        return tree
    if done.returncode != 1:
        raise WorkError(f"git could not merge {commit[:12]} onto {top[:12]} (code {done.returncode})")
    names = tuple(dict.fromkeys(shown(path) for path in paths if path))
    raise RebaseConflict(f"the changes conflict in {', '.join(names)}", paths=names)


def _commit(
    git_dir: Path, tree: str, parent: str, like: str, who: tuple[str, str], env: Mapping[str, str], signing: Signing
) -> str:
    """A commit that has the message and the time of `like`."""
    done = git("log", "-1", "--format=%at%n%B", like, git_dir=git_dir, env=env)
    when, _, message = done.output.decode("utf-8", "replace").partition("\n")
    by = Identity(*who).environment(int(when))
    with signing.ready() as call:
        return _object(git_dir, tree, parent, message.rstrip("\n") + "\n", by, env, call)


def _object(
    git_dir: Path,
    tree: str,
    parent: str,
    message: str,
    who: Mapping[str, str],
    env: Mapping[str, str],
    call: SigningOptions = NO_CALL,
) -> str:
    done = git(
        *("commit-tree", *call.options, "-p", parent, "-F", "-", tree),
        git_dir=git_dir,
        stdin=message.encode("utf-8", "replace"),
        env={**env, **who, **dict(call.env)},
        config=("i18n.commitEncoding=UTF-8", *call.config),
    )
    return done.output.decode().strip()
