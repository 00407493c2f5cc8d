"""The pull request of a task: opened once, then updated in place.

`effects.jsonl` records the opening, so that a restart opens no second pull request.  A pull request that a person has
merged stays merged, and later work goes into another pull request; one that a person has closed or removed is not
opened again.  `delivery.py` calls this module after each push.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeRefused, PushRejected
from agent.wiring.private_tracker import is_private

if TYPE_CHECKING:
    from agent.forge.base import IssueText, PullRef
    from agent.values import Public
    from agent.work.workspace import Workspace
    from agent.worker.delivery_report import Report
    from agent.worker.session import TaskRun

_NEVER_TAKEN = (413, 422)
"""Statuses that the same request would get again: 413 (too large for a proxy), 422 (refused by the forge)."""


class PullRequest:
    """The pull request of one run.  `shown` is the commit that the pull request shows, as far as this process knows."""

    def __init__(self, run: TaskRun, issue: IssueText, workspace: Workspace) -> None:
        self.run = run
        self.issue = issue
        self.workspace = workspace
        self.shown: str | None = None

    def show(self, report: Report, title: str, *, ready: bool, summary: str, ended: str) -> PullRef:
        """Open the pull request for the pushed commits of the report, or update its text and state; with `ready` False
        it is a draft.  `summary` is the summary of the model, `ended` the code of an end that is not `finish`.

        Raises PushRejected when the branch can have no open pull request; ForgeError; or Fenced, before anything is
        done."""
        run = self.run
        if report.base_gone:
            said = (
                f"the branch {report.base!r}, onto which it was to go, is gone; {report.branch!r} is pushed and has no "
                f"pull request. Open one onto another branch, or restore {report.base!r} and set the label again"
            )
            raise PushRejected(said, code="base_missing")
        body = run.publish_filter.render(
            "pull_request",
            summary=summary,
            ended=ended,
            issue=self.issue,
            key=run.key,
            uuid=run.uuid,
            report=report,
            ready=ready,
            private=is_private(run.settings, run.key.instance),
            **run.facts(),
        )
        run.check_held()
        pull = self._opened_or_updated(run.publish_filter.title(title), body, draft=not ready)
        self.shown = report.commit
        return pull

    def _opened_or_updated(self, title: Public, body: Public, *, draft: bool) -> PullRef:
        head = self.workspace.branch
        if (opened := self._open_once("pull", title, body, draft=draft)) is not None:
            return opened
        pull = self._find()
        if pull is not None and pull.state == "merged":
            if self.shown == self.workspace.head():
                return pull
            self.workspace.reports.append(f"{pull.url} was merged while the task ran; what came after it is in another")
            if (opened := self._open_once(f"pull-after-{pull.id}", title, body, draft=draft)) is not None:
                return opened
            pull = self._find()
        if pull is None:
            said = f"the pull request of {head} was removed while the task ran, and is not opened again. The branch is "
            raise PushRejected(f"{said}pushed: set the label again to have another one", code="pull_closed")
        if pull.state != "open":
            said = f"{pull.url} was closed while the task ran, and is not opened again. The branch {head} is pushed: "
            raise PushRejected(f"{said}reopen it, or set the label again to have another one", code="pull_closed")
        return self._update(pull, title, body, draft=draft)

    def _open_once(self, effect: str, title: Public, body: Public, *, draft: bool) -> PullRef | None:
        """Open the pull request, unless `effect` has happened or the branch has a pull request that is not merged;
        returns None in these cases."""
        run, head = self.run, self.workspace.branch
        opened: list[PullRef] = []

        def look_up() -> dict[str, object] | None:
            found = self._find()
            return None if found is None or found.state == "merged" else {"id": found.id, "url": found.url}

        def open_it() -> dict[str, object]:
            base = self.workspace.base
            try:
                pull = run.forge.open_pull(run.key, title=title, body=body, head=head, base=base, draft=draft)
            except ForgeRefused as refused:  # a retry would change nothing, but a person can
                raise PushRejected(f"{refused}. The branch is pushed", code="pull_refused") from refused
            opened.append(pull)
            run.events.emit("effect_done", effect="pull", url=pull.url)
            return {"id": pull.id, "url": pull.url}

        run.effects.once(effect, look_up, open_it, head=head)
        return opened[0] if opened else None

    def _update(self, pull: PullRef, title: Public, body: Public, *, draft: bool) -> PullRef:
        """Set the text and state of the pull request; a pull request that is the task itself keeps the text of its
        author."""
        itself = self.issue.pull is not None and self.issue.pull.head == self.workspace.branch
        texts = {"title": None, "body": None} if itself else {"title": title, "body": body}
        try:
            return self.run.forge.update_pull(self.run.key, pull, **texts, draft=draft)
        except ForgeRefused as refused:
            if refused.status not in _NEVER_TAKEN:
                raise
            raise PushRejected(f"{refused}. The branch is pushed", code="pull_refused") from refused

    def _find(self) -> PullRef | None:
        return self.run.forge.find_pull(self.run.key, self.workspace.branch)
