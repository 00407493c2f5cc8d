"""Watches for comments and new issues that call the program on issues and pull requests without a task
(`start.mention`).

A mention of the account, or `/makimono` at the beginning, in a comment or in the text of a new issue starts a task, if
a person with permission wrote it. Issues with an open task, and issues of which a task ended a short time ago, are not
watched by `call_watch.py`: the task or the comment poller reads their comments.

The watch for calls stores nothing: after a start, it looks at what was written in the last LOOK_BACK. A comment that
calls the program starts only one task: the ledger accepts the comment's id only once, and among daemons with separate
ledgers the progress comment decides which of them starts the task.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import IssueUnreadable
from agent.forge.base import ForgeReports
from agent.forge.what_starts import start_of
from agent.intake.enqueue import Intake, enqueue_task, priority_of, will_start
from agent.issue import commands
from agent.observe.error_tolerant_loop import ItemLoop
from agent.values import CLOSED_STATUSES
from agent.work.publish import is_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge.base import Comment
    from agent.issue.acknowledge import Acknowledgements
    from agent.values import TaskKey

LOOK_BACK = timedelta(days=1)
"""A call of the program that is older than this starts no task."""
AT_ONCE = 30
"""The maximum number of changed issues of which one poll reads the comments."""
OF_ISSUE = "issue-text"
"""The value of `started_by` of a task that the text of a new issue has started."""


class CallWatch:
    """Watches the listed projects of one forge for calls of the program."""

    def __init__(
        self,
        intake: Intake,
        seen: Acknowledgements,
        skipped: Callable[[str, str], None],
    ) -> None:
        self.intake = intake
        self.seen = seen
        self.skipped = skipped
        # issues of which it was reported that somebody without permission had edited the text
        self.told: set[TaskKey] = set()
        self.items = ItemLoop(skipped)
        self.cursor: str | None = None
        # Changed issues with their texts, in which calls are still to be looked for.
        self.waiting: dict[TaskKey, Comment] = {}
        self.found: dict[TaskKey, tuple[Comment, Comment]] = {}  # issues with a call: (text of the issue, call)

    def read(self) -> None:
        """Look for new calls of the program in at most AT_ONCE changed issues; at a call that will probably start a
        task, show that it was read. `handle` starts the tasks. Raises ForgeError when the forge does not answer; then
        the next poll looks for the calls again."""
        if not start_of(self.intake.forge).mention:
            return
        self.waiting = {key: text for key, (text, _) in self.found.items()} | self.waiting
        self.found.clear()
        cursor = self.cursor or clock.stamp(clock.now() - LOOK_BACK)
        changed, self.cursor = ForgeReports(self.intake.forge).recent_issues(cursor)
        self.waiting |= changed
        for key in list(self.waiting)[:AT_ONCE]:
            text = self.waiting.pop(key)
            with self.items.handling(str(key)):
                try:
                    call = None if self._has_task(key) else self._call_in(key, text)
                except self.items.whole:
                    self.waiting[key] = text
                    raise
                if call is not None:
                    self.found[key] = text, call
                    if will_start(self.intake, key, call.id or OF_ISSUE):
                        self.seen.show(key, call if call.id else None)
        self.items.finish()

    def handle(self, started: list[str]) -> None:
        """Start tasks for the calls that `read` has found; the uuids of the tasks are added to `started`.  Raises
        ForgeError when the forge does not answer; then the next poll looks again."""
        for key in list(self.found):
            text, call = self.found.pop(key)
            with self.items.handling(str(key)):
                try:
                    done = self._start(key, call, started)
                except self.items.whole:
                    self.waiting[key] = text
                    raise
                if not done:
                    self.waiting[key] = text
        self.items.finish()

    def _start(self, key: TaskKey, call: Comment, started: list[str]) -> bool:
        """Start a task for a call of the program; returns whether the issue needs no further look."""
        issue = self.intake.forge.read_issue(key)
        uuid, refused = enqueue_task(
            self.intake,
            key,
            user=call.author,
            title=issue.title,
            priority=priority_of(self.intake.settings, issue.labels),
            started_by=call.id or OF_ISSUE,
        )
        started += [uuid] if uuid is not None else []
        return refused not in ("limit", "refused")

    def _has_task(self, key: TaskKey) -> bool:
        """Whether the issue has an open task, or one that ended so shortly ago that the comment poller reads its
        comments."""
        row = self.intake.ledger.latest(key)
        if row is None:
            return False
        days = timedelta(days=self.intake.settings.context_inheritance.expiry_days)
        is_over = row.status in CLOSED_STATUSES and bool(row.completed_at)
        return not is_over or clock.now() - clock.parse(str(row.completed_at)) < days

    def _call_in(self, key: TaskKey, text: Comment) -> Comment | None:
        """The newest call of the program on an issue: a comment of a person with permission that is no command, or the
        text of the issue itself; None if there is none, or if the issue is a pull request of the program."""
        names = self.intake.forge.own_names()
        try:
            comments = self.intake.forge.comments_since(key, None)[0]
        except IssueUnreadable:
            return None
        for one in reversed(comments):
            if one.id and self._is_new(one) and commands.calls(one, names) and not commands.command_in(one, names):
                return None if self._is_result(key) else one
        if not self._is_new(text) or not commands.calls(text, names):
            return None
        if not ForgeReports(self.intake.forge).author_may_ask(key) or not self._is_of_author(key):
            return None
        return None if self._is_result(key) else text

    def _is_result(self, key: TaskKey) -> bool:
        """Whether the issue `key` is a pull request from a branch of the program, so that its comments belong to the
        task that has opened it."""
        pull = None if key.task_type == "issue" else self.intake.forge.read_issue(key).pull
        return pull is not None and not pull.fork and is_own(pull.head, self.intake.settings.branch.prefix)

    def _is_of_author(self, key: TaskKey) -> bool:
        """Whether nobody without permission has edited title or text of an issue; on GitLab, people who may not ask for
        work can edit an issue."""
        is_altered = bool(self.intake.forge.altered(key))
        if is_altered and key not in self.told:
            self.told.add(key)
            self.skipped(
                str(key),
                "its text calls the program, and somebody who may not write here has edited its title or text; read "
                "it again, then write the call as a comment",
            )
        return not is_altered

    def _is_new(self, one: Comment) -> bool:
        return bool(one.created_at) and clock.now() - clock.parse(one.created_at) < LOOK_BACK
