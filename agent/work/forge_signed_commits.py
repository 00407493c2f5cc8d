"""Makes the commits of a task again through the API of the host, so that the host signs them (`commit.signing`).

1. A push to a ref of the program's own, OBJECTS, brings the blobs to the host: files of any size and mode that a push
   may have.  GitHub's API does not accept a tree or commit that only a push to OBJECTS has brought
   (renovatebot/renovate, lib/modules/platform/github/index.ts, `pushFiles`), so both are made anew.
2. For each commit, oldest first, the host makes the tree and the commit.  The host's tree must have the same hash as
   the commit's tree in the task's git directory.
3. The commit is written into the task's git directory from the text and the signature in the host's answer.  The
   written commit must have the hash that the host reports: so this process checks that it has, byte for byte, the same
   commit as the forge.

No branch moves, on this machine or at the host: the caller moves the task's branch, and pushes it like any other
branch.  If the process dies before the branch moves, the next attempt makes all commits again; the unused commits at
the host do no harm, since no ref names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeRefused, ForgeUnreachable, PushRejected
from agent.forge.commit_maker import CommitEntry
from agent.gitcmd import git
from agent.work import changes
from agent.work.push_errors import OTHER
from agent.work.rebase import HOST_COMMITTERS
from agent.work.refs import tree_of
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.forge.commit_maker import CommitMaker, MadeCommit

OBJECTS = "refs/makimono/"
"""The beginning of the ref at the host that has a task's own commits while the host makes them again; the task's uuid
follows. The ref is no branch, so rules about branches do not apply to it."""

MOST_ENTRIES = 1000
"""The maximum number of paths in one request for a tree; more are sent in several requests, each on top of the last."""

AWAY = ("gpgverify_error", "gpgverify_unavailable")
"""The reasons of an unsigned commit by which GitHub says that its signature service does not answer at the moment
(docs.github.com/en/rest/git/commits, "Signature verification object")."""


def unsigned(git_dir: Path, head: str, known: Iterable[str]) -> list[str]:
    """The commits of `head` that the host has to make, oldest first: those that cannot be reached from a commit in
    `known`, except the commits that the host has made already and that have no parent in the result."""
    command = ("rev-list", "--reverse", "--topo-order", "--parents", head, "--not", *dict.fromkeys(known))
    found: list[str] = []
    for line in git(*command, git_dir=git_dir).output.decode().splitlines():
        commit, *parents = line.split(" ")
        if not set(parents).isdisjoint(found) or not _is_of_host(git_dir, commit):
            found.append(commit)
    return found


def make_again(git_dir: Path, commits: Sequence[str], maker: CommitMaker) -> dict[str, str]:
    """Let the host make `commits`, oldest first; returns a mapping from the hash of each commit to the hash of the
    commit that the host made.

    Raises PushRejected if the host does not take a commit, makes another one, or does not sign it; ForgeUnreachable if
    the host cannot sign at the moment; the other errors of `CommitMaker`.
    """
    made: dict[str, str] = {}
    for commit in commits:
        try:
            made[commit] = _made(git_dir, commit, made, maker)
        except ForgeRefused as refused:
            raise _rejected(commit, f"GitHub's API does not take it: {refused}") from refused
    return made


def _made(git_dir: Path, commit: str, made: Mapping[str, str], maker: CommitMaker) -> str:
    head, _, message = _text(git_dir, commit).partition(b"\n\n")
    lines = head.decode("utf-8", "replace").split("\n")
    tree = next(line.removeprefix("tree ") for line in lines if line.startswith("tree "))
    parents = [line.removeprefix("parent ") for line in lines if line.startswith("parent ")]
    if not parents:
        raise _rejected(commit, "it has no parent, and GitHub's API makes no first commit of a repository")
    found = tree_of(git_dir, parents[0])
    for part in _parts(_entries(git_dir, commit, parents[0])):
        found = maker.make_tree(found, part)
    if found != tree:
        raise _rejected(commit, f"GitHub made the tree {found[:12]} for its tree {tree[:12]}")
    here = [made.get(parent, parent) for parent in parents]
    answer = maker.make_commit(message.decode("utf-8", "replace"), tree, here)
    if answer.reason in AWAY:
        raise ForgeUnreachable(f"GitHub cannot sign commit {commit[:12]} now ({answer.reason})")
    if not answer.is_verified or not answer.signature:
        raise _rejected(
            commit,
            f"GitHub did not sign it ({answer.reason}). It signs what a GitHub App makes on github.com and GHE.com; "
            f"set `commit.signing` to key",
        )
    if not answer.payload.startswith(_head(tree, here)) or not _write(git_dir, answer):
        raise _rejected(commit, f"GitHub made {answer.commit[:12]} of it, and says that its text is another one")
    return answer.commit


def _entries(git_dir: Path, commit: str, parent: str) -> list[CommitEntry]:
    """The paths in which a commit differs from its first parent."""
    command = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", *changes.PLAIN, parent, commit, "--")
    found = []
    for entry in changes.raw_entries(git(*command, git_dir=git_dir).output):
        try:
            entry.path.encode()
        except UnicodeEncodeError as error:
            said = f"the name of its file {shown(entry.path)} is not UTF-8"
            raise _rejected(commit, f"{said}, and GitHub's API takes no other") from error
        is_gone = entry.status == "D"
        mode, blob = (entry.old_mode, None) if is_gone else (entry.new_mode, entry.object)
        found.append(CommitEntry(entry.path, mode, blob))
    return found


def _parts(entries: Sequence[CommitEntry]) -> list[list[CommitEntry]]:
    """The entries in parts of at most MOST_ENTRIES; if a file takes the place of a folder, or the reverse, the parts
    with removed paths come before all others."""
    gone, put = [one for one in entries if one.object is None], [one for one in entries if one.object is not None]
    folders = {folder for one in entries for folder in _folders(one.path)}
    kinds = [gone, put] if any(one.path in folders for one in entries) else [[*gone, *put]]
    return [kind[first : first + MOST_ENTRIES] for kind in kinds for first in range(0, len(kind), MOST_ENTRIES)]


def _folders(path: str) -> list[str]:
    return [path[:place] for place, sign in enumerate(path) if sign == "/"]


def _write(git_dir: Path, answer: MadeCommit) -> bool:
    """Write the commit of the host's answer into the git directory if its hash is the one in the answer; returns
    whether the hashes are equal.

    A signature is a header after the committer; the further lines of the header begin with a space
    (gitformat-signature(5)). The signature of GitHub's own commits ends with an empty line, which an answer may lack.
    """
    head, _, message = answer.payload.partition("\n\n")
    plain = answer.signature.rstrip("\n")
    for signature in dict.fromkeys((answer.signature, f"{plain}\n", plain)):
        header = signature.replace("\n", "\n ")
        text = f"{head}\ngpgsig {header}\n\n{message}".encode("utf-8", "surrogateescape")
        command = ("hash-object", "-t", "commit", "--stdin")
        if git(*command, git_dir=git_dir, stdin=text).output.decode().strip() == answer.commit:
            git(*command, "-w", git_dir=git_dir, stdin=text)
            return True
    return False


def _head(tree: str, parents: Sequence[str]) -> str:
    """The beginning of a commit's text, up to the word `author`."""
    return "".join([f"tree {tree}\n", *(f"parent {one}\n" for one in parents), "author "])


def _is_of_host(git_dir: Path, commit: str) -> bool:
    """Whether a host has made and signed the commit."""
    head = _text(git_dir, commit).partition(b"\n\n")[0].decode("utf-8", "replace")
    committer = next((line for line in head.split("\n") if line.startswith("committer ")), "")
    return "\ngpgsig " in head and committer.rpartition("<")[2].partition(">")[0] in HOST_COMMITTERS


def _text(git_dir: Path, commit: str) -> bytes:
    return git("cat-file", "commit", commit, git_dir=git_dir).output


def _rejected(commit: str, why: str) -> PushRejected:
    return PushRejected(
        f"commit {commit[:12]} cannot be signed, and is kept in the task's folder: {why}", code=OTHER[0]
    )
