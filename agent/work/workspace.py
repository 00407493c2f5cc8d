"""A task's work tree and its git directory: this module creates, checks, commits and describes them.

The folder `workspace/` is the work tree. The commands of the model write to the work tree, so the tree is untrusted
after each command. The folder `git/` beside the work tree belongs to this program. Every git call of `workspace.py`
names the git directory explicitly; git never searches for it in the work tree. A `Workspace` pushes nothing
(`Publisher` pushes) and runs no command of the repository.

`open` can be interrupted at any step and resumes at the next call: `git/` appears by a rename, and
`WorkspaceState.ready` records that the first checkout was complete. Once the first checkout is complete, this module
overwrites only the file `.git` of the tree, except in `move_onto` and `lay_merge`, which require that everything is
committed, and in `take_over`, before the task works in the tree. docs/files.md and docs/security.md, "Git beside a work
tree", have the reasons.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import durable_files, proc
from agent.errors import GitError, RulesRefused, StopHeard, WorkError
from agent.gitcmd import Identity, fields_of, git
from agent.work import changes, conflict_markers, gitdir, rebase, refs, untrusted_tree
from agent.work.commit import TRUE_STAT, Index, commit
from agent.work.commit_exclusions import CommitExclusions
from agent.work.first_state import first_state
from agent.work.lfs import LfsTree
from agent.work.lfs_content import LIMIT, Content
from agent.work.lfs_server import LfsServer
from agent.work.present_changes import present_changes
from agent.work.signing import UNSIGNED, Signing
from agent.work.tree_findings import tree_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.values import FileChange, Public
    from agent.work.changes import DiffStat
    from agent.work.lfs import Pointer
    from agent.work.mirror import Mirror

KEPT_ENTRIES = 2000
"""A result of `Workspace.entries` with at most this number of changes (about 1 MB) stays in memory until there is
another commit."""


class Workspace:
    """The workspace of the task with the folder `context_dir`.

    - `branch`: the task's branch.
    - `base`: the branch from which the task starts (None means the default branch).
    - `owner_uid`: the user that runs commands when this process is root.
    - `start_at`: a branch or commit of the mirror at which to start instead of the base (the work of an earlier task).
    - `isolated`: False when commands run without a sandbox; they then see the git directory at its path on the host.
    - `signing`: the key that signs every commit.
    - `pushes`: False when the change is delivered as a patch, which cannot contain content of Git LFS.
    - `lfs_limit`: the maximum number of bytes of Git LFS content that a new tree gets.
    - `largest`: the maximum number of bytes that the host accepts for one file; a larger file is not committed.

    `reports` collects notes for a person about faults that do not prevent publication: a `.git` file that was put back,
    a FIFO that was left out. `too_large` lists the files that the last commit left out for their size, one line each.
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
        largest: int | None = None,
    ) -> None:
        self.context_dir = context_dir.absolute()
        self.mirror = mirror
        self.tree = self.context_dir / "workspace"
        self.git_dir = self.context_dir / "git"
        self.gitdir_inside = untrusted_tree.INSIDE if isolated else str(self.git_dir)
        self.branch = branch
        self.signing = signing
        self.largest = largest
        self.reports: list[str] = []
        self.instructions = ""  # rules in `.makimono.yaml` for the model
        self.too_large: list[str] = []
        self._left_out: list[str] = []
        self._wanted_base = base.removeprefix("refs/heads/") if base else None
        self._start_at = start_at
        self.owner_uid = owner_uid if os.geteuid() == 0 else None
        self._env = {proc.MARK: self.context_dir.name}
        self._state: gitdir.WorkspaceState | None = None
        self._entries: tuple[str | None, str, list[changes.RawChange]] | None = None
        server = LfsServer(mirror.remote, lambda: self.read_at_base(".lfsconfig"))
        self.lfs = Content(self.git_dir, mirror.path, server, lfs_limit, self.reports)
        self._uploads = pushes and server.is_reachable()
        self._fates = CommitExclusions(self.git_dir, self.tree, self._env, lfs=self._uploads)

    # --- opening -------------------------------------------------------------------------------------------------

    def open(self, begin: gitdir.WorkspaceState | None = None) -> None:
        """Create the workspace, or resume an existing one.

        `begin`: the state from which a new workspace is created, if the caller has such a state.

        Raises BaseMissing if the base branch does not exist; the error lists the branches that exist. A tree keeps its
        content if its first checkout was complete.
        """
        state = gitdir.read_state(self.git_dir)
        if state is None:
            with self.mirror.locked():
                state = begin or first_state(self.mirror, self.branch, self._wanted_base, self._start_at)
                gitdir.create_git_dir(self.git_dir, self.mirror, state)
        self._state = state
        self.branch = state.branch
        gitdir.remove_locks(self.git_dir)
        gitdir.borrow(self.git_dir, self.mirror.path)
        if (not state.ready and self.head() == state.start) or not self.tree.is_dir():
            self._check_out()
        else:
            self._repair_index()
            self._finish_move()
            self._finish_merge()
        if untrusted_tree.write_gitfile(self.tree, self.gitdir_inside) and state.ready:
            self.reports.append("the file .git in the work tree was changed and has been put back")
        if not state.ready or state.gone:
            self.update_state(ready=True, gone=False)

    def _check_out(self) -> None:
        """Fill the work tree, which has no work of the task yet or does not exist, from HEAD."""
        untrusted_tree.clear(self.tree)
        (self.git_dir / "index").unlink(missing_ok=True)  # a power loss may have left an unreadable index  # ours
        self._lay(self.head())
        self._report_what_is_missing()

    def _lay(self, content: str | None) -> None:
        """Set the files of the work tree to those of the commit or tree `content`, with the content of Git LFS, and
        give them to `owner_uid`. If `content` is None, git writes no file."""
        untrusted_tree.enterable(self.tree)
        if content is not None:
            self._git("read-tree", "--reset", "-u", content, timeout=1800)
        filled = self.lfs.fill(self.tree, self._env)
        if self.owner_uid is not None:
            untrusted_tree.change_owner(self.tree, self.owner_uid)
            self._git("update-index", "-q", "--refresh", check=False, timeout=600)
        LfsTree(self.git_dir, self.tree, self._env).add((), filled)
        durable_files.sync_tree(self.tree)

    def _report_what_is_missing(self) -> None:
        """Report submodules and Git LFS files that are not in the tree.

        Submodules are not fetched because their addresses come from the repository.  Git LFS content may be
        unavailable, or exceed the limit.
        """
        if modules := self._fates.submodules():
            self.reports.append(f"submodules are not checked out: {untrusted_tree.first_shown(modules)}")
        if kept := sorted(LfsTree(self.git_dir, self.tree, self._env).pointers()):
            names = untrusted_tree.first_shown(kept)
            self.reports.append(f"Git LFS files are not downloaded; the tree has their pointers: {names}")

    def _repair_index(self) -> None:
        """Rebuild the index if a power loss has damaged it; the tree does not change."""
        try:
            done = self._git("update-index", "-q", "--refresh", "--ignore-submodules", check=False, timeout=600)
        except RulesRefused as refused:  # before the next commit the model can correct the file that git must not read
            self.reports.append(str(refused))
            return
        if done.returncode > 1:  # exit code 1 of `update-index` means only that files differ
            (self.git_dir / "index").unlink(missing_ok=True)  # ours
            self._read_index(self.head())

    def update_state(self, **fields: Any) -> None:
        """Change fields of `git/makimono.json`."""
        self._state = replace(self.state, **fields)
        self._state.write(self.git_dir)

    @property
    def state(self) -> gitdir.WorkspaceState:
        """The content of `git/makimono.json`: branch, base, and the unfinished steps of the workspace. Raises WorkError
        before `open`."""
        if self._state is None:
            raise WorkError("the workspace is not open")
        return self._state

    @property
    def base(self) -> str:
        """The name of the base branch."""
        return self.state.base

    @property
    def base_commit(self) -> str | None:
        """The commit of the base branch against which the work is compared; None in an empty repository."""
        return self.state.base_commit

    @property
    def start(self) -> str | None:
        """The commit after which the branch has this task's own commits: the base commit, or the newest commit of an
        earlier task's work; None in an empty repository."""
        return self.state.start

    def mounts(self, home: Path | None = None, read_only: tuple[Path, ...] = ()) -> dict[str, Any]:
        """The keyword arguments of `sandbox.Mounts` for a command of this task.

        `mounts` also gives the owner access to the tree's top folder again, because after `chmod 000 .` no further
        command could start.
        """
        untrusted_tree.enterable(self.tree)
        folders = {"work": self.tree, "git": self.git_dir, "mirror": self.mirror.path}
        return {**folders, "home": home, "read_only": read_only}

    # --- judging and committing ----------------------------------------------------------------------------------

    def guard(self) -> list[str]:
        """Put the `.git` file of the work tree back, and list the reasons against a publication; notes that do not
        prevent one are added to `reports`."""
        self._put_gitfile_back()
        own = self.entries() if self.has_commits() else []
        found = tree_findings(self.git_dir, self.tree, self.base_commit, self.head(), own)
        self.reports.extend(line for line in found.notes if line not in self.reports)
        return found.reasons

    def _put_gitfile_back(self) -> None:
        """Put the `.git` file of the work tree back if it was changed, and report the change."""
        if untrusted_tree.write_gitfile(self.tree, self.gitdir_inside):
            self.reports.append("the file .git in the work tree was changed and has been put back")

    def commit(self, message: Public, *, name: str, email: str) -> str | None:
        """Commit every change of the tree that belongs in the repository; returns the commit, or None if there is no
        change.

        If the checks before publication refused the newest commits, `commit` first takes these back: the refused
        content must not stay in the history. Raises RulesRefused if conflict marks of a merge are left.
        """
        if self.state.refused is not None:
            if self.state.refused == self.head():
                self.take_back()
            self.update_state(refused=None)
        self._put_gitfile_back()
        self._finish_merge()
        if left := conflict_markers.files_with_conflict_marks(self.tree, self.state.unresolved):
            raise RulesRefused(left)
        stage = self._stage()
        said, self._left_out = self._left_out, stage.update()
        self.reports[:] = [*(line for line in self.reports if line not in said), *self._left_out]
        self.too_large = stage.too_large
        by, merged = Identity(name, email), self.state.merging
        made = commit(self.git_dir, self.branch, self.head(), message, by, self._env, self.signing, merged)
        self._finish_merge()
        return made

    def take_back(self, target: str | None = None) -> None:
        """Undo commits that must not be published, down to `target` (default: the last pushed commit, else the start of
        the task), so that their content leaves the history before the next push; the tree keeps every change."""
        goal, base = target or self._last_pushed() or self.start, self.base_commit
        merges = base is not None and goal is not None and not rebase.is_ancestor(self.git_dir, base, goal)
        self._point_at(goal, "take back")
        if merges:  # a merge of the base was taken back, so the next commit must be this merge again
            self.update_state(merging=base)

    def replace_commits(self, head: str, made: Mapping[str, str]) -> None:
        """Move the task's branch from `head` to the commits that replace its own (`made`: old hash → new hash). Each
        new commit has the tree of the one that it replaces, so neither the files nor the index change."""
        self._move_branch(made.get(head, head), "signed", expected=head)

    def _point_at(self, commit: str | None, why: str) -> None:
        """Set the task's branch and the index to `commit` (None means before the first commit); the tree does not
        change."""
        self._move_branch(commit, why)
        self._read_index(commit)

    def _move_branch(self, commit: str | None, why: str, expected: str | None = None) -> None:
        refs.set_ref(self.git_dir, f"refs/heads/{self.branch}", commit, why=why, expected=expected, env=self._env)

    def _read_index(self, commit: str | None) -> None:
        self._git("read-tree", *(("--reset", commit) if commit else ("--empty",)))

    def _last_pushed(self) -> str | None:
        """The commit that was pushed last, if the branch still contains it; else None."""
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
        """Rebase the commits after `since` onto `target`, and move branch and tree there; everything must be committed.

        Raises RebaseConflict if the commits conflict; then nothing is changed.

        `base_commit` is the new commit with which the work is compared; `pushed` is the commit that the remote is known
        to have.  If the move is interrupted, the next `open` finishes it.
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
        self._lay(target)
        self._move_branch(target, "rebase")
        self.update_state(moving=None)

    def lay_merge(self, base: str) -> tuple[str, ...]:
        """Put a merge with the commit `base` into the work tree, with conflict marks in the conflicting files;
        everything must be committed before. After `lay_merge` the next commit of the task is the merge commit. Returns
        the conflicting paths.

        If `lay_merge` is interrupted, the next `open` puts the merge into the tree completely."""
        tree, paths = rebase.merged_tree(self.git_dir, self.branch, base)
        self.update_state(merging=base, laying=tree, unresolved=paths)
        self._finish_merge()
        return paths

    def _finish_merge(self) -> None:
        state = self.state
        if state.laying is not None:
            self._lay(state.laying)
            self.update_state(laying=None)
        head = self.head()
        if state.merging is not None and head is not None and rebase.is_ancestor(self.git_dir, state.merging, head):
            self.update_state(merging=None, unresolved=(), start=state.merging, base_commit=state.merging)

    def take_over(self, made: str, head: str | None, **fields: Any) -> None:
        """Set the task's branch to `head`, and the files to those of the tree `made` (uncommitted work from another
        host), or to those of `head` if `made` is "". `fields` are changes of the workspace's state."""
        self._lay(made or head)
        self._point_at(head, "take over")
        self.update_state(**fields)

    def import_commits(self, git_dir: Path, commit: str, *, refused: bool) -> None:
        """Start with commits that an earlier task has not published: fetch them from its git directory `git_dir`, in
        which HEAD is `commit`, and set this task's branch and files to `commit`. This task's work tree must not contain
        any work yet. `refused`: the checks before publication refused the commits up to `commit`, so the next commit of
        this task replaces them. If GitError is raised, the tree stays as it was created."""
        ref = "refs/makimono/earlier"
        serve = ("--upload-pack", "git -c safe.directory=* upload-pack")
        git(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *serve, "--", str(git_dir), f"+HEAD:{ref}"),
            git_dir=self.git_dir,
            env=self._env,
            config=("safe.directory=*",),
            timeout=600,
        )
        self.take_over("", commit, refused=commit if refused else None)
        refs.set_ref(self.git_dir, ref, None, env=self._env)

    def discard(self, written: Iterable[str] = ()) -> bool:
        """Remove the tree if the remote has all of its content in commits; else return False and remove nothing.

        `written` are the files that tools wrote: if one of them is in no commit, the tree is not removed either.
        Ignored files that commands left in the tree are deleted with it. The git directory stays, with only the objects
        of this task; `open` creates the tree again when it is needed.
        """
        unpublished = self.has_commits() and self.state.pushed != self.head()
        if unpublished or self.uncommitted() or self.left_behind(written):
            return False
        self.update_state(gone=True, setup="")
        untrusted_tree.remove(self.tree)
        (self.git_dir / "index").unlink(missing_ok=True)  # ours
        return True

    def uncommitted(self) -> list[str]:
        """Changed and new paths; the next commit takes those that belong in the repository."""
        return self._stage().uncommitted()

    def unknown(self, *, ignored: bool = True) -> list[str]:
        """Untracked files of the tree, with `ignored` also those that an ignore rule excludes; [] if git fails or must
        not read the tree.

        A stop request does not interrupt the search for untracked files, since a task that ends because of a full disk
        still needs the list of these files.
        """
        options = () if ignored else ("--exclude-standard",)
        try:
            return fields_of(self._git("ls-files", "-z", "--others", *options, hears=False).output)
        except (GitError, RulesRefused):
            return []

    # --- describing ----------------------------------------------------------------------------------------------

    def head(self) -> str | None:
        """The newest commit of the task's branch; None if the branch has no commit (empty repository)."""
        return refs.read_ref(self.git_dir, "HEAD")

    def has_commits(self) -> bool:
        """Whether this task has committed anything.

        The pushed commits of an attempt on another host count too: if this attempt produced the same content, it makes
        no commit of its own.
        """
        head = self.head()
        return head != self.start or (self.state.pushed is not None and head != self.base_commit)

    def diff_stat(self, *, own: bool = False) -> DiffStat:
        """Number of files and lines that the task's branch changes against the base commit, or with `own` only those
        that the task's own commits change."""
        return changes.diff_stat(self.git_dir, *self._span(own=own))

    def changes_now(self, seconds: float = 20) -> list[FileChange]:
        """The difference between the work tree and the base commit, committed or not, sorted by modification time with
        the newest file last.  Files that no commit will contain (ignored files) are left out.  Raises GitError if git
        takes more than `seconds`."""
        base = self.base_commit or changes.empty_tree(self.git_dir)
        committed, env, most = self.changed_paths(), self._env, self.largest
        return present_changes(self.git_dir, self.tree, base, committed, env=env, largest=most, seconds=seconds)

    def diff(self) -> Iterator[bytes]:
        """The changes of the task's branch against the base commit, as chunks of a diff."""
        return changes.diff(self.git_dir, *self._span())

    def patch(self) -> Iterator[bytes]:
        """This task's changes as a patch for `git apply`, binary files included."""
        return changes.patch(self.git_dir, *self._span(own=True))

    def changed_paths(self, *, own: bool = False) -> list[str]:
        """Paths that the task's branch changes against the base commit, or with `own` only those that the task's own
        commits change; a rename counts with its old and its new path."""
        return changes.changed_paths(self.git_dir, *self._span(own=own))

    def history(self, since: str | None = None) -> Iterator[bytes]:
        """The messages and changes, as a diff, of every commit since `since` or else since the start of the task;
        the content of Git LFS files is not in the result, although a push uploads that content too."""
        head, old = self.head(), since or self.start
        return changes.history(self.git_dir, old, head) if head and head != old else iter(())

    def entries(self) -> list[changes.RawChange]:
        """Every change of every path in every commit since the start of the task."""
        start, head = self.start, self.head()
        if not head or head == start:
            return []
        # The entries are cached, since each step of a push needs them.
        if self._entries is not None and self._entries[:2] == (start, head):
            return list(self._entries[2])
        found = changes.entries(self.git_dir, start, head)
        self._entries = (start, head, found) if len(found) <= KEPT_ENTRIES else None
        return list(found)

    def bare_folders(self, entries: Sequence[changes.RawChange]) -> list[str]:
        """Folders at HEAD that git would treat as a bare repository, and that contain a path changed by `entries`."""
        head = self.head()
        return changes.bare_folders(self.git_dir, entries, head) if head else []

    def lfs_pointers(self) -> dict[Pointer, str]:
        """Pointer → path, for the Git LFS content that the task's commits need on the remote."""
        return self.lfs.pointers(self.entries(), self.tree, self._env)

    def read_at_base(self, path: str) -> bytes | None:
        """The content of a file in the base commit (for rules of the repository), following symlinks inside the
        repository; None if it does not exist.  Content that a build or a model wrote is not read, since only the base
        commit is read."""
        return None if self.base_commit is None else changes.file_at(self.git_dir, self.base_commit, path)

    def why_left_out(self, path: str) -> str:
        """The reason why no commit will contain the file `path`, with advice; "" if a commit will contain it, or git
        cannot find that out now.

        A tool calls `why_left_out` when it writes a file.
        """
        try:
            return self._fates.why_left_out(path)
        except RulesRefused as refused:
            return str(refused)
        # if git fails or a stop came, no reason is given: the file is already written, and `left_behind` will report it
        except (GitError, StopHeard):
            return ""

    def left_behind(self, written: Iterable[str]) -> list[str]:
        """The files that tools wrote and that exist in the tree, but are missing or different in the newest commit: one
        line each with the reason.  `left_behind` must be called after `commit`."""
        written = list(written)
        if not written:
            return []
        listed = self._git("ls-tree", "-r", "-z", "--name-only", "HEAD", check=False).output
        return self._fates.left_behind(written, set(fields_of(listed)), set(self.uncommitted()))

    def _span(self, *, own: bool = False) -> tuple[str, str]:
        empty = changes.empty_tree(self.git_dir)
        return (self.start if own else self.base_commit) or empty, self.head() or empty

    def _stage(self) -> Index:
        return Index(self.git_dir, self.tree, self._env, uploads=self._uploads, largest=self.largest)

    def _git(self, *args: str, **options: Any) -> Any:
        return git(*args, git_dir=self.git_dir, work_tree=self.tree, env=self._env, config=TRUE_STAT, **options)
