"""A task's work tree and its git directory: opened, judged, committed, and described.

`workspace/` is the tree, which belongs to the commands of the model and is hostile after each of them; `git/` beside
it is ours.  Both are always named, never discovered.  It pushes nothing (`Publisher` does) and runs no command of the
repository.  Called by `run/handler.py`.

Every step of `open` can be cut off and is taken up again: `git/` appears by rename, `State.ready` says that the first
checkout was whole, and from then on no file of the tree is ever overwritten by this program, but by `move_onto`, which
works on what is committed.
Design: sections 4 and 10; field facts: rows 21 to 23.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import disk, git_guard, proc
from agent.errors import BaseMissing, GitError, RulesRefused, StopHeard, WorkError
from agent.gitcmd import Identity, git
from agent.work import changes, gitdir, rebase, tree
from agent.work.fate import Fates
from agent.work.lfs import LfsTree
from agent.work.lfs_content import LIMIT, Content
from agent.work.lfs_server import Server
from agent.work.signing import UNSIGNED, Signing
from agent.work.stage import TRUE_STAT, Stage, commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from agent.values import FileChange, Public
    from agent.work.changes import DiffStat
    from agent.work.lfs import Pointer
    from agent.work.mirror import Mirror

SHOWN_BRANCHES = 20


class Workspace:
    """The workspace of the task in `context_dir`.

    `branch` is ours, `base` the branch it leaves from (None: the default branch), `owner_uid` who commands run as when
    we are root, `start_at` a branch or commit of the mirror to begin at instead of the base (an earlier task's work),
    `isolated` False where commands run without a sandbox and so see the git directory at its own path; `signing` the
    key of every commit; `pushes` False: the change is handed over as a patch, which content of Git LFS is no part of;
    `lfs_limit` how many bytes of such content a new tree gets.
    `reports` collects what a person should know and what refuses nothing: a `.git` put back, a FIFO left out.
    """

    def __init__(
        self,
        context_dir: Path,
        mirror: Mirror,
        *,
        branch: str,
        base: str | None,
        owner_uid: int | None = None,
        start_at: str | None = None,
        isolated: bool = True,
        signing: Signing = UNSIGNED,
        pushes: bool = True,
        lfs_limit: int = LIMIT,
    ) -> None:
        self.context_dir = context_dir.absolute()
        self.mirror = mirror
        self.tree = self.context_dir / "workspace"
        self.git_dir = self.context_dir / "git"
        self.gitdir_inside = tree.INSIDE if isolated else str(self.git_dir)
        self.branch = branch
        self.signing = signing
        self.reports: list[str] = []
        self._wanted_base = base.removeprefix("refs/heads/") if base else None
        self._start_at = start_at
        self._owner = owner_uid if os.geteuid() == 0 else None
        self._env = {proc.MARK: self.context_dir.name}
        self._state: gitdir.State | None = None
        server = Server(mirror.remote, lambda: self.read_at_base(".lfsconfig"))
        self.lfs = Content(self.git_dir, mirror.path, server, lfs_limit, self.reports)
        self._uploads = pushes and server.is_reachable()
        self._fates = Fates(self.git_dir, self.tree, self._env, lfs=self._uploads)

    # --- opening -------------------------------------------------------------------------------------------------

    def open(self, begin: gitdir.State | None = None) -> None:
        """Make the workspace, or take it up as it was left.  `begin`: what a new one is made from, where that is known.

        BaseMissing names the branches there are.  A tree that was complete once keeps what is in it.
        """
        state = gitdir.read_state(self.git_dir)
        if state is None:
            with self.mirror.locked():
                state = begin or self._first_state()
                gitdir.make(self.git_dir, self.mirror, state)
        self._state = state
        self.branch = state.branch
        gitdir.remove_locks(self.git_dir)
        gitdir.borrow(self.git_dir, self.mirror.path)
        if (not state.ready and self.head() == state.start) or not self.tree.is_dir():
            self._check_out()
        else:
            self._repair_index()
            self._finish_move()
        if tree.write_gitfile(self.tree, self.gitdir_inside) and state.ready:
            self.reports.append("the file .git in the work tree was changed and has been put back")
        if not state.ready or state.gone:
            self.update_state(ready=True, gone=False)

    def _first_state(self) -> gitdir.State:
        checked = git("check-ref-format", f"refs/heads/{self.branch}", check=False)
        if checked.returncode != 0 or self.branch.startswith("-"):
            raise WorkError(f"{self.branch!r} is not the name of a branch")
        base = self._wanted_base or self.mirror.default_branch()
        if self.mirror.is_empty():
            return gitdir.State(self.branch, base or self.mirror.head_name(), None, None)
        tip = self.mirror.commit_of(base) if base else None
        if base is None or tip is None:
            raise BaseMissing(self._base_missing(base))
        start, base_commit = tip, tip
        if self._start_at:
            start = self.mirror.commit_of(self._start_at) or self._known_commit(self._start_at)
            merged = git("merge-base", tip, start, git_dir=self.mirror.path, check=False)
            base_commit = merged.output.decode().strip() or tip
        return gitdir.State(self.branch, base, base_commit, start)

    def _base_missing(self, base: str | None) -> str:
        names = self.mirror.branches()
        more = f" and {len(names) - SHOWN_BRANCHES} more" if len(names) > SHOWN_BRANCHES else ""
        known = ", ".join(tree.shown(name) for name in names[:SHOWN_BRANCHES]) + more
        if base is None:
            return f"{self.mirror.url} has no default branch; name one as `base` in the issue. Branches: {known}"
        return (
            f"base branch {base!r} does not exist in {self.mirror.url}; make it, make another one the default branch, "
            f"or name one as `base` in the issue. There are: {known}"
        )

    def _known_commit(self, name: str) -> str:
        done = git(
            *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"),
            git_dir=self.mirror.path,
            check=False,
        )
        if done.returncode != 0:
            raise BaseMissing(
                f"{name!r}, where the work was to go on, is neither a branch nor a commit of {self.mirror.url}"
            )
        return done.output.decode().strip()

    def _check_out(self) -> None:
        """Fill the tree from HEAD.  Only when nothing of the task is in it yet, or it is gone altogether."""
        tree.clear(self.tree)
        (self.git_dir / "index").unlink(missing_ok=True)  # a power loss may have left one that git cannot read  # ours
        if self.head() is not None:
            self._git("read-tree", "--reset", "-u", "HEAD", timeout=1800)
        self._fill_and_give()
        disk.sync_tree(self.tree)
        self._report_what_is_missing()

    def _fill_and_give(self) -> None:
        filled = self.lfs.fill(self.tree, self._env)
        if self._owner is not None:
            tree.give(self.tree, self._owner)
            self._git("update-index", "-q", "--refresh", check=False, timeout=600)
        LfsTree(self.git_dir, self.tree, self._env).add((), filled)

    def _report_what_is_missing(self) -> None:
        """Submodules are not fetched: their addresses come from the repository.  Content of Git LFS may not be had."""
        if modules := self._fates.submodules():
            names = ", ".join(tree.shown(name) for name in modules[:SHOWN_BRANCHES])
            self.reports.append(f"submodules are not checked out: {names}")
        if kept := sorted(LfsTree(self.git_dir, self.tree, self._env).pointers()):
            names = ", ".join(tree.shown(name) for name in kept[:SHOWN_BRANCHES])
            self.reports.append(f"Git LFS files are not downloaded; the tree has their pointers: {names}")

    def _repair_index(self) -> None:
        """Make the index anew when a power loss has broken it; the tree stays as it is."""
        try:
            done = self._git("update-index", "-q", "--refresh", "--ignore-submodules", check=False, timeout=600)
        except RulesRefused as refused:  # the task goes on, so that the model can put it right before the commit
            self.reports.append(str(refused))
            return
        if done.returncode > 1:  # 1 says that files differ
            (self.git_dir / "index").unlink(missing_ok=True)  # ours
            self._read_index(self.head())

    def update_state(self, **fields: Any) -> None:
        """Change what `git/makimono.json` says."""
        self._state = replace(self.state, **fields)
        self._state.write(self.git_dir)

    @property
    def state(self) -> gitdir.State:
        """What the workspace was made from."""
        if self._state is None:
            raise WorkError("the workspace is not open")
        return self._state

    @property
    def base(self) -> str:
        """The base branch."""
        return self.state.base

    @property
    def base_commit(self) -> str | None:
        """The commit of the base branch that the work is compared with; None in an empty repository."""
        return self.state.base_commit

    @property
    def start(self) -> str | None:
        """The commit where this task began: the base commit, or an earlier task's work."""
        return self.state.start

    @property
    def owner_uid(self) -> int | None:
        """Who owns the tree, when that is not who we are."""
        return self._owner

    def mounts(self, home: Path | None = None, read_only: tuple[Path, ...] = ()) -> dict[str, Any]:
        """What a sandbox needs to show a command: keyword arguments of `sandbox.Mounts`.

        The tree's own folder is made enterable again: after a `chmod 000 .` no command could start to take it back.
        """
        tree.enterable(self.tree)
        return {
            "work": self.tree,
            "git": self.git_dir,
            "mirror": self.mirror.path,
            "home": home,
            "read_only": tuple(read_only),
        }

    # --- judging and committing ----------------------------------------------------------------------------------

    def guard(self) -> list[str]:
        """Put the `.git` file back, and list what refuses publishing: symlinks out of the tree and submodules in our
        commits, and files of the repository that cannot be looked at.

        Only what a push takes along counts.  Another `.git` in the tree is nobody's business: git takes none into a
        commit, and neither does `Stage`.
        """
        if tree.write_gitfile(self.tree, self.gitdir_inside):
            self.reports.append("the file .git in the work tree was changed and has been put back")
        found = []
        try:
            git_guard.judge(self.tree)
        except RulesRefused as refused:
            return list(refused.findings)
        for folder in tree.closed_folders(self.tree):
            if self._holds_tracked(folder):
                found.append(self._closed(folder))
            else:
                self.reports.append(
                    f"{tree.shown(folder)}/ cannot be looked into (its mode forbids it) and was left out"
                )
        if self.has_commits():
            entries = self.entries()
            found += changes.mode_findings(self.git_dir, entries)
            new = [entry.path for entry in entries if entry.status == "A"]
            listed = _names(self._git("ls-tree", "-r", "-z", "--name-only", "HEAD").output) if new else []
            told = changes.same_but_case(new, listed)
            self.reports.extend(line for line in told if line not in self.reports)
        return found

    def _closed(self, folder: str) -> str:
        return f"{tree.shown(folder)}/ cannot be looked into (its mode forbids it); make it readable or remove it"

    def _holds_tracked(self, folder: str) -> bool:
        """Whether the base commit or ours has files in `folder`, which git takes for removed ones now."""
        names = [self.base_commit, self.head()]
        return any(name and self._git("ls-tree", "-z", name, f"{folder}/").output for name in names)

    def commit(self, message: Public, *, name: str, email: str) -> str | None:
        """Commit every change of the tree that belongs in the repository; the commit, or None when there is none.

        Commits that were refused publication are taken back first: what they hold, and this change puts right, must not
        stay in the history.
        """
        if self.state.refused is not None:
            if self.state.refused == self.head():
                self.take_back()
            self.update_state(refused=None)
        if tree.write_gitfile(self.tree, self.gitdir_inside):
            self.reports.append("the file .git in the work tree was changed and has been put back")
        self.reports += self._stage().update()
        return commit(self.git_dir, self.branch, self.head(), message, Identity(name, email), self._env, self.signing)

    def take_back(self, target: str | None = None) -> None:
        """Undo commits down to `target` (default: the last that was pushed, else where the task began); the tree keeps
        every change.

        For commits that may not be published: what they hold must leave the history before the next push.
        """
        self._point_at(target or self._last_pushed() or self.start, "take back")

    def _point_at(self, commit: str | None, why: str) -> None:
        """Let our branch and the index be at `commit`, None: before the first one; the tree stays."""
        ref = f"refs/heads/{self.branch}"
        if commit is None:
            self._git("update-ref", "-d", ref)
        else:
            self._git("update-ref", "-m", why, ref, commit)
        self._read_index(commit)

    def _read_index(self, commit: str | None) -> None:
        self._git("read-tree", *(("--reset", commit) if commit else ("--empty",)))

    def _last_pushed(self) -> str | None:
        """The last commit that was pushed, while the branch still goes on from it."""
        pushed, head = self.state.pushed, self.head()
        return pushed if pushed and head and rebase.is_ancestor(self.git_dir, pushed, head) else None

    def move_onto(
        self,
        target: str,
        *,
        since: str,
        who: tuple[str, str],
        base_commit: str | None = None,
        pushed: str | None = None,
    ) -> None:
        """Make our commits after `since` again on top of `target`, and move branch and tree there; everything must be
        committed.  RebaseConflict, and nothing is changed, when they do not fit.

        `base_commit`: what the work is compared with from now on; `pushed`: what the other side is known to have.
        Cut off in the middle, it is finished by the next `open`.
        """
        head, start = self.head(), self.start
        assert head is not None, "there are commits"
        old = rebase.commits(self.git_dir, since, head)
        made = rebase.replay(self.git_dir, old, target, who, self._env, self.signing)
        self.update_state(
            moving=made.get(head, target),
            start=made.get(start, target) if start else target,
            base_commit=base_commit or self.base_commit,
            pushed=pushed or self.state.pushed,
        )
        self._finish_move()

    def _finish_move(self) -> None:
        target = self.state.moving
        if target is None:
            return
        tree.enterable(self.tree)
        self._git("read-tree", "--reset", "-u", target, timeout=1800)
        self._fill_and_give()
        disk.sync_tree(self.tree)
        self._git("update-ref", "-m", "rebase", f"refs/heads/{self.branch}", target)
        self.update_state(moving=None)

    def take_over(self, made: str, head: str | None, **fields: Any) -> None:
        """Our branch stands at `head`, and the files are those of the tree `made`, or of `head` where that is "": work
        of another host that was not committed.  `fields` change the state."""
        tree.enterable(self.tree)
        if made or head:
            self._git("read-tree", "--reset", "-u", made or str(head), timeout=1800)
        self._fill_and_give()
        self._point_at(head, "take over")
        disk.sync_tree(self.tree)
        self.update_state(**fields)

    def discard(self, written: Iterable[str] = ()) -> bool:
        """Remove the tree, if all of it is in commits that the other side has; False, and nothing is removed, if not.

        `written` are the files that tools wrote: one that no commit has keeps the tree too.  What commands left in
        ignored folders goes.  The git directory stays, with the objects of this task alone; `open` makes the tree
        again.
        """
        unpublished = self.has_commits() and self.state.pushed != self.head()
        if unpublished or self.uncommitted() or self.left_behind(written):
            return False
        self.update_state(gone=True, setup="")
        tree.remove(self.tree)
        (self.git_dir / "index").unlink(missing_ok=True)  # ours
        return True

    def uncommitted(self) -> list[str]:
        """Paths that the next commit would look at."""
        return self._stage().uncommitted()

    # --- describing ----------------------------------------------------------------------------------------------

    def head(self) -> str | None:
        """The newest commit of our branch; None when the branch is not born (empty repository)."""
        done = git("rev-parse", "--verify", "--quiet", "HEAD", git_dir=self.git_dir, check=False)
        return done.output.decode().strip() or None

    def has_commits(self) -> bool:
        """Whether this task has committed anything, an attempt that died elsewhere included: what it pushed is all that
        there is when we came to the same."""
        head = self.head()
        return head != self.start or (self.state.pushed is not None and head != self.base_commit)

    def diff_stat(self, *, own: bool = False) -> DiffStat:
        """Files and lines that our branch changes against the base commit; with `own` what this task changes."""
        return changes.diff_stat(self.git_dir, *self._span(own=own))

    def changes_now(self, seconds: float = 20) -> list[FileChange]:
        """How the work tree differs from the base commit, committed or not, the file that was written last at the end.
        What no commit will have (ignored files) is no part of it.  GitError when git takes more than `seconds`."""
        base = self.base_commit or changes.empty_tree(self.git_dir)
        listing = ("ls-files", "-z", "--others", "--exclude-standard")
        new = [path for path in _names(self._git(*listing, timeout=seconds).output) if self._is_plain(path)]
        found = changes.of_tree(self.git_dir, self.tree, base, new, env=self._env, seconds=seconds)
        content = LfsTree(self.git_dir, self.tree, self._env)
        same = content.unchanged([one.path for one in found if one.how != "deleted"]) - set(self.changed_paths())
        return sorted((one for one in found if one.path not in same), key=self._written_at)

    def _is_plain(self, path: str) -> bool:
        """Whether a new file can be looked at: nothing waits on it, and it is no repository of its own."""
        try:
            mode = disk.stat_beneath(self.tree, path).st_mode
        except OSError:
            return False
        return stat.S_ISREG(mode) or stat.S_ISLNK(mode)

    def _written_at(self, change: FileChange) -> int:
        try:
            return disk.stat_beneath(self.tree, change.path).st_mtime_ns
        except OSError:
            return 0

    def diff(self) -> Iterator[bytes]:
        """What our branch changes against the base commit, as chunks of a diff."""
        return changes.diff(self.git_dir, *self._span())

    def patch(self) -> Iterator[bytes]:
        """What this task changes, as `git apply` takes it, binary files too."""
        return changes.patch(self.git_dir, *self._span(own=True))

    def changed_paths(self, *, own: bool = False) -> list[str]:
        """Paths that our branch changes against the base commit, or with `own` this task; of a rename both."""
        return changes.changed_paths(self.git_dir, *self._span(own=own))

    def history(self) -> Iterator[bytes]:
        """All that a push gives away: every commit since the task began, message and bytes."""
        head = self.head()
        return changes.history(self.git_dir, self.start, head) if head and head != self.start else iter(())

    def entries(self) -> list[changes.Entry]:
        """Every change of every path in every commit since the task began."""
        head = self.head()
        return changes.entries(self.git_dir, self.start, head) if head and head != self.start else []

    def lfs_pointers(self) -> dict[Pointer, str]:
        """pointer → path, for content of Git LFS that our commits need on the other side."""
        return self.lfs.pointers(self.entries(), self.tree, self._env)

    def read_at_base(self, path: str) -> bytes | None:
        """A file as the base commit has it (repository rules), following symlinks inside the repository; None when
        there is none.  Nothing that a build or a model wrote is read."""
        if self.base_commit is None or "\n" in path:
            return None
        done = git(
            *("cat-file", "--batch", "--follow-symlinks"),
            git_dir=self.git_dir,
            stdin=os.fsencode(f"{self.base_commit}:{path}\n"),
        )
        head, _, rest = done.output.partition(b"\n")
        words = head.split(b" ")
        return rest[: int(words[2])] if len(words) == 3 and words[1] == b"blob" else None

    def why_left_out(self, path: str) -> str:
        """Why no commit will have `path`, with what can be done; "" when one will.  For whoever writes it now."""
        try:
            return self._fates.why_left_out(path)
        except RulesRefused as refused:
            return str(refused)
        except (GitError, StopHeard):  # it is told at the end too, and the file is written
            return ""

    def left_behind(self, written: Iterable[str]) -> list[str]:
        """Of the files that tools wrote, those that are in the tree and not as they are there in the newest commit, one
        line each with the reason.  To be asked after `commit`."""
        written = list(written)
        if not written:
            return []
        listed = self._git("ls-tree", "-r", "-z", "--name-only", "HEAD", check=False).output
        return self._fates.left_behind(written, set(_names(listed)), set(self.uncommitted()))

    def paths(self, seconds: float = 20) -> list[str]:
        """Files of the tree: tracked ones that are there, and new ones that are not ignored.  When looking for new
        ones takes more than `seconds`, the tracked ones alone."""
        listing = ("ls-files", "-z", "--cached", "--deduplicate")
        gone = set(_names(self._git("ls-files", "-z", "--deleted", check=False).output))
        try:
            done = self._git(*listing, "--others", "--exclude-standard", timeout=seconds, check=False)
        except GitError:
            done = self._git(*listing)
        return sorted(set(_names(done.output)) - gone)

    def _span(self, *, own: bool = False) -> tuple[str, str]:
        empty = changes.empty_tree(self.git_dir)
        return (self.start if own else self.base_commit) or empty, self.head() or empty

    def _stage(self) -> Stage:
        return Stage(self.git_dir, self.tree, self._env, uploads=self._uploads)

    def _git(self, *args: str, **options: Any) -> Any:
        return git(*args, git_dir=self.git_dir, work_tree=self.tree, env=self._env, config=TRUE_STAT, **options)


def _names(output: bytes) -> list[str]:
    return [name for name in output.decode("utf-8", "surrogateescape").split("\0") if name]
