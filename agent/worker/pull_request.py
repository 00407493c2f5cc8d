"""Opens the pull request of a task once, and then updates it in place.

`effects.jsonl` records that the pull request was opened, so that a restarted process opens no second one.  After a
person has merged the pull request, later work goes into another one; after a person has closed or removed it, it is not
opened again, unless the host closed it because its branch was removed.  `pull_text.py` composes title and text.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import ForgeRefused, PushRejected
from agent.forge.base import ForgeReports
from agent.issue.closed_by_merge import MERGED
from agent.wiring.private_tracker import is_private
from agent.worker.pull_text import SUMMARY, fitted, is_own_title, marks, merged, summaries
from agent.worker.task_commits import REMOVED

if TYPE_CHECKING:
    from agent.forge.base import IssueText, PullRef
    from agent.work.workspace import Workspace
    from agent.worker.delivery_report import Report
    from agent.worker.task_run import TaskRun

PULL, READY = "pull", "ready"
"""The name of the effect of opening the pull request (for a later pull request the name also has the id of the one
before it), and the name of the receipt that people were asked to review it."""

_NEVER_TAKEN = (413, 422)
"""HTTP statuses with which the forge would refuse a repeated request too: 413 (too large for a proxy), 422 (refused by
the forge)."""

ROOM = 400
"""Number of characters that the text leaves free for the markers of this program."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content that the pull request must show: the delivery, the title (None while the model works), and the end of
    the run."""

    report: Report
    title: str | None
    ready: bool
    summary: str
    ended: str


class PullRequest:
    """The pull request of one run.  `shown` is the newest commit that this process has shown in the pull request, None
    if there is none."""

    def __init__(self, run: TaskRun, issue: IssueText, workspace: Workspace) -> None:
        self.run = run
        self.issue = issue
        self.workspace = workspace
        self.shown: str | None = None
        self.has_asked = False  # whether a call of this process has made the forge ask for a review
        self.is_branch_new = False  # whether the remote did not have the branch before this process pushed to it

    def show(self, report: Report, title: str | None, *, ready: bool, summary: str, ended: str) -> PullRef:
        """Open the pull request for the pushed commits of the report, or update its text and state; with `ready` False
        it is a draft.  `title` is None while the model works, `summary` is the model's summary, `ended` the code of the
        end if it is not `finish`.

        Raises PushRejected if the branch cannot have an open pull request or the forge refuses its text; Fenced if
        another attempt owns the task; or ForgeError.
        """
        if report.base_gone:
            name = ForgeReports(self.run.forge).pull_name()
            said = (
                f"the branch {report.base!r}, onto which it was to go, is gone; {report.branch!r} is pushed and has no "
                f"{name}. Open one onto another branch, or restore {report.base!r} and ask for it again"
            )
            raise PushRejected(said, code="base_missing")
        self.run.check_held()
        with ForgeReports(self.run.forge).single_reads():
            wanted = Wanted(report, title, ready=ready, summary=summary, ended=ended)
            pull = self._opened_or_updated(wanted)
            self._ask_for_review(pull, wanted)
        self.shown = report.commit
        return pull

    def retract(self) -> None:
        """Make an open pull request a draft before more is pushed to its branch, since the new commits are not checked
        yet; also note whether the remote has the branch (`is_branch_new`)."""
        head, there = self.workspace.head(), self.workspace.mirror.commit_of(self.workspace.branch)
        self.is_branch_new = there is None
        if head is None or there in (None, head):
            return
        pull = self._find()
        if pull is not None and pull.state == "open" and not pull.draft:
            # The search for the pull request took time, in which another attempt may have taken over the task.
            self.run.check_held()
            with suppress(ForgeRefused):  # the forge may refuse drafts; then the pull request stays as it is
                self.run.forge.update_pull(self.run.key, pull, draft=True)

    def _opened_or_updated(self, wanted: Wanted) -> PullRef:
        head, is_new = self.workspace.branch, self._is_new()
        pull = None if is_new else self._find()
        if pull is not None and pull.state == "closed" and self.run.effects.receipt(REMOVED) is not None:
            # the host closed the pull request when somebody removed the branch; the branch was pushed again
            if (opened := self._open_once(f"{PULL}-after-{pull.id}", wanted, after=pull)) is not None:
                return opened
            pull = self._find()
        elif pull is None or pull.state == "merged":
            if pull is not None and self.shown == self.workspace.head():
                return pull
            if pull is not None:
                if self.run.effects.receipt(MERGED) is None:
                    self.run.effects.done(MERGED, {"url": pull.url})
                said = f"{pull.url} was merged while the task ran; what came after it is in another"
                self.workspace.reports.extend([said] if said not in self.workspace.reports else [])
            effect = PULL if pull is None else f"{PULL}-after-{pull.id}"
            if (opened := self._open_once(effect, wanted, after=pull, is_new=is_new)) is not None:
                # `opened` may be a pull request that a person has opened for the branch just before
                return opened if self.run.uuid in (opened.body or self.run.uuid) else self._update(opened, wanted)
            pull = self._find()
        if pull is None:
            name = ForgeReports(self.run.forge).pull_name()
            said = f"the {name} of {head} was removed while the task ran, and is not opened again. The branch is "
            raise PushRejected(f"{said}pushed: ask for it again to have another one", code="pull_closed")
        if pull.state != "open":
            said = f"{pull.url} was closed while the task ran, and is not opened again. The branch {head} is pushed: "
            raise PushRejected(f"{said}reopen it, or ask for it again to have another one", code="pull_closed")
        return self._update(pull, wanted)

    def _is_new(self) -> bool:
        """Whether the branch cannot have a pull request of this program, so that none is searched for: the branch is
        named after this task, which is in its first attempt, it was not on the remote before this process pushed to it,
        and no intent to open one is recorded."""
        run, branch = self.run, self.workspace.branch
        is_own = branch.endswith(f"-{run.uuid[:8]}") and run.context.attempt == 1
        return is_own and self.is_branch_new and not any(name.startswith(PULL) for name in run.effects.intended())

    def _open_once(self, effect: str, wanted: Wanted, *, after: PullRef | None, is_new: bool = False) -> PullRef | None:
        """Open the pull request; returns None if `effect` was done before, or if the branch already has another pull
        request than `after`. `is_new`: the branch cannot have a pull request yet (`_is_new`)."""
        run, head = self.run, self.workspace.branch
        opened: list[PullRef] = []

        def look_up() -> dict[str, object] | None:
            found = self._find()
            there = found is not None and (after is None or found.id != after.id)
            return {"id": found.id, "url": found.url} if found is not None and there else None

        def open_it() -> dict[str, object]:
            try:
                pull = self._request(wanted, is_new=is_new)
            # PushRejected, unlike ForgeRefused, gets into the delivery report; a person can remove the cause.
            except ForgeRefused as refused:
                raise PushRejected(f"{refused}. The branch is pushed", code="pull_refused") from refused
            opened.append(pull)
            self.has_asked = not pull.draft
            run.context.set_columns(branch=head, url=pull.url)
            run.events.emit("effect_done", effect="pull", url=pull.url)
            return {"id": pull.id, "url": pull.url}

        run.effects.once(effect, look_up, open_it, is_new=is_new, head=head)
        return opened[0] if opened else None

    def _request(self, wanted: Wanted, *, is_new: bool = False) -> PullRef:
        """Open the pull request on the forge, unless it is open; if the pull request is ready, the forge asks for the
        review. `is_new`: the branch cannot have a pull request of this program yet (`_is_new`)."""
        run, base = self.run, self.workspace.base
        name = run.publish_filter.title(wanted.title or self.issue.title)
        body = merged("", self._part(wanted, None), run.uuid, name)
        run.check_held()
        head = self.workspace.branch
        return run.forge.open_pull(
            run.key, title=name, body=body, head=head, base=base, draft=not wanted.ready, is_new=is_new
        )

    def _ask_for_review(self, pull: PullRef, wanted: Wanted) -> None:
        """If the pull request is ready, see to it that people are asked to review it, and record this once.

        The forge asks for the review when it makes the pull request ready (`has_asked`). If another process has made
        the pull request ready, that process may have died before the review was asked for, so `_ask_for_review` asks
        for it.
        """
        run = self.run
        if not wanted.ready or pull.draft or pull.state != "open" or run.effects.receipt(READY) is not None:
            return
        if not self.has_asked:
            self._request(wanted)
            self._ask_again(pull)
        run.effects.done(READY, {"url": pull.url})

    def _ask_again(self, pull: PullRef) -> None:
        """Ask the person who asked for more work on an earlier task's pull request to review it."""
        if self.run.context.row.get("parent_uuid"):
            self.run.check_held()
            ForgeReports(self.run.forge).ask_again(self.run.key, pull, str(self.run.context.row.get("user") or ""))

    def _part(self, wanted: Wanted, body: str | None) -> str:
        """This program's part of the text of the pull request; `body` is its present text, which may have summaries of
        earlier tasks."""
        run = self.run

        def render(words: str) -> str:
            return run.publish_filter.render(
                "pull_request",
                summary=words,
                ended=wanted.ended,
                issue=self.issue,
                key=run.key,
                uuid=run.uuid,
                report=wanted.report,
                ready=wanted.ready,
                private=is_private(run.settings, run.key.instance),
                marks=marks(run.uuid, SUMMARY),
                earlier=earlier,
                **run.facts(),
            )

        around = len(merged(body, "", run.uuid, "")) + ROOM
        note = f"\n\n… cut; the whole text is in the folder of task {run.uuid}."
        earlier = summaries(body, run.uuid)
        room = run.forge.max_comment - (around if body else ROOM)
        while earlier and len(render("")) > room // 2:
            del earlier[0]
        return fitted(render, wanted.summary, room, note)

    def _update(self, pull: PullRef, wanted: Wanted) -> PullRef:
        """Set the text and state of the pull request; if the pull request is itself the task, it keeps the text of its
        author, and a title that a person has set is never changed."""
        run, title, body = self.run, None, None
        if self.issue.pull is None or self.issue.pull.head != self.workspace.branch:
            if wanted.title and is_own_title(pull.title, pull.body):
                title = run.publish_filter.title(wanted.title)
            body = merged(pull.body, self._part(wanted, pull.body), run.uuid, title or "")
        run.check_held()
        try:
            now = run.forge.update_pull(run.key, pull, title=title, body=body, draft=not wanted.ready)
        except ForgeRefused as refused:
            if refused.status not in _NEVER_TAKEN:
                raise
            raise PushRejected(f"{refused}. The branch is pushed", code="pull_refused") from refused
        if pull.draft and not now.draft:
            self.has_asked = True
            self._ask_again(now)
        return now

    def _find(self) -> PullRef | None:
        return self.run.forge.find_pull(self.run.key, self.workspace.branch)
