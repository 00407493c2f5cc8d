"""Taking commits to the other side: checked before each push, with a lease, to our own branch only, once per commit.

It merges nothing and opens no pull request (`forge` does).  Whatever is pushed was scanned first, every commit of it;
a commit of somebody else on our branch is never overwritten.  Called by `run/handler.py`.

Design: section 8; field facts: rows 16, 17 and 20.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import GitError, PolicyViolation, PushRejected, RepositoryMissing, WorkError
from agent.gitcmd import git
from agent.work.remote import Login, Remote
from agent.work.tree import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from agent.values import Effects, Json
    from agent.work.workspace import Workspace

OWN = "makimono/"
_REJECTED = re.compile(
    r"rejected|denied|declined|permission|stale info|protected|failed to push some refs|unpacker error|read-only",
    re.IGNORECASE,
)


class Publisher:
    """Publishes one workspace.

    `scan` gets every byte that a push would give away, in chunks, and returns findings; `guarded` gets the paths that
    the commits touch and returns findings.  Both name no secret.  `effects` remembers what was pushed.
    """

    def __init__(
        self,
        workspace: Workspace,
        effects: Effects,
        *,
        scan: Callable[[Iterable[bytes]], Iterable[Any]],
        guarded: Callable[[Sequence[str]], Iterable[Any]],
        url: str | None = None,
        credentials: Callable[[], Login | None] | None = None,
        ca_file: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.workspace = workspace
        self.effects = effects
        self.scan = scan
        self.guarded = guarded
        self.remote = Remote(url, credentials=credentials, ca_file=ca_file, env=env) if url else workspace.mirror.remote
        self._checked: str | None = None

    def check(self) -> None:
        """PolicyViolation when the tree or any commit since the task began must not be published.

        The next `Workspace.commit` then replaces the commits that were not pushed, so that a secret that was put right
        is not in the history.
        """
        self._checked = None
        head = self.workspace.head()
        findings = list(self.workspace.guard())
        paths = sorted({entry.path for entry in self.workspace.entries()})
        findings += [str(finding) for finding in self.guarded(paths)]
        findings += [str(finding) for finding in self.scan(self.workspace.history())]
        if findings:
            self.workspace.update_state(refused=head)
            listed = "; ".join(findings[:10]) + (f"; and {len(findings) - 10} more" if len(findings) > 10 else "")
            raise PolicyViolation(f"not published: {listed}", findings=tuple(findings))
        self._checked = head

    def push(self) -> str:
        """Push our branch; returns the commit that the other side has then.

        Checks first, unless this very commit has been checked.  A commit that was pushed is not pushed again, also
        after a crash in between.  PushRejected says what the other side said, GitError that it was not reached.
        """
        head = self.workspace.head()
        branch = self.workspace.branch
        if head is None or not self.workspace.has_commits():
            raise WorkError("there is no commit to push")
        if not branch.startswith(OWN):
            raise PushRejected(f"{branch!r} is not ours to push; own branches begin with {OWN!r}")
        if self._checked != head:
            self.check()
        there: list[str | None] = []

        def look_up() -> Json | None:
            there[:] = [self.remote.commit_of(branch)]
            return {"commit": head, "branch": branch} if there[0] == head else None

        def do() -> Json:
            lease = self._lease(there[0] if there else self.remote.commit_of(branch), head)
            self._push(head, lease)
            return {"commit": head, "branch": branch}

        self.effects.once(f"push:{head}", look_up, do, branch=branch, commit=head)
        if self.workspace.state.pushed != head:
            self.workspace.update_state(pushed=head)
        return head

    def _lease(self, there: str | None, head: str) -> str:
        """What the branch must be at when it is set: what we saw, and only if it is ours."""
        if there is None or there == self.workspace.state.pushed:
            return there or ""
        done = git("merge-base", "--is-ancestor", there, head, git_dir=self.workspace.git_dir, check=False)
        if done.returncode != 0:
            raise PushRejected(
                f"branch {self.workspace.branch!r} at {self.remote.url} is at {there[:12]}, which is not of this task; "
                "it is not overwritten. Merge or remove those commits, then resume the task"
            )
        return there

    def _push(self, commit: str, lease: str) -> None:
        try:
            self.remote.push(self.workspace.git_dir, commit, self.workspace.branch, lease)
        except RepositoryMissing:
            raise
        except WorkError as error:
            raise PushRejected(str(error)) from error
        except GitError as error:
            if not _REJECTED.search(error.stderr):
                raise
            reason = "\n".join(
                shown(line) for line in error.stderr.split("\n") if not line.startswith(("To ", "hint:"))
            )
            raise PushRejected(
                f"{self.remote.url} refused branch {self.workspace.branch!r} ({commit[:12]} is kept here): {reason}"
            ) from error
