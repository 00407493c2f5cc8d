"""Publishes a changed work tree as a branch that can be reviewed: commit, push, pull request, check, ready.

`checkpoint` is called after a turn that finished a step of the model's plan, and `deliver` when the model's work has
ended. Every outside step of a delivery is recorded in `effects.jsonl` or is idempotent by itself, so that a restarted
process can repeat it without harm (docs/files.md, "Outside effects"; docs/operations.md, "The check").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import ForgeError, GitError, PolicyViolation, PushRejected, RulesRefused, WorkError
from agent.values import End
from agent.wiring.private_tracker import keep_pull
from agent.worker.commit_check import check_commit
from agent.worker.outcome import decide, is_checked, may_be_ready
from agent.worker.pull_request import PullRequest
from agent.worker.task_commits import TaskCommits

if TYPE_CHECKING:
    from agent.values import Outcome
    from agent.worker.delivery_report import Report
    from agent.worker.preparation import Prepared
    from agent.worker.task_run import TaskRun


class Delivery:
    """Publishes the work of one task.

    If the run is not `publishing` (in `replay`), the delivery commits and checks the work, but pushes nothing. If the
    BranchPlan does not push (a fork's pull request), the change is handed over as a patch."""

    def __init__(self, run: TaskRun, prepared: Prepared) -> None:
        self.run = run
        self.issue = prepared.claimed.issue
        self.commands = prepared.commands
        self.publisher = prepared.publisher
        self.workspace = prepared.tree.workspace
        self.commits = TaskCommits(run, prepared)
        self.pull_request = PullRequest(run, prepared.claimed.issue, self.workspace)

    def commit(self) -> bool:
        """Commit all changes and publish nothing; returns whether the task has any commits.

        Raises GitError, WorkError or DiskError.
        """
        return self.commits.commit(self.issue.title).changed

    def checkpoint(self, title: str) -> Report:
        """Commit the changes under `title`, push them, and open the draft pull request, which has the title of the
        issue.

        Findings and errors (ForgeError, GitError, WorkError) are returned in the report and not raised: the run
        continues, and `deliver` at its end tries again.
        """
        report = self.commits.report()
        try:
            report = self.commits.commit(title)
            return self._publish(report, None, ready=False) if report.changed else report
        except (ForgeError, GitError, WorkError) as error:
            self.run.events.emit("push_refused", findings=[str(error)])
            return replace(report, rejected=str(error))

    def deliver(self, outcome: Outcome) -> Report:
        """Commit, rebase onto commits that others have pushed meanwhile, push a draft, and run the check. If there is
        no problem, mark the pull request as ready; if neither a check nor reviewers are configured, open it as ready.

        A refusal that the model or a person can correct is in the report. ForgeError and GitError are raised, and the
        caller can try the delivery again."""
        title = outcome.title or self.issue.title
        try:
            report = self.commits.commit(title)
            behind = [*self.workspace.too_large, *self.workspace.left_behind(self.run.written_paths())]
        # The rules refused a file: nothing can be committed until the model has corrected it.
        except RulesRefused as refused:
            self.run.events.emit("push_refused", findings=list(refused.findings))
            return replace(self.commits.describe_refused(), findings=refused.findings)
        self.workspace.reports.extend(line for line in behind if line not in self.workspace.reports)
        if report.changed:
            report = self._deliver(outcome, report, title)
        elif self.run.publishing and self.commits.pushes and outcome.end is End.FINISHED:
            report = self.commits.conflicts_of_branch(report)
        return replace(report, left_behind=tuple(behind))

    def _deliver(self, outcome: Outcome, report: Report, title: str) -> Report:
        run = self.run
        if run.publishing and self.commits.pushes:
            report = self.commits.catch_up(report)
            if report.rejected or not report.changed:
                return report
        ended = "" if outcome.end is End.FINISHED else decide(outcome, report).code
        words = {"summary": outcome.summary, "ended": ended}
        checks, asks = run.settings.verify.command, run.settings.consensus.enabled
        is_settled = not (is_checked(outcome) and (checks or asks))
        report = self._publish(report, title, ready=is_settled and may_be_ready(outcome, report), **words)
        if is_checked(outcome) and checks:
            report = check_commit(run, self.commands, report, checks)
        if not self.commits.pushes and not report.findings:
            report = self.commits.write_patch(report)
        report = self._reviewed(outcome, report)
        if report.pull is not None and not is_settled:
            report = self._publish(report, title, ready=may_be_ready(outcome, report), **words)
        if report.pull is not None:
            keep_pull(run.settings, run.key.instance, report.pull, self.workspace.context_dir)
        return report

    def _reviewed(self, outcome: Outcome, report: Report) -> Report:
        """Ask the reviewers, if enabled, about work that may be ready; a replay uses the decision that was recorded."""
        run = self.run
        is_shown = report.pull is not None or not run.publishing
        if not (is_shown and may_be_ready(outcome, report) and is_checked(outcome) and run.settings.consensus.enabled):
            return report
        from agent.worker.review import reviewed

        return reviewed(run, self.issue, self.workspace, report, self.commands.sandbox.kind)

    def _publish(self, report: Report, title: str | None, *, ready: bool, summary: str = "", ended: str = "") -> Report:
        """Without findings, push the commits and show them in the pull request, if the run publishes and the branch
        plan pushes. Findings and a rejected push are in the returned report."""
        try:
            self.publisher.check()
        except PolicyViolation as violation:
            self.run.events.emit("push_refused", findings=list(violation.findings))
            return replace(report, findings=violation.findings or (str(violation),))
        if not (self.run.publishing and self.commits.pushes):
            return report
        self.run.check_held()
        try:
            self.pull_request.retract()
            report = replace(report, commit=self.publisher.push())  # the host's own commit, if the host signs commits
            if self.commits.are_first():
                return replace(report, first=True)
            pull = self.pull_request.show(report, title, ready=ready, summary=summary, ended=ended)
        except PushRejected as rejected:
            return self.commits.refuse(report, rejected)
        self.run.context.set_columns(head_commit=report.commit, base_commit=self.commits.merge_base())
        return replace(report, pull=pull)
