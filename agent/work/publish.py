"""Taking commits to the other side: checked before each push, with a lease, to our own branch only, once per commit.

It merges nothing and opens no pull request (`forge` does).  Whatever is pushed was scanned first, every commit of it;
a commit of somebody else on our branch is never overwritten.  Called by `run/handler.py`.

Design: section 8; field facts: rows 16, 17 and 20.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from agent import clock, gitcmd
from agent.errors import (
    GitError,
    LfsRefused,
    PolicyViolation,
    PushRejected,
    RemoteAway,
    RemoteRefused,
    RepositoryMissing,
    WorkError,
)
from agent.work import changes, rebase, refusals
from agent.work.lfs_server import Server
from agent.work.remote import Login, Remote
from agent.work.tree import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from agent.values import Effects, Json
    from agent.work.workspace import Workspace

OWN = "makimono/"
"""Beginning of our branches by default (`branch.prefix`); such a branch stays ours whatever the settings say now."""

PUSH = "push:"
"""What the name of a push among the effects begins with; the commit follows."""

CROSSED = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries while another push of the same branch is under way."""

_REJECTED = re.compile(
    r"rejected|denied|declined|permission|stale info|protected|failed to push some refs|unpacker error"
    r"|read-only|archived|" + refusals.TOO_LARGE,
    re.IGNORECASE,
)


def is_own(branch: str, prefix: str = OWN) -> bool:
    """Whether a branch is one of this program's, which it may push to and remove."""
    return branch.startswith((prefix, OWN))


class Publisher:
    """Publishes one workspace.

    `scan` gets every byte that a push would give away, in chunks, and returns findings; `guarded` gets the paths that
    the commits touch and returns findings.  Both name no secret.  `largest` is how many bytes a file may
    have over there.  `effects` remembers what was pushed.
    """

    def __init__(
        self,
        workspace: Workspace,
        effects: Effects,
        *,
        scan: Callable[[Iterable[bytes]], Iterable[Any]],
        guarded: Callable[[Sequence[str]], Iterable[Any]],
        largest: int | None = None,
        url: str | None = None,
        credentials: Callable[[], Login | None] | None = None,
        renew: Callable[[], object] | None = None,
        ca_file: Path | None = None,
        env: Mapping[str, str] | None = None,
        prefix: str = OWN,
    ) -> None:
        self.prefix = prefix
        self.workspace = workspace
        self.effects = effects
        self.scan = scan
        self.guarded = guarded
        self.largest = largest
        self.remote = (
            Remote(url, credentials=credentials, renew=renew, ca_file=ca_file, env=env)
            if url
            else workspace.mirror.remote
        )
        self._checked: str | None = None

    def take_up(self) -> None:
        """Go on from the commit that we had pushed and this disk has lost (git's refs, at a power loss): without it,
        our own commit on the other side would be somebody's.  The tree keeps what is in it."""
        pushes = [name for name in self.effects.intended() if name.startswith("push:")]
        if not pushes:
            return
        theirs, head = self.workspace.mirror.commit_of(self.workspace.branch), self.workspace.head()
        if theirs in (None, head, self.workspace.state.pushed) or f"push:{theirs}" not in pushes:
            return
        assert theirs is not None
        if head is None or not self._contains(head, theirs):
            self.workspace.take_back(theirs)
            self.workspace.update_state(pushed=theirs)

    def check(self) -> None:
        """PolicyViolation when the tree or any commit since the task began must not be published.

        The next `Workspace.commit` then replaces the commits that were not pushed, so that a secret that was put right
        is not in the history.
        """
        self._checked = None
        head = self.workspace.head()
        findings = list(self.workspace.guard())
        entries = self.workspace.entries()
        findings += [str(finding) for finding in self.guarded(sorted({entry.path for entry in entries}))]
        if self.largest is not None:
            findings += changes.too_large(self.workspace.git_dir, entries, self.largest)
        findings += changes.unfit(self.workspace.git_dir, entries)
        given_away = chain(self.workspace.history(), self.workspace.lfs.added(self.workspace.lfs_pointers()))
        findings += [str(finding) for finding in self.scan(given_away)]
        if findings:
            self.workspace.update_state(refused=head)
            listed = "; ".join(findings[:10]) + (f"; and {len(findings) - 10} more" if len(findings) > 10 else "")
            raise PolicyViolation(f"not published: {listed}", findings=tuple(findings))
        self._checked = head

    def push(self) -> str:
        """Push our branch; returns the commit that the other side has then.

        Checks first, unless this very commit has been checked.  A commit that was pushed is not pushed again, also
        after a crash in between, unless its branch was removed meanwhile.  PushRejected says what the other side said,
        GitError that it was not reached.
        """
        head = self.workspace.head()
        branch = self.workspace.branch
        if head is None or not self.workspace.has_commits():
            raise WorkError("there is no commit to push")
        if not is_own(branch, self.prefix):
            raise PushRejected(f"{branch!r} is not ours to push; own branches begin with {self.prefix!r}")
        if self._checked != head:
            self.check()
        there: list[str | None] = []

        def look_up() -> Json | None:
            there[:] = [self.remote.commit_of(branch)]
            has_it = there[0] is not None and (there[0] == head or self._contains(there[0], head))
            return {"commit": head, "branch": branch} if has_it else None

        def do() -> Json:
            self._upload(head)
            lease = self._lease(there[0] if there else self.remote.commit_of(branch), head)
            self._push(head, lease)
            return {"commit": head, "branch": branch}

        name = f"{PUSH}{head}"
        if self.workspace.state.pushed != head and self.effects.receipt(name) and look_up() is None:
            do()  # it was pushed, and somebody removed the branch (`moved.py` noticed)
        self.effects.once(name, look_up, do, branch=branch, commit=head)
        if self.workspace.state.pushed != head:
            self.workspace.update_state(pushed=head)
        return head

    def _upload(self, head: str) -> None:
        """Bring the content of Git LFS files to the other side: a commit never stands there without it."""
        pointers = self.workspace.lfs_pointers()
        if not pointers:
            return
        server = Server(self.remote, self.workspace.lfs.server.config)
        try:
            server.upload(pointers, self.workspace.lfs.own, self.workspace.branch)
        except LfsRefused as refused:
            self.workspace.update_state(refused=head)
            raise PushRejected(f"not pushed: {refused}", code=refused.code) from refused

    def _lease(self, there: str | None, head: str) -> str:
        """What the branch must be at when it is set: what we saw, and only if it is ours."""
        if there is None or there == self.workspace.state.pushed:
            return there or ""
        if not self._contains(head, there):
            raise PushRejected(
                f"branch {self.workspace.branch!r} at {self.remote.url} is at {there[:12]}, which is not of this task; "
                "it is not overwritten. Merge or remove those commits, then resume the task",
                code="branch_moved",
            )
        return there

    def _contains(self, new: str, old: str) -> bool:
        return rebase.is_ancestor(self.workspace.git_dir, old, new)

    def _push(self, commit: str, lease: str) -> None:
        """Push; another push of the branch that is under way is waited for.  It may be our own, of an attempt that was
        cut off while the other side went on.  One that was killed is done again, if it has not happened."""
        for pause in (*CROSSED, None):
            try:
                self._push_now(commit, lease)
            except PushRejected as rejected:
                cause = rejected.__cause__
                if pause is None or not (isinstance(cause, GitError) and refusals.is_crossed(cause.stderr)):
                    raise
                clock.sleep(pause)
            except GitError as error:
                if pause not in CROSSED[:2] or not gitcmd.has_died(error):
                    raise
                clock.sleep(pause)
            else:
                return
            if self.remote.commit_of(self.workspace.branch) == commit:
                return
        raise AssertionError  # the last try returns or raises

    def _push_now(self, commit: str, lease: str) -> None:
        try:
            self.remote.push(self.workspace.git_dir, commit, self.workspace.branch, lease)
        except RemoteRefused as error:
            if refusals.is_archived(error.stderr):
                raise self._rejected(commit, error.stderr) from error
            raise
        except (RepositoryMissing, RemoteAway):
            raise
        except GitError as error:
            if not _REJECTED.search(error.stderr):
                raise
            if advice := refusals.passing(error.stderr):
                where = f"{self.remote.url} does not take branch {self.workspace.branch!r}"
                raise RemoteRefused(
                    f"{where}: {advice}. It says: {_said(error.stderr)}", stderr=error.stderr
                ) from error
            raise self._rejected(commit, error.stderr) from error

    def _rejected(self, commit: str, stderr: str) -> PushRejected:
        code, advice = refusals.why(stderr, self.prefix)
        where = (
            f"{self.remote.url} refused branch {self.workspace.branch!r} ({commit[:12]} is kept in the task's folder)"
        )
        return PushRejected(f"{where}: {advice}. It says: {_said(stderr)}", code=code)


def _said(stderr: str) -> str:
    """Git's own words, without its hints."""
    return "\n".join(shown(line) for line in stderr.split("\n") if not line.startswith(("To ", "hint:")))
