"""Publishes commits: checks before each push, pushes with a lease and only to the task's own branch, and pushes each
commit once.

`publish.py` only pushes: it merges nothing, and opens no pull request.  `Publisher` scans every commit before the
commit is pushed.  `Publisher` never overwrites a commit of another author on the task's branch.

docs/files.md, "Outside effects", and docs/forges.md, "What users of such agents report", rows 16, 17 and 20, give the
reasons for these rules.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agent import clock, deadline, gitcmd, stale_git_locks
from agent.errors import (
    Fenced,
    GitError,
    LfsRefused,
    PolicyViolation,
    PushRejected,
    RemoteAway,
    RemoteRefused,
    RepositoryMissing,
    StopHeard,
    WorkError,
)
from agent.work import changes, forge_signed_commits, push_errors, rebase
from agent.work.lfs_server import LfsServer
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from agent.forge.commit_maker import CommitMaker
    from agent.values import Effects, Json
    from agent.work.workspace import Workspace

OWN = "makimono/"
"""Default prefix of the program's branches (`branch.prefix`); a branch with it counts as the program's own even after
the setting changed."""

PUSH = "push:"
"""The prefix of the name of an effect that is a push; the pushed commit follows."""

CROSSED = (1.0, 2.0, 4.0, 8.0)
"""Seconds between retries while another push to the same branch is running."""

_REJECTED = re.compile(
    r"rejected|denied|declined|permission|stale info|protected|failed to push some refs|unpacker error"
    r"|read-only|archived|" + push_errors.TOO_LARGE,
    re.IGNORECASE,
)


def is_own(branch: str, prefix: str = OWN) -> bool:
    """Whether the branch has a name with the configured prefix or `makimono/`: only such a branch may be pushed to and
    removed."""
    return branch.startswith((prefix, OWN))


class Publisher:
    """Publishes the commits of one workspace.

    - `scan` is a function that receives all content that a push would publish, in chunks, and returns findings.
    - `guarded` is a function that receives the paths that the commits touch, and the folders among them that git would
      treat as a bare repository, and returns findings.
    - `largest` is the maximum number of bytes that the host accepts for one file.
    - `effects` records completed pushes.
    - `maker` makes the commits again at the host, which signs them; None if they are pushed as they are.
    - `check_held` raises Fenced if another attempt owns the task; it is called just before each push, since the
      requests before a push take time.

    No finding contains the text of a secret.
    """

    def __init__(
        self,
        workspace: Workspace,
        effects: Effects,
        *,
        scan: Callable[[Iterable[bytes]], Iterable[Any]],
        guarded: Callable[[Sequence[str], Sequence[str]], Iterable[Any]],
        largest: int | None = None,
        prefix: str = OWN,
        maker: CommitMaker | None = None,
        check_held: Callable[[], None] = lambda: None,
    ) -> None:
        self.prefix = prefix
        self.check_held = check_held
        self.maker = maker
        self._has_objects = maker is not None  # whether the remote may have the ref that `_objects` names
        self.workspace = workspace
        self.effects = effects
        self.scan = scan
        self.guarded = guarded
        self.largest = largest
        self.remote = workspace.mirror.remote
        self._checked: str | None = None
        self._clean: str | None = None

    def take_up(self) -> None:
        """Reset the branch to the pushed commit if this disk lost git's refs in a power loss and no longer has that
        commit on the branch.

        Without the reset of the branch the program would take its own commit on the remote for a commit of another
        author. The reset of the branch does not change the work tree.
        """
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
        """Raise PolicyViolation if the tree, or any commit since the start of the task, must not be published.

        After a PolicyViolation the next `Workspace.commit` replaces the unpushed commits, so that a secret that was
        removed is not in the history.
        """
        self._checked = None
        head = self.workspace.head()
        findings = list(self.workspace.guard())
        entries = self.workspace.entries()
        paths = sorted({entry.path for entry in entries})
        findings += [str(finding) for finding in self.guarded(paths, self.workspace.bare_folders(entries))]
        if self.largest is not None:
            findings += changes.too_large(self.workspace.git_dir, entries, self.largest)
        findings += changes.unfit(self.workspace.git_dir, entries)
        findings += [str(finding) for finding in self.scan(_heard(self._unsearched(head)))]
        if findings:
            self.workspace.update_state(refused=head)
            listed = "; ".join(findings[:10]) + (f"; and {len(findings) - 10} more" if len(findings) > 10 else "")
            raise PolicyViolation(f"not published: {listed}", findings=tuple(findings))
        self._checked = self._clean = head

    def _unsearched(self, head: str | None) -> Iterator[bytes]:
        """The content that a push would publish and that `scan` has not searched yet.

        A commit that passed every check, with its history, is not searched again: a later push only adds commits to it.
        """
        since = self._clean
        if since is not None and (head is None or not self._contains(head, since)):
            since = None
        yield from self.workspace.history(since)
        if since is None or since != head:
            yield from self.workspace.lfs.added(self.workspace.lfs_pointers())

    def push(self) -> str:
        """Push the task's branch; returns the pushed commit, which is the one made at the host if there is a `maker`.

        The checks before publication (`check`) run first, unless this commit has passed them before; they raise
        PolicyViolation. A commit that was pushed is not pushed again, not even by a later attempt after a crash, unless
        the remote's branch was removed meanwhile. Raises PushRejected with the remote's message, or GitError when the
        remote was not reached. Raises WorkError if there is no commit to push.
        """
        head = self.workspace.head()
        branch = self.workspace.branch
        if head is None or not self.workspace.has_commits():
            raise WorkError("there is no commit to push")
        if not is_own(branch, self.prefix):
            raise PushRejected(f"{branch!r} is not ours to push; own branches begin with {self.prefix!r}")
        if self._checked != head:
            self.check()
        if self.maker is not None:
            head = self._signed(head, self.maker)
        there: list[str | None] = []

        def look_up() -> Json | None:
            there[:] = [self.remote.commit_of(branch)]
            return {"commit": head, "branch": branch} if self._has(there[0], head) else None

        def do() -> Json:
            self._upload(head)
            lease = self._lease(there[0] if there else self.remote.commit_of(branch), head)
            self._push(head, lease)
            return {"commit": head, "branch": branch}

        name = f"{PUSH}{head}"
        if self.workspace.state.pushed != head and self.effects.receipt(name) and look_up() is None:
            do()  # the pushed branch was removed later (`concurrent_changes.py` detected it), so it is pushed again
        self.effects.once(name, look_up, do, branch=branch, commit=head)
        self._remove_objects()
        if self.workspace.state.pushed != head:
            self.workspace.update_state(pushed=head)
        return head

    def _signed(self, head: str, maker: CommitMaker) -> str:
        """Let the host make the task's commits again and sign them, and move the task's branch to them; returns the
        newest one.

        The first commit of an empty repository is not signed, since GitHub's API makes no commit in an empty
        repository. Commits that the task's branch already has at the host, also those of other people, stay as they
        are.
        """
        workspace, state = self.workspace, self.workspace.state
        pushed = state.pushed or self.remote.commit_of(workspace.branch)
        known = [one for one in (state.start, state.base_commit, pushed) if one is not None]
        known = [one for one in known if rebase.has_commit(workspace.git_dir, one)]
        if not known or not (commits := forge_signed_commits.unsigned(workspace.git_dir, head, known)):
            return head
        self._upload(head)
        self._has_objects = True
        try:
            self._push_now(head, partial(self.remote.push_objects, workspace.git_dir, head, self._objects))
            made = forge_signed_commits.make_again(workspace.git_dir, commits, maker)
        except Fenced:
            raise  # the ref belongs to the attempt that owns the task now, so this one does not remove it
        except Exception:
            self._remove_objects()  # after an error the host keeps no unsigned commit of the task
            raise
        workspace.replace_commits(head, made)
        self._checked = self._clean = made.get(head, head)
        return self._checked

    def _remove_objects(self) -> None:
        """Remove the ref by which `_signed` has brought objects to the host, in this process or in one that died."""
        if self._has_objects:
            with suppress(GitError):  # an error is ignored: the remote lacks the ref, or the ref stays and does no harm
                self.remote.remove_ref(self.workspace.git_dir, self._objects)
            self._has_objects = False

    @property
    def _objects(self) -> str:
        return f"{forge_signed_commits.OBJECTS}{self.workspace.context_dir.name}"

    def _upload(self, head: str) -> None:
        """Upload the content of Git LFS files, since the remote must never have a commit without its content."""
        pointers = self.workspace.lfs_pointers()
        if not pointers:
            return
        server = LfsServer(self.remote, self.workspace.lfs.server.config)
        try:
            server.upload(pointers, self.workspace.lfs.own, self.workspace.branch)
        except LfsRefused as refused:
            self.workspace.update_state(refused=head)
            raise PushRejected(f"not pushed: {refused}", code=refused.code) from refused

    def _lease(self, there: str | None, head: str) -> str:
        """The commit at which the remote's branch must be when the push moves it: `there`, the commit that was just
        read; "" if the branch did not exist. Raises PushRejected if the task neither pushed the commit `there` nor has
        it in the history of `head`."""
        if there is None or there == self.workspace.state.pushed:
            return there or ""
        if not self._contains(head, there):
            raise PushRejected(
                f"branch {self.workspace.branch!r} at {self.remote.url} is at {there[:12]}, which is not of this task; "
                "it is not overwritten. Merge or remove those commits, then resume the task",
                code="branch_moved",
            )
        return there

    def _has(self, there: str | None, commit: str) -> bool:
        """Whether a branch on the remote that is at `there` contains the commit."""
        return there is not None and (there == commit or self._contains(there, commit))

    def _contains(self, new: str, old: str) -> bool:
        return rebase.is_ancestor(self.workspace.git_dir, old, new)

    def _push(self, commit: str, lease: str) -> None:
        """Push the task's branch; wait while another push to the same branch is running.

        The other push may belong to an earlier attempt of this task that lost its connection while the remote
        continued. If the git process was killed, the push is repeated unless the remote already has the commit. A
        killed push can leave a lock on the branch. If the repository is on this machine, the lock that a killed push
        left is removed. If the repository is on another host, the push is tried again after a while; if the branch
        stays locked, RemoteRefused is raised, and somebody must remove the lock on that host.
        """
        for pause in (*CROSSED, None):
            try:
                push = partial(self.remote.push, self.workspace.git_dir, commit, self.workspace.branch, lease)
                self._push_now(commit, push)
            except PushRejected as rejected:
                cause = rejected.__cause__
                if not (isinstance(cause, GitError) and push_errors.is_crossed(cause.stderr)):
                    raise
                if pause is None and push_errors.is_locked(cause.stderr):
                    raise RemoteRefused(
                        f"{self.remote.url} does not take branch {self.workspace.branch!r}: a git that was killed "
                        f"there has left the lock of that branch. It says: {_git_message(cause.stderr)}",
                        stderr=cause.stderr,
                    ) from cause
                if pause is None:
                    raise
                if pause == CROSSED[0] or not self._unlock(cause.stderr):
                    clock.sleep(pause)
            except GitError as error:
                if pause not in CROSSED[:2] or not gitcmd.has_died(error):
                    raise
                clock.sleep(pause)
            else:
                self._check_arrived(commit)
                return
            if self.remote.commit_of(self.workspace.branch) == commit:
                return
        raise AssertionError  # the last attempt of the loop returns or raises

    def _check_arrived(self, commit: str) -> None:
        """Raise RemoteRefused if the remote's branch does not contain `commit` after a push that git reported as
        successful.

        An exit code of 0 is no proof of a push: a broken git wrapper also exits with 0, and so does git when a server
        drops a push after its hook has accepted the push. A server may show a new commit with a delay, so its branch is
        read several times.
        """
        found: str | None = None
        for pause in (*CROSSED, None):
            found = self.remote.commit_of(self.workspace.branch)
            if self._has(found, commit):
                return
            if pause is not None:
                clock.sleep(pause)
        raise RemoteRefused(
            f"git said that it pushed {commit[:12]} to {self.remote.url}, but branch {self.workspace.branch!r} "
            f"{'is at ' + found[:12] if found else 'is not there'}; check the git of this host and the remote's hooks"
        )

    def _unlock(self, stderr: str) -> bool:
        """Remove the branch's lock that a killed git process left in a repository on this machine; returns whether the
        lock is gone.  The process that left the lock was a child of the git process that this program killed."""
        place = self.remote.path
        lock = stale_git_locks.lock_in_error(stderr, place) if place is not None else None
        if lock is None or not lock.resolve().as_posix().endswith(f"/refs/heads/{self.workspace.branch}.lock"):
            return False
        return stale_git_locks.remove(lock)

    def _push_now(self, commit: str, push: Callable[[], None]) -> None:
        self.check_held()
        try:
            push()
        except RemoteRefused as error:
            if push_errors.is_archived(error.stderr):
                raise self._rejected(commit, error.stderr) from error
            raise
        except (RepositoryMissing, RemoteAway):
            raise
        except GitError as error:
            if not _REJECTED.search(error.stderr):
                raise
            if advice := push_errors.remedy(error.stderr):
                where = f"{self.remote.url} does not take branch {self.workspace.branch!r}"
                raise RemoteRefused(
                    f"{where}: {advice}. It says: {_git_message(error.stderr)}", stderr=error.stderr
                ) from error
            raise self._rejected(commit, error.stderr) from error

    def _rejected(self, commit: str, stderr: str) -> PushRejected:
        code, advice = push_errors.classify(stderr, self.prefix)
        where = (
            f"{self.remote.url} refused branch {self.workspace.branch!r} ({commit[:12]} is kept in the task's folder)"
        )
        return PushRejected(f"{where}: {advice}. It says: {_git_message(stderr)}", code=code)


def _heard(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Passes `chunks` on until the task has to stop: then StopHeard is raised."""
    for chunk in chunks:
        deadline.check()
        if deadline.is_stopping():
            raise StopHeard("the search of the commits was ended, because the task was told to stop")
        yield chunk


def _git_message(stderr: str) -> str:
    """Git's error message without its hints and without the line that has the remote's address."""
    return "\n".join(shown(line) for line in stderr.split("\n") if not line.startswith(("To ", "hint:")))
