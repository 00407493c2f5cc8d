"""Reads commits and files of a repository through git, a limited number of bytes at a time (`agent/gitcmd.py`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import GitError, UsageError
from agent.gitcmd import git

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PAGE = 1000
"""Maximum number of commits that one call of git reads."""
MOST_FILES = 200
"""Maximum number of paths of a commit: `Commit.paths` is empty for a commit that touches more files.  A commit that
touches very many files (a reformatting, an import) does not show which files belong to the same change."""
LARGEST = 200 << 10
"""Maximum size in bytes of a file for its content to be read."""
CONTENT = 16 << 20
"""Maximum number of bytes of content that one call of git reads."""
TOTAL = 32 << 20
"""Maximum number of bytes of the contents of files that one call of `contents` reads."""
_BINARY = 8000


@dataclass(frozen=True, slots=True)
class HistoryCommit:
    """One commit.  `paths` is empty for a commit that touches more than MOST_FILES files."""

    sha: str
    message: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One regular file of a tree."""

    path: str
    blob: str
    size: int


class CommitReader:
    """Reads a repository, given by its git directory or by the folder that contains `.git`."""

    def __init__(self, repository: Path) -> None:
        inner = repository / ".git"
        self.git_dir = inner if inner.is_dir() else repository

    def tip(self, branch: str) -> str:
        """The commit of a branch, or of another revision if there is no branch of that name.

        The branch is looked up first, because git would prefer a tag to a branch of the same name.  Raises UsageError
        if there is neither a branch nor a revision of that name, or no repository.
        """
        if not os.path.lexists(self.git_dir / "HEAD"):
            raise UsageError(f"there is no branch or commit {branch!r}: {self.git_dir} is no git repository")
        for name in (f"refs/heads/{branch}", branch):
            wanted = ("--end-of-options", f"{name}^{{commit}}")
            done = git("rev-parse", "--verify", "--quiet", *wanted, git_dir=self.git_dir, negative=1)
            if done.returncode == 0:
                return done.output.decode().strip()
        raise UsageError(f"there is no branch or commit {branch!r} in {self.git_dir}")

    def has(self, sha: str) -> bool:
        """Whether the repository has the commit."""
        return git("cat-file", "-e", f"{sha}^{{commit}}", git_dir=self.git_dir, check=False).returncode == 0

    def new_commits(self, tip: str, known: str, limit: int) -> list[str]:
        """Hashes of the commits that are reachable from `tip` and not from `known`: at most `limit`, newest first,
        without merges. `known` has no effect if it is "" or not in the repository."""
        asked = ["rev-list", "--no-merges", f"--max-count={limit}", tip]
        if known and self.has(known):
            asked.append(f"^{known}")
        return git(*asked, git_dir=self.git_dir).output.decode().split()

    def commits(self, shas: Sequence[str]) -> Iterator[HistoryCommit]:
        """The commits with the hashes `shas`, in the same order; a commit that git cannot print is left out."""
        for at in range(0, len(shas), PAGE):
            yield from self._page(shas[at : at + PAGE])

    def _page(self, shas: Sequence[str]) -> Iterator[HistoryCommit]:
        asked = "\n".join(shas).encode()
        try:
            told = git(
                "log", "--no-walk=unsorted", "--stdin", "-z", "--format=%H%n%B", git_dir=self.git_dir, stdin=asked
            )
            touched = git(
                *("diff-tree", "--stdin", "--root", "-r", "-z", "--no-renames", "--name-only"),
                git_dir=self.git_dir,
                stdin=asked + b"\n",
            )
        except GitError:
            # If the output for a single commit exceeds the limit of `gitcmd.git`, or git cannot read the commit, the
            # result does not contain that commit.
            if len(shas) == 1:
                return
            half = len(shas) // 2
            yield from self._page(shas[:half])
            yield from self._page(shas[half:])
            return
        messages = dict(one.decode("utf-8", "replace").partition("\n")[::2] for one in told.output.split(b"\0") if one)
        paths = _paths(touched.output, shas)
        for sha in shas:
            found = paths.get(sha, [])
            yield HistoryCommit(sha, messages.get(sha, ""), tuple(found) if len(found) <= MOST_FILES else ())

    def files(self, tip: str) -> Iterator[TreeFile]:
        """The regular files in the tree of the commit `tip`."""
        listed = git("ls-tree", "-r", "-z", "-l", "--full-tree", tip, git_dir=self.git_dir).output
        for entry in listed.split(b"\0"):
            about, _, path = entry.partition(b"\t")
            fields = about.split()
            if len(fields) == 4 and fields[0] in (b"100644", b"100755") and fields[3].isdigit():
                yield TreeFile(path.decode("utf-8", "replace"), fields[2].decode(), int(fields[3]))

    def contents(self, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, str]]:
        """Pairs of each of the files and its text. The text is "" for a binary file, for a file of more than LARGEST
        bytes, and for every file after the first TOTAL bytes of all files."""
        total = 0
        page: list[TreeFile] = []
        size = 0
        for file in files:
            total += file.size
            if file.size > LARGEST or total > TOTAL:
                yield file, ""
                continue
            if size + file.size > CONTENT:
                yield from self._contents(page)
                page, size = [], 0
            page.append(file)
            size += file.size
        if page:
            yield from self._contents(page)

    def _contents(self, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, str]]:
        asked = "".join(f"{file.blob}\n" for file in files).encode()
        data = git("cat-file", "--batch", git_dir=self.git_dir, stdin=asked).output
        at = 0
        for file in files:
            head = data.index(b"\n", at)
            fields = data[at:head].split()
            size = int(fields[2]) if len(fields) == 3 else 0  # `<name> missing`
            blob = data[head + 1 : head + 1 + size]
            at = head + 1 + size + (1 if len(fields) == 3 else 0)
            yield file, "" if b"\0" in blob[:_BINARY] else blob.decode("utf-8", "replace")


def _paths(output: bytes, shas: Sequence[str]) -> dict[str, list[str]]:
    """hash of a commit → its paths, from the output of `diff-tree --stdin -z`: each hash is followed by its paths, in
    the order of `shas`."""
    found: dict[str, list[str]] = {}
    order = {sha.encode(): sha for sha in shas}
    here: list[str] = []
    for one in output.split(b"\0"):
        if one in order:
            here = found.setdefault(order.pop(one), [])
        elif one:
            here.append(one.decode("utf-8", "replace"))
    return found
