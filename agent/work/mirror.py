"""The bare mirror of one repository, which every task that works on the repository shares.

`base_dir/repos/{host}/{owner}/{repo}.git` has all branches and tags of the remote, fetched under a flock.  Tasks borrow
objects of the mirror, so git deletes no object as long as the mirror exists: `gc.auto` is 0, and packs are only
combined.  A branch that was force-pushed on the remote moves in the mirror too, and a removed branch is removed; the
old commits stay.  The mirror has no work tree; `Workspace` creates the work trees.  docs/operations.md, "Cleanup
(cron)" describes how mirrors are removed.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agent import durable_files, filetree
from agent.errors import BaseMissing, RemoteAway, WorkError
from agent.gitcmd import git
from agent.sandbox import sandbox_user
from agent.work import refs, untrusted_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.work.remote import Listing, Remote

FOLDER = "repos"
"""The name of the folder below base_dir that has all mirrors."""

REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_CONFIG = """\
[core]
	sharedRepository = {mode}
	fsync = committed,reference
[gc]
	auto = 0
	pruneExpire = never
[maintenance]
	auto = false
"""

LONGEST_NAME = 240
"""The maximum bytes of a folder's name: a file system takes 255, and git adds to the name (`.lock`)."""

MANY_PACKS = 40
"""A mirror with more packs than this gets them combined: every fetch adds a pack, and each pack slows down object
look-ups."""


class Mirror:
    """The mirror of the repository at `url`.

    `owner` may contain slashes (groups of GitLab). `credentials` is called before every request to the remote and
    returns (user, token) or None; `renew` is called after a refused login. `env` is added to the environment of git
    (for example proxies). `is_default_guessed`: at the last `fetch` of this process the remote's HEAD named no existing
    branch, so `default_branch` is a guess.
    """

    is_default_guessed = False

    def __init__(
        self,
        base_dir: Path,
        host: str,
        owner: str,
        repo: str,
        remote: Remote,
    ) -> None:
        self.remote = remote
        parts = [_name(host), *(_name(part) for part in owner.split("/") if part)]
        self.base_dir = Path(base_dir).absolute()
        self.path = self.base_dir.joinpath(FOLDER, *parts, f"{_name(repo, last=True)}.git")
        self._lock = self.path.with_name(f".{self.path.name}.lock")

    @property
    def url(self) -> str:
        """The address of the repository, without credentials."""
        return self.remote.url

    def fetch(self, refs: Sequence[str] = ()) -> None:
        """Update the mirror by a fetch, with `refs` in addition to branches and tags; the mirror is created if it does
        not exist.

        Raises BaseMissing if one of `refs` does not exist on the remote and never existed in the mirror,
        RepositoryMissing if there is no repository at the address, GitError if the remote cannot be reached.  A
        call of `fetch` first requests the list of refs, and transfers nothing if the list is unchanged.
        """
        listing = self.remote.list(refs)
        self.is_default_guessed = listing.head not in listing.branches()
        with self.locked() as lock:
            is_long = any(len(commit) == 64 for commit in listing.refs.values())
            self._create_repository("sha256" if is_long else "sha1", lock)
            with durable_files.writing(self.path):
                os.utime(self.path / "made")  # the time of the last use, which `cleanup` reads
            _remove_locks(self.path)
            here, there = self._refs(refs), dict(listing.refs)
            if lost := [ref for ref in refs if ref not in there and ref not in here]:
                raise BaseMissing(f"{lost[0]} does not exist in {self.url}; was the request with it removed?")
            kept = {ref: here[ref] for ref in refs if ref not in there}
            if there | kept != here:
                self._remove_refs(here.keys() - there.keys() - kept.keys(), lock)
                more = tuple(f"+{ref}:{ref}" for ref in refs if ref in there)
                self.remote.fetch(self.path, (*REFSPECS, *more), pass_fds=(lock,))
                self._check_fetched(here, there, refs)
                self._join_packs(lock)
            head = f"ref: refs/heads/{_default(listing) or 'main'}\n".encode()
            if (self.path / "HEAD").read_bytes() != head:  # git itself does not sync HEAD to disk
                durable_files.write_file(self.path / "HEAD", head, 0o644 if os.geteuid() == 0 else 0o600)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """A context manager that holds the mirror's lock; it yields the lock's descriptor, which git processes inherit
        so that the lock lasts until they end."""
        folder = self.base_dir
        durable_files.make_dir(folder, durable_files.passable())
        for part in self.path.parent.relative_to(folder).parts:
            folder = durable_files.make_dir(folder / part, durable_files.passable())
            if part == FOLDER:
                keep_from_others(folder)
        with durable_files.locked(self._lock) as descriptor:
            yield descriptor

    def default_branch(self) -> str | None:
        """The default branch that the last `fetch` determined, perhaps by a guess; None if it determined none."""
        name = self.head_name()
        return name if self.commit_of(name) is not None else None

    def head_name(self) -> str:
        """The branch name in HEAD of the mirror, even if the repository is empty (then "main").

        `--short` is not used: with a tag of the same name it gives `heads/main`.
        """
        return _text(git("symbolic-ref", "HEAD", git_dir=self.path).output).removeprefix("refs/heads/")

    def commit_of(self, branch: str) -> str | None:
        """The commit of a branch, None if the branch does not exist."""
        return self.commit_at(f"refs/heads/{branch}")

    def commit_at(self, ref: str) -> str | None:
        """The commit of the mirror's ref with the full name `ref` (`refs/pull/7/head`), None if the ref does not
        exist."""
        if (found := refs.loose(self.path, ref)) is not None:
            return found
        # for-each-ref succeeds without output if there is no such ref; show-ref fails then as if it could not read
        found = _text(git("for-each-ref", "--format=%(objectname) %(refname)", ref, git_dir=self.path).output)
        return next(
            (commit for commit, _, name in (line.partition(" ") for line in found.splitlines()) if name == ref), None
        )

    def branches(self) -> list[str]:
        """Names of all branches of the mirror, sorted."""
        done = git("for-each-ref", "--format=%(refname)", "refs/heads/", git_dir=self.path)
        return sorted(line.removeprefix("refs/heads/") for line in _text(done.output).splitlines())

    def is_empty(self) -> bool:
        """Whether the repository has no branch."""
        return not self.branches()

    def _create_repository(self, object_format: str, lock: int) -> None:
        """Create the bare repository; if the creation of a repository was interrupted before its first fetch, it is
        created again."""
        if (self.path / "made").exists():
            return
        if not any(self.path.glob("objects/pack/*.pack")):
            untrusted_tree.remove(self.path)
        root = os.geteuid() == 0
        argv = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", "--", str(self.path))
        git(*argv, pass_fds=(lock,))
        config = (self.path / "config").read_bytes() + _CONFIG.format(mode="0644" if root else "0600").encode()
        durable_files.write_file(self.path / "config", config)
        open_up(self.path, readable=root)
        durable_files.sync_tree(self.path)
        durable_files.write_file(self.path / "made", b"", 0o644 if root else 0o600)

    def _refs(self, more: Sequence[str] = ()) -> dict[str, str]:
        where = ("refs/heads/", "refs/tags/", *more)
        done = git("for-each-ref", "--format=%(objectname)%09%(refname)", *where, git_dir=self.path)
        pairs = (line.split("\t", 1) for line in _text(done.output).splitlines())
        return {name: commit for commit, name in pairs}

    def _remove_refs(self, names: Iterable[str], lock: int) -> None:
        """Remove refs from the mirror that the remote no longer has.

        Git's own option `--prune` is not used: it removes every branch when a page is taken for an empty repository
        (`http_server_check.py`).
        """
        lines = "".join(f"delete {name}\n" for name in sorted(names))
        if lines:
            text = lines.encode("utf-8", "surrogateescape")
            git("update-ref", "--stdin", git_dir=self.path, stdin=text, pass_fds=(lock,))

    def _check_fetched(self, before: Mapping[str, str], there: Mapping[str, str], more: Sequence[str]) -> None:
        """Raise RemoteAway if a ref of the remote is not in the mirror after a fetch, or was not moved by it."""
        now = self._refs(more)
        for name, commit in there.items():
            if now.get(name) != commit and now.get(name) in (None, before.get(name)):
                raise RemoteAway(f"{self.url} has {name} at {commit[:12]}, and a fetch that succeeded did not bring it")

    def _join_packs(self, lock: int) -> None:
        """Combine small packs of the mirror into larger ones. With `--geometric`, the new pack contains every object of
        the old packs, reachable or not, so that tasks lose no borrowed object."""
        if len(list((self.path / "objects" / "pack").glob("*.pack"))) <= MANY_PACKS:
            return
        git("repack", "--geometric=2", "-d", "-q", git_dir=self.path, timeout=3600, pass_fds=(lock,))


def _default(listing: Listing) -> str | None:
    """The default branch of a remote.

    The remote's HEAD may name a missing branch, or none (detached).  If HEAD names no existing branch, the default
    branch is one at HEAD's commit (preferably `main` or `master`), else `main`, `master`, or the only branch.
    """
    branches = listing.branches()
    if listing.head in branches:
        return listing.head
    usual = [name for name in ("main", "master") if name in branches]
    same = [name for name, commit in branches.items() if commit == listing.head_commit]
    for choice in (*(name for name in usual if name in same), *same[:1], *usual):
        return choice
    return next(iter(branches)) if len(branches) == 1 else None


def _name(text: str, *, last: bool = False) -> str:
    """A folder name for any text, in which unusual characters are written as %XX.

    The name has no leading dot, and the name of an owner does not end in `.git`, which would place one mirror inside
    another.
    """
    if len(text) > LONGEST_NAME:
        raise WorkError(f"{text[:LONGEST_NAME]!r}… is too long for a folder name")
    name = re.sub(r"[^\w.@+-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)
    if name.startswith(".") or not name:
        name = f"%2E{name[1:]}"
    if not last and name.lower().endswith(".git"):
        name = f"{name[:-4]}%2E{name[-3:]}"
    if len(name.encode()) > LONGEST_NAME:
        raise WorkError(f"{text!r} is too long for a folder name")
    return name


def keep_from_others(folder: Path) -> None:
    """Deny other users access to the folder of mirrors: the names of mirrors can be guessed, and the modes of mirrors
    let commands read them.

    The access to the folder stays as it is if the file system has no groups, or if this process is not root.
    """
    if os.geteuid() == 0:
        with suppress(OSError):
            sandbox_user.share(folder, sandbox_user.readers())


def _remove_locks(git_dir: Path) -> None:
    """Remove lock files that a killed git process left.

    The caller holds the flock, which each git process inherits that changes the mirror.
    """
    for pattern in ("*.lock", "refs/**/*.lock", "objects/info/*.lock"):
        for stale in git_dir.glob(pattern):
            stale.unlink(missing_ok=True)  # ours


def open_up(top: Path, *, readable: bool) -> None:
    """Set the modes of files below a git directory: readable for everyone (commands run under another uid), or only for
    this user."""
    for_folders, for_files = (0o755, 0o644) if readable else (0o700, 0o600)
    with durable_files.writing(top):
        filetree.grant(top, None, for_folders, only=True)
        for entry in filetree.walk(top, repair=True):
            if not entry.left:
                mode = for_folders if entry.is_folder else for_files
                filetree.grant(entry.name, entry.folder, mode, only=True, seen=entry.status)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape").strip("\n")
