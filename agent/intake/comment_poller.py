"""Reads the comments of people on tasks on which no worker works: tasks that wait, and tasks that have ended.

When a person answers the question of a task, the task continues. The commands `/stop`, `/pause`, `/resume` and `/retry`
in comments are executed. A waiting task that a worker has begun is stopped when a person closed or deleted its issue,
removed its label or unassigned it, but not when a merge of its pull request closed the issue. For
`context_inheritance.expiry_days` after the end of a task, a comment that calls the program, `/retry`, or a review that
requests changes starts a new task that continues the ended one (docs/forges.md, "Talk"). Red CI of the pull request of
an ended task also starts a task that continues it (`ci_watch.py`).

The comment poller needs few requests: lists per repository return the changed issues (`Forge.changed_since`), and only
the comments of changed issues are read. No comment takes effect twice: the task's row stores the id of each executed
command's comment, and the ledger accepts the id of a comment that starts a task only once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from agent import clock
from agent.context.outside_effects import receipt_in
from agent.errors import ClaimLost, ForgeError, ForgeLimited, IssueUnreadable, UsageError
from agent.forge.base import ForgeReports
from agent.forge.what_starts import start_of
from agent.intake.call_watch import CallWatch
from agent.intake.ci_watch import CiWatch
from agent.intake.enqueue import Intake, continue_task, will_start
from agent.issue import commands
from agent.issue.acknowledge import Acknowledgements
from agent.issue.ci_rounds import line_of
from agent.issue.claims import is_held, over_in, shown_end
from agent.issue.close_ended_row import adopt_end
from agent.issue.closed_by_merge import MERGED, is_closed_by_merge
from agent.issue.ineffective_commands import post_reply
from agent.issue.publish_filter import PublishFilter
from agent.issue.status import WAITING, show_status
from agent.issue.stop_reason import reason_on_forge
from agent.observe.error_tolerant_loop import ItemLoop
from agent.taskqueue.row_holder import owner
from agent.values import CLOSED_STATUSES, Status
from agent.worker.inbox import comments_since, for_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from agent.config import Settings
    from agent.forge.base import Comment, Forge, PullRef
    from agent.intake.enqueue import Refusal
    from agent.issue.ineffective_commands import Why
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row
    from agent.taskqueue.transitions import Request
    from agent.values import TaskKey

SKEW = timedelta(minutes=10)
"""The largest allowed difference between the forge's clock and the local clock: a change of an issue concerns an ended
task unless the change is more than SKEW before the end of the task."""

PAUSED_SECONDS = 3600.0
"""The interval in seconds at which a waiting task is checked even if no change of its issue was listed, since no list
shows that an issue was deleted."""


@dataclass(frozen=True, slots=True)
class ReadChange:
    """What `read` has found on the issue of one task: the comments since the last run; for an ended task only those
    that concern the task.  `is_stopped`: a person ended the waiting task on the forge."""

    row: Row
    comments: tuple[Comment, ...] = ()
    is_stopped: bool = False


class CommentPoller:
    """Polls the comments of one forge, first `read`, then `handle`.

    A CommentPoller stores its position in the lists of changes and the changes that it has not processed; the state of
    the tasks is in the rows of the ledger.
    """

    def __init__(self, settings: Settings, ledger: Ledger, forge: Forge, events: Events) -> None:
        self.settings = settings
        self.ledger = ledger
        self.forge = forge
        self.events = events
        self.intake = Intake(settings, ledger, forge, events)
        self.cursor: str | None = None
        self.stirred: set[TaskKey] = set()  # keys of the tasks whose issues the next `read` reads
        # (uuid, attempt, status) of the rows that no worker had at the last poll
        self.released: set[tuple[str, int, Status]] | None = None
        self.watched: Mapping[TaskKey, Row] = {}  # the watched tasks of the last `read`
        self.found: dict[TaskKey, ReadChange] = {}  # what the last `read` has found and `handle` has not processed yet
        self.has_changed = False
        self.failed: ForgeError | None = None
        self.paused_at = -PAUSED_SECONDS
        # keys of tasks (a part of `stirred`) for which processing failed at the last poll; they are processed last
        self.late: set[TaskKey] = set()
        self.seen = Acknowledgements(forge, events)
        self.items = ItemLoop(self._skipped)
        self.rows = ItemLoop(self._skipped)
        self.calls = CallWatch(self.intake, self.seen, self._skipped)
        self.ci = CiWatch(self.intake, self._skipped)

    def read(self) -> None:
        """Read the comments on the changed issues, and show at each request of a person that it was read; `handle`
        executes the requests. If the forge fails, `handle` raises the error."""
        self.failed = None
        # the issues that an earlier poll has read and, because of an error, not handled are read again
        self.items.begin_anew()
        self.stirred |= self.found.keys()
        self.found.clear()
        try:
            self.calls.read()
            self._read_changes()
        except ForgeError as error:
            self.failed = error

    def handle(self, started: list[str]) -> bool:
        """Execute the requests that `read` has found, then read the checks of pull requests (`ci_watch.py`); returns
        whether any watched issue has changed.

        The uuids of the tasks that the requests start are added to `started`. If a newer task of an issue was queued
        since `read`, the comments on that issue wait for the next poll. Raises ForgeError when the forge does not
        answer; then the next poll processes the remaining changes.
        """
        self.calls.handle(started)
        if isinstance(self.failed, ForgeLimited):
            raise self.failed
        for key in list(self.found):
            change = self.found.pop(key)
            with self.items.handling(str(key)):
                try:
                    done, uuid = self._answer(change)
                except self.items.whole:
                    self.stirred.add(key)
                    self.late.add(key)
                    raise
                started += [uuid] if uuid is not None else []
                self.late.discard(key)
                if not done:
                    self.stirred.add(key)
        self.late &= self.stirred
        self.items.finish()
        if self.failed is not None:
            raise self.failed
        self.ci.poll(self.watched.values(), started)
        return self.has_changed

    def _read_changes(self) -> None:
        """Read the comments on the issues that have changed, into `found`."""
        self.watched, self.has_changed = self._watched(), False
        rows = self.watched
        if not rows:
            return
        cursor = self.cursor or clock.stamp(min(map(_mark, rows.values())) - SKEW)
        stirred, self.cursor = self.forge.changed_since({key: row.url for key, row in rows.items()}, cursor)
        self.has_changed = bool(stirred)
        self.stirred |= {key for key, when in stirred.items() if clock.parse(when) >= _mark(rows[key]) - SKEW}
        self.stirred |= self._released_tasks(rows)
        for key in sorted(self.stirred, key=lambda key: (key in self.late, str(key))):
            self.stirred.discard(key)
            if key not in rows:
                continue
            with self.items.handling(str(key)):
                try:
                    self.found[key] = self._read(rows[key])
                except self.items.whole:
                    self.stirred.add(key)
                    self.late.add(key)
                    raise

    def _skipped(self, item: str, why: str) -> None:
        said = why if item in why else f"{item}: {why}"
        self.events.emit("issue_skipped", source=self.forge.source, instance=self.forge.instance, why=said)

    def _released_tasks(self, rows: Mapping[TaskKey, Row]) -> set[TaskKey]:
        """The keys of tasks that a worker has put back or ended since the last poll.

        The comments on a task that its worker has left are read because nobody may have read a comment that was posted
        while the worker had the task, although the cursor of the list of changes is already past that comment. Once
        every `PAUSED_SECONDS`, `_released_tasks` also returns the keys of all waiting tasks on which a worker has
        worked.
        """
        waiting = {_state(row): row for row in rows.values() if _is_begun(row)}
        closed = {_state(row): row for row in rows.values() if row.status in CLOSED_STATUSES}
        # the first call returns no ended task: the cursor of the first poll begins before all ends, so the poll finds
        # these tasks
        before = set(closed) if self.released is None else self.released
        self.released = {*waiting, *closed}
        if clock.monotonic() - self.paused_at >= PAUSED_SECONDS:
            self.paused_at = clock.monotonic()
            before = before - waiting.keys()
        return {row.key for state, row in (waiting | closed).items() if state not in before}

    def _watched(self) -> Mapping[TaskKey, Row]:
        """Task key → newest row of this key, for each task of this forge that no worker runs.

        The keys are in the order of the rows in the ledger, since a pull request may have two rows: as a task itself,
        and as the result of the task of an issue.
        """
        days = timedelta(days=self.settings.context_inheritance.expiry_days)
        rows = self.ledger.rows_to_watch(self.forge.source, self.forge.instance, clock.now() - days)
        watched = {}
        for row in rows:
            with self.rows.handling(row.uuid):
                if self.forge.covers(row.key) and _mark(row):
                    watched[row.key] = row
        return watched

    def _read(self, row: Row) -> ReadChange:
        """Read the changes of one task's issue, and add a reaction to the requests and answers of people in them."""
        if row.status not in CLOSED_STATUSES:
            return self._read_waiting(row)
        comments = _said_to(row, self._comments(row))
        if comments and is_held(self.forge, row.key, row.uuid, over_in(self.ledger)):
            return ReadChange(row)  # another daemon, with its own ledger, works on the issue and reads the comments
        for asking in (one for one in comments if self._starts(row, one)):
            if will_start(self.intake, row.key, asking.id):
                self.seen.show(row.key, asking)
        return ReadChange(row, tuple(comments))

    def _read_waiting(self, row: Row) -> ReadChange:
        if _is_begun(row) and self._is_stopped(row):
            return ReadChange(row, is_stopped=True)
        comments, names = self._comments(row), self.forge.own_names()
        orders = [one for one in _said_to(row, comments) if commands.command_in(one, names) is not None]
        answers = for_model(comments, names) if _waits_for_answer(row) and not orders else []
        for one in (*orders, *answers):
            if one.id not in (*row.handled_comments, row.started_by):
                self.seen.show(row.key, one)
        return ReadChange(row, comments)

    def _answer(self, change: ReadChange) -> tuple[bool, str | None]:
        """Process the changes of one task's issue: (whether all changes are processed, the uuid of a task that was
        started or None)."""
        row, comments = change.row, change.comments
        newest = self.ledger.latest(row.key)
        if newest is None or newest.uuid != row.uuid:
            return False, None  # a task was queued just now; the next poll reads the comments
        if row.status in CLOSED_STATUSES:
            return self._after_the_end(row, comments)
        if change.is_stopped:
            if not self._believe(row):
                self._request(row, "stop", why=reason_on_forge(self.forge, row.key))
            return True, None
        obeyed = [self._handle(row, comment) for comment in _said_to(row, comments)]
        if _waits_for_answer(row) and not any(obeyed) and for_model(comments, self.forge.own_names()):
            self._request(row, "resume", waiting="asked")
        return True, None

    def _is_stopped(self, row: Row) -> bool:
        """Whether a person ended the task on the forge (closed the issue, for example); a merge that closed the issue
        is no such end."""
        wish = self.forge.requested(row.key)
        if wish != "stop":
            return False
        merged = receipt_in(self.settings.base_dir / "running" / row.uuid, MERGED) is not None
        return not is_closed_by_merge(self.forge, row.key, row.branch, merged=merged)

    def _believe(self, row: Row) -> bool:
        """Whether the issue shows an end of the task that is missing in the row, because an older backup of the ledger
        was restored.

        If the issue has the task's last comment and a label for an end, both are newer than the row, and the row gets
        the status of the label.
        """
        with suppress(IssueUnreadable):  # the issue is gone or hidden: no label can be read
            status = shown_end(self.forge, row.key, row.uuid, self.forge.read_issue(row.key).labels)
            if status is None:
                return False
            # A worker has claimed the row meanwhile; the worker finds the end of the task too.
            with suppress(ClaimLost):
                adopt_end(self.ledger, row, owner(self.settings.base_dir), status)
                until = clock.now() + SKEW
                # the end of the task is not posted again, since the forge already shows it
                if self.ledger.begin_notification(row.uuid, until):
                    self.ledger.mark_notified(row.uuid, until)
                self.events.emit("row_settled", uuid=row.uuid, was=str(row.status), status=str(status))
            return True
        return False

    def _comments(self, row: Row) -> tuple[Comment, ...]:
        """The comments since the last run of the task, including comments on its pull request."""
        if row.branch:
            pull = self.forge.find_pull(row.key, row.branch)
            if row.status in CLOSED_STATUSES and pull is not None:
                self._note_end(row, pull)
        cursor = ForgeReports(self.forge).with_pull(row.cursor, row.url) if row.url else row.cursor
        return self.forge.comments_since(row.key, cursor)[0]

    def _note_end(self, row: Row, pull: PullRef) -> None:
        """Store in the ledger, for long-term memory, whether the pull request of an ended task was merged or closed."""
        if not self.settings.remembers or pull.state == "open":
            return
        if row.pull_state != pull.state and self.ledger.note_pull(row.uuid, pull.state):
            self.events.emit("pull_ended", uuid=row.uuid, state=pull.state, url=pull.url)

    # --- a waiting task ---------------------------------------------------------------------------------------

    def _handle(self, row: Row, comment: Comment) -> bool:
        """Execute the command in a comment, unless it was executed before or has started the task; returns whether the
        comment contains a command."""
        order = commands.command_in(comment, self.forge.own_names())
        if order is None:
            return False
        word: Request = "resume" if order == "retry" else order
        if comment.id not in (*row.handled_comments, row.started_by):
            why = f"{comment.author} wrote /{order}."
            if (status := self._request(row, word, comment, why=why)) is None:
                return True
            self.events.emit("order_obeyed", uuid=row.uuid, order=order, author=comment.author, comment=comment.id)
            if status in WAITING:  # `daemon/finalize.py` posts the end of a stopped task
                show_status(self.settings, self.ledger, lambda: self.forge, self.events, row, why)
        return True

    def _request(
        self,
        row: Row,
        word: Request,
        comment: Comment | None = None,
        waiting: str | None = None,
        why: str | None = None,
    ) -> Status | None:
        """Make a request (stop, pause, resume) in the ledger; returns the new status of the row, None when another
        process has closed the row in the meantime."""
        said = comment.id if comment is not None else None
        try:
            who = comment.author if comment is not None else None
            status = self.ledger.request(row.uuid, word, comment=said, waiting=waiting, why=why, who=who)
        except UsageError:
            return None
        if status is Status.QUEUED and row.status is Status.PAUSED:
            self.events.emit("task_resumed", uuid=row.uuid)
        return status

    # --- a task that has ended --------------------------------------------------------------------------------

    def _after_the_end(self, row: Row, comments: tuple[Comment, ...]) -> tuple[bool, str | None]:
        """Start a task for the first comment on the ended task that asks for more work, or reply that a command has no
        effect; the result is that of `_answer`.

        The comment cursor in the row stays at the end of the task's run, so that a new task finds all comments since
        the end of the run.
        """
        asked = False
        for asking in (one for one in comments if self._starts(row, one)):
            uuid, refused = self._continue(row, asking)
            asked = True
            if refused != "known":  # the loop goes on to later comments if this comment has started a task already
                return refused not in ("limit", "refused"), uuid
        if asked:
            return True, None
        for comment in comments:
            if commands.command_in(comment, self.forge.own_names()) is not None:
                self._answer_comment(row, comment, "ended")
        return True, None

    def _continue(self, row: Row, asking: Comment) -> tuple[str | None, Refusal]:
        """Queue a task that continues the ended task, because the comment `asking` asks for more work (see
        `continue_task`)."""
        uuid, refused = continue_task(
            self.intake,
            row,
            started_by=asking.id,
            user=asking.author,
            seen=partial(self.seen.show, row.key, asking),  # adds the reaction 👀 to the comment, unless it has one
        )
        if refused == "limit":
            self._answer_comment(row, asking, "limit")
        elif (
            refused == "taken"
            and asking.id not in row.handled_comments
            and self.forge.read_issue(row.key).state == "closed"
        ):
            self._answer_comment(row, asking, "closed")
        return uuid, refused

    def _answer_comment(self, row: Row, comment: Comment, why: Why) -> None:
        door = PublishFilter.for_task(self.settings, self.events, self.forge.instance, row.uuid)
        post_reply(self.ledger, self.forge, self.events, door, row, comment, why)

    def _starts(self, row: Row, comment: Comment) -> bool:
        """Whether a comment on the ended task of `row` asks for more work: by `/retry`, a mention of the account, or a
        review in which a person who asked for the task requests changes."""
        names = self.forge.own_names()
        order = commands.command_in(comment, names)
        if order is not None:
            return order == "retry"
        return commands.calls(comment, names) or self._wants_changes(row, comment)

    def _wants_changes(self, row: Row, comment: Comment) -> bool:
        if not comment.requests_changes or comment.is_bot or not start_of(self.forge).review:
            return False
        author = comment.author.casefold()
        return any((one.user or "").casefold() == author for one in line_of(self.ledger, row))


def _said_to(row: Row, comments: tuple[Comment, ...]) -> list[Comment]:
    """The comments that concern the task of `row`.

    If no run has read the comments, the row has no comment cursor; then comments from before the creation of the row
    are left out.
    """
    return comments_since(comments, row.created_at, row.started_by) if row.cursor is None else list(comments)


def _waits_for_answer(row: Row) -> bool:
    return row.status is Status.PAUSED and row.outcome == "asked"


def _is_begun(row: Row) -> bool:
    """Whether a worker has already worked on a waiting task, so that its issue must have the processing or paused
    label; only then does a missing label mean that people ended the task. `_is_begun` returns False if the task's end
    is decided but not yet published, because the label on the issue may already show the end."""
    return not row.is_decided and (row.status is Status.PAUSED or (row.status is Status.QUEUED and row.last_seq > 0))


def _state(row: Row) -> tuple[str, int, Status]:
    """(uuid, attempt, status) of the row; each run of a worker changes this value."""
    return (row.uuid, row.attempt, row.status)


def _mark(row: Row) -> datetime:
    """The time after which a change on the forge concerns the task of `row`: the end of the task, or the creation of
    the row if the task has not ended."""
    return clock.parse(row.completed_at or row.created_at)
