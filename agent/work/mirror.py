"""The bare mirror of one repository, shared by every task that works on it.

`base_dir/repos/{host}/{owner}/{repo}.git`: all branches and tags as the other side has them, fetched under a flock.
Tasks borrow its objects, so that none is ever dropped: `gc.auto` is 0, and packs are only joined.  A branch that was
moved by force moves here too, one that is gone goes, its commits stay.  Not a work tree: `Workspace` makes those.
Called by `run/handler.py`.  Design: section 4; field facts: row 21 and "Large repositories".
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agent import disk, filetree
from agent.errors import BaseMissing, WorkError
from agent.gitcmd import git
from agent.sandbox import account
from agent.work import tree
from agent.work.remote import Listing, Login, Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FOLDER = "repos"
"""Below base_dir: every mirror."""

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

MANY_PACKS = 40
"""From so many packs on they are joined: every fetch leaves one, and each costs a look-up."""


class Mirror:
    """The mirror of `url`.

    `owner` may have slashes (groups).  `credentials` is asked at every call to the other side and returns
    (user, token) or None; `renew` is called when they were refused.  `env` is added to git's environment (proxies).
    """

    def __init__(
        self,
        base_dir: Path,
        host: str,
        owner: str,
        repo: str,
        url: str,
        *,
        credentials: Callable[[], Login | None] | None = None,
        renew: Callable[[], object] | None = None,
        ca_file: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.remote = Remote(url, credentials=credentials, renew=renew, ca_file=ca_file, env=env)
        parts = [_name(host), *(_name(part) for part in owner.split("/") if part)]
        self.base_dir = Path(base_dir).absolute()
        self.path = self.base_dir.joinpath(FOLDER, *parts, f"{_name(repo, last=True)}.git")
        self._lock = self.path.with_name(f".{self.path.name}.lock")

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self.remote.url

    def fetch(self, refs: Sequence[str] = ()) -> None:
        """Bring the mirror up to date, with `refs` beside branches and tags; makes it when there is none.

        BaseMissing when one of `refs` is not there and never was here, RepositoryMissing when nothing is at the
        address, GitError when the other side cannot be reached.  Asks for the list of branches first and transfers
        nothing when it is the same.
        """
        listing = self.remote.list(refs)
        with self.locked() as lock:
            self._make("sha256" if any(len(commit) == 64 for commit in listing.refs.values()) else "sha1")
            with disk.writing(self.path):
                os.utime(self.path / "made")  # the last use, by which `cleanup` judges
            _remove_locks(self.path)
            here, there = self._refs(refs), dict(listing.refs)
            if lost := [ref for ref in refs if ref not in there and ref not in here]:
                raise BaseMissing(f"{lost[0]} does not exist in {self.url}; was the pull request removed?")
            kept = {ref: here[ref] for ref in refs if ref not in there}
            if there | kept != here:
                more = tuple(f"+{ref}:{ref}" for ref in refs if ref in there)
                self.remote.fetch(self.path, (*REFSPECS, *more), pass_fds=(lock,))
                self._join_packs(lock)
            head = f"ref: refs/heads/{_default(listing) or 'main'}\n".encode()
            if (self.path / "HEAD").read_bytes() != head:  # git itself would not sync it
                disk.write_file(self.path / "HEAD", head, 0o644 if os.geteuid() == 0 else 0o600)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the mirror's lock; yields its descriptor, for children that must not outlive it."""
        folder = self.base_dir
        disk.make_dir(folder, disk.passable())
        for part in self.path.parent.relative_to(folder).parts:
            folder = disk.make_dir(folder / part, disk.passable())
            if part == FOLDER:
                keep_from_others(folder)
        with disk.locked(self._lock) as descriptor:
            yield descriptor

    def default_branch(self) -> str | None:
        """The branch that the other side's HEAD names, as of the last `fetch`; None when no branch is there."""
        done = git("symbolic-ref", "--short", "HEAD", git_dir=self.path)
        name = _text(done.output)
        return name if self.commit_of(name) is not None else None

    def head_name(self) -> str:
        """The name HEAD has here, also when the repository is empty (then "main")."""
        return _text(git("symbolic-ref", "--short", "HEAD", git_dir=self.path).output)

    def commit_of(self, branch: str) -> str | None:
        """The commit of a branch, None when there is no such branch."""
        done = git("show-ref", "--verify", "--hash", f"refs/heads/{branch}", git_dir=self.path, check=False)
        return _text(done.output) or None if done.returncode == 0 else None

    def branches(self) -> list[str]:
        """Names of all branches, sorted."""
        done = git("for-each-ref", "--format=%(refname)", "refs/heads/", git_dir=self.path)
        return sorted(line.removeprefix("refs/heads/") for line in _text(done.output).splitlines())

    def is_empty(self) -> bool:
        """Whether the repository has no branch at all."""
        return not self.branches()

    def _make(self, object_format: str) -> None:
        """Make the bare repository; one that was cut off before its first fetch is made anew."""
        if (self.path / "made").exists():
            return
        if not any(self.path.glob("objects/pack/*.pack")):
            tree.remove(self.path)
        root = os.geteuid() == 0
        git("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", "--", str(self.path))
        config = (self.path / "config").read_bytes() + _CONFIG.format(mode="0644" if root else "0600").encode()
        disk.write_file(self.path / "config", config)
        open_up(self.path, readable=root)
        disk.sync_tree(self.path)
        disk.write_file(self.path / "made", b"", 0o644 if root else 0o600)

    def _refs(self, more: Sequence[str] = ()) -> dict[str, str]:
        where = ("refs/heads/", "refs/tags/", *more)
        done = git("for-each-ref", "--format=%(objectname)%09%(refname)", *where, git_dir=self.path)
        pairs = (line.split("\t", 1) for line in _text(done.output).splitlines())
        return {name: commit for commit, name in pairs}

    def _join_packs(self, lock: int) -> None:
        """Join small packs into larger ones.  Geometric: every object of the old packs is in the new one, reachable or
        not, so that nothing a task borrows is lost."""
        if len(list((self.path / "objects" / "pack").glob("*.pack"))) <= MANY_PACKS:
            return
        git("repack", "--geometric=2", "-d", "-q", git_dir=self.path, timeout=3600, pass_fds=(lock,))


def _default(listing: Listing) -> str | None:
    """The default branch.  HEAD may name a branch that is not there, or none (detached): then the branch at the same
    commit, `main`, `master`, or the only one."""
    branches = listing.branches()
    if listing.head in branches:
        return listing.head
    usual = [name for name in ("main", "master") if name in branches]
    same = [name for name, commit in branches.items() if commit == listing.head_commit]
    for choice in (*(name for name in usual if name in same), *same[:1], *usual):
        return choice
    return next(iter(branches)) if len(branches) == 1 else None


def _name(text: str, *, last: bool = False) -> str:
    """One folder name for any text: what is not plain is written %XX; no leading dot, and no `.git` at the end of an
    owner, which would put one mirror inside another."""
    name = re.sub(r"[^\w.@+-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)
    if name.startswith(".") or not name:
        name = f"%2E{name[1:]}"
    if not last and name.lower().endswith(".git"):
        name = f"{name[:-4]}%2E{name[-3:]}"
    if len(name.encode()) > 240:
        raise WorkError(f"{text!r} is too long for a folder name")
    return name


def keep_from_others(folder: Path) -> None:
    """Let no other user into the folder of mirrors: their names can be guessed, and commands have to read them.

    A file system that knows no groups leaves it as it is.
    """
    if os.geteuid() == 0:
        with suppress(OSError):
            account.share(folder, account.readers())


def _remove_locks(git_dir: Path) -> None:
    """Remove lock files of a git that was killed.  Only under the flock: every git that works here inherits it."""
    for pattern in ("*.lock", "refs/**/*.lock", "objects/info/*.lock"):
        for stale in git_dir.glob(pattern):
            stale.unlink(missing_ok=True)  # ours


def open_up(top: Path, *, readable: bool) -> None:
    """Set the modes below a git directory: readable by everybody (commands run under another uid) or by us alone."""
    for_folders, for_files = (0o755, 0o644) if readable else (0o700, 0o600)
    with disk.writing(top):
        filetree.grant(top, None, for_folders, only=True)
        for entry in filetree.walk(top, repair=True):
            if not entry.left:
                mode = for_folders if entry.is_folder else for_files
                filetree.grant(entry.name, entry.folder, mode, only=True)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape").strip("\n")
