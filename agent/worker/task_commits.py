"""Commits the work of a task, and describes the commits: size, changed tests, notable paths, hidden text, refusals.

`task_commits.py` publishes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.errors import PushRejected
from agent.forge.base import ForgeReports
from agent.prompts import Live
from agent.prompts.rendering import block
from agent.security.guarded_paths import notable
from agent.security.hidden_diff_lines import hidden_lines
from agent.work import rebase
from agent.work.concurrent_changes import catch_up
from agent.work.verify import touched_tests
from agent.worker.commit_message import signed_off
from agent.worker.delivery_report import Report
from agent.worker.outcome import MENDABLE

if TYPE_CHECKING:
    from agent.values import Public
    from agent.worker.preparation import Prepared
    from agent.worker.task_run import TaskRun

REMOVED = "branch-removed"
"""Name of the receipt that records that somebody removed the branch that the task had pushed."""
PATCH = "changes.patch"
PATCH_LIMIT = 50_000
"""The maximum size in bytes of a patch that a comment shows (at most half the forge's limit for a comment); a longer
patch is only in the task's folder."""


class TaskCommits:
    """Makes and describes the commits of one task. If `pushes` is False, the commits are not pushed but delivered as a
    patch."""

    def __init__(self, run: TaskRun, prepared: Prepared) -> None:
        self.run = run
        self.issue = prepared.claimed.issue
        self.commands = prepared.commands
        self.workspace = prepared.tree.workspace
        self.pushes = prepared.tree.plan.pushes
        self.author = run.author
        self._described: tuple[tuple[str | None, ...], Report] | None = None

    def commit(self, title: str) -> Report:
        """Commit all changes with `title` as the title of the message; returns a report about all commits of the task,
        which is empty if there are none.

        Raises RulesRefused if git must not read a file, or GitError, WorkError, DiskError.
        """
        name, email = self.author
        self.workspace.commit(self._message(title), name=name, email=email)
        return self.describe() if self.workspace.has_commits() else self.report()

    def describe(self) -> Report:
        """A report about the commits of the task, which must have at least one commit.

        The diff of the task can be large, so it is read again only if a commit or a rebase has changed one of the
        commits that it compares."""
        span = (self.workspace.base_commit, self.workspace.start, self.workspace.head())
        if self._described is None or self._described[0] != span:
            self._described = span, self._describe()
        return replace(self._described[1], unrun=self.commands.refusal or "")

    def _describe(self) -> Report:
        paths = self.workspace.changed_paths(own=not self.pushes)
        diff = self.workspace.diff() if self.pushes else self.workspace.patch()
        return self.report(
            changed=True,
            base=self.workspace.base,
            commit=self.workspace.head(),
            stat=self.workspace.diff_stat(own=not self.pushes),
            paths=tuple(self.workspace.changed_paths(own=True)),
            touched_tests=tuple(touched_tests(paths)),
            look=(*notable(paths, look=self.run.settings.policy.look), *hidden_lines(diff)),
        )

    def describe_refused(self) -> Report:
        """A report about a change that cannot be committed; it describes the commits so far, if there are any."""
        if self.workspace.has_commits():
            return self.describe()
        return self.report(changed=True, base=self.workspace.base, commit=self.workspace.head())

    def report(self, **more: Any) -> Report:
        """A report with the branch, with the reason why every command of the model was refused, and with the fields in
        `more`."""
        return Report(self.workspace.branch, unrun=self.commands.refusal or "", **more)

    def refuse(self, report: Report, rejected: PushRejected) -> Report:
        """The report about commits that the repository or the forge refused.

        If the model can correct the reason of the refusal (MENDABLE), the commit is recorded as refused, so that its
        content is not in the history of the next push.
        """
        self.run.events.emit("push_refused", findings=[str(rejected)])
        if rejected.code in MENDABLE:
            self.workspace.update_state(refused=self.workspace.head())
        return replace(report, rejected=str(rejected), code=rejected.code)

    def catch_up(self, report: Report) -> Report:
        """Rebase the task's commits onto the commits that others pushed meanwhile to the task's branch and to its base
        branch. The returned report names the conflicts or the refusal that prevent the rebase; `landed`: the base
        branch contains the whole change already."""
        try:
            moved = catch_up(self.workspace, self.author)
        except PushRejected as rejected:
            return self.refuse(report, rejected)
        if moved.removed:
            self.run.effects.done(REMOVED, {"branch": self.workspace.branch})
        self.workspace.reports.extend(moved.notes)
        if not self.workspace.has_commits():  # the base branch already contains the whole change, from another source
            return self.report(base=self.workspace.base, landed=True)
        return replace(self.describe(), conflicts=moved.conflicts, base_gone=moved.base_gone)

    def conflicts_of_branch(self, report: Report) -> Report:
        """The report for a task that continues on the branch of an earlier one and has changed nothing itself: it has
        the conflicts of that branch with its base, if there are any."""
        workspace = self.workspace
        head = workspace.head()
        if head is None or head == workspace.base_commit:
            return report
        workspace.mirror.fetch()
        base = workspace.mirror.commit_of(workspace.base)
        found = rebase.conflicts(workspace.git_dir, head, base) if base is not None else ()
        return replace(self.describe(), conflicts=found) if found else report

    def are_first(self) -> bool:
        """Whether the repository was empty when the task began, and by the last fetch still has no base branch."""
        return self.workspace.base_commit is None and self.workspace.mirror.commit_of(self.workspace.base) is None

    def merge_base(self) -> str | None:
        """The newest commit of the base branch, as of the last fetch, that the task's newest commit contains; if there
        is none, the base commit at the start of the task, None for a repository that was empty then."""
        workspace = self.workspace
        head, base = workspace.head(), workspace.mirror.commit_of(workspace.base)
        if head is None or base is None:
            return workspace.base_commit
        return rebase.merge_base(workspace.git_dir, head, base) or workspace.base_commit

    def write_patch(self, report: Report) -> Report:
        """Write the change as a patch to a file in the task's folder; the report gets the name of the file, and the
        text if a comment can show it unchanged."""
        path = self.workspace.context_dir / PATCH
        durable_files.write_file(path, self.workspace.patch())
        text = ""
        if path.stat().st_size <= min(PATCH_LIMIT, self.run.forge.max_comment // 2):
            with suppress(UnicodeDecodeError):
                text = path.read_text("utf-8")
        run = self.run
        whole = run.publish_filter.shows_whole(text) and ForgeReports(run.forge).shows_whole(block(text))
        return replace(report, patch=text if whole else "", patch_file=PATCH)

    def _message(self, title: str) -> Public:
        """The commit message, made by the program's template or by the configured one (`commit.template`)."""
        run, issue, wanted = self.run, self.issue, self.run.settings.commit
        if wanted.template is None:
            title = run.publish_filter.masked(title)  # cutting the title before this could leave a part of a secret
            message = run.publish_filter.render("commit", title=title, issue=issue, key=run.key, uuid=run.uuid)
        else:
            message = run.publish_filter.commit_message(
                wanted.template,
                title=" ".join(title.split()),
                issue=" ".join(issue.title.split()),
                key=Live(run.key),
                number=Live(run.key.task_id),
                uuid=Live(run.uuid),
            )
        return signed_off(message, self.author) if wanted.sign_off else message
