"""Handles comments of people on a running task: the model gets their text before its next turn, and commands take
effect as soon as the inbox has read them.

Each run of a task has one inbox for comments. The loop polls the inbox at each turn, and a watcher thread polls it
while the model answers; the inbox reads the forge again only after `every` seconds (20 for a host, 5 for a local
tracker, or less) or when the run is about to end, and both callers share the results. A comment waits in the inbox
until the loop has appended its text, and only after that the cursor in the row moves past the comment: if the process
dies in between, a comment is delivered twice rather than never. A command is stored in the row together with the
comment's id, so that it is executed only once even if the comment is read again (`ledger.request`).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from agent import clock
from agent.errors import ForgeError, ForgeRefused, IssueUnreadable, LedgerError, UsageError
from agent.forge.base import ForgeReports
from agent.issue.commands import command_in, message_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.forge.base import Comment, Forge
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row
    from agent.taskqueue.transitions import Request
    from agent.values import FencedComment, TaskKey

FIRST_AGAIN, LONGEST_AGAIN = 60.0, 3600.0
"""The shortest and the longest seconds between two reports that the forge does not answer."""
NO_TEXT = "(The review requests changes and has no text of its own.)"


class CommentedTask(Protocol):
    """The task that the comments belong to (`task_run.TaskRun`)."""

    def save_comment_cursor(self, cursor: str) -> None:
        """Write the comment cursor into the row."""
        ...

    def reply_without_effect(self, row: Row, comment: Comment) -> None:
        """Tell a person on the issue that the command in the comment has no effect."""
        ...

    def show_seen(self, comment: Comment) -> None:
        """Mark a person's comment on the forge as read."""
        ...

    def pull_urls(self) -> Sequence[str]:
        """The addresses of the task's pull requests, on which comments are read too."""
        ...


class CommentInbox:
    """Reads the comments of people on one running task.

    Comments are read every `forge.news_interval` seconds, or every `often` seconds (`scheduling.interval`) if that is
    shorter. `asked_by` is a sentence about the author and the command of the last comment that was executed, "" if
    there is none or if it cancelled a pause."""

    def __init__(
        self,
        forge: Forge,
        key: TaskKey,
        uuid: str,
        ledger: Ledger,
        task: CommentedTask,
        events: Events,
        often: float | None = None,
    ) -> None:
        self.forge = forge
        self.key = key
        self.uuid = uuid
        self.ledger = ledger
        self.task = task
        self.events = events
        # comments with commands that are not executed yet, or failed because of the ledger or the forge; their commands
        # are tried again
        self.unanswered: list[Comment] = []
        self.cursor: str | None = None
        # the position up to which comments were read; `cursor` moves there when the loop has appended their text
        self.ahead: str | None = None
        self.talk: list[Comment] = []
        self.asked_by = ""
        self.begun = False
        self.every = forge.news_interval if often is None else min(often, forge.news_interval)
        self.looked_at = -self.every
        self.away_since: float | None = None  # monotonic time at which the forge stopped answering
        self.tell_at, self.pause = 0.0, FIRST_AGAIN
        self.lock = threading.RLock()
        # True inside a poll: a wait for the forge checks for a stop, which calls `poll` again (`deadline.is_stopping`)
        self.is_reading = False

    def start(self, cursor: str | None, already: Iterable[Comment] = (), read_at: float | None = None) -> None:
        """Begin to read the comments after `cursor`. `already` are comments from the time in which the task waited; the
        briefing has their text, so only commands in them are executed. `read_at`: the time of the monotonic clock at
        which everything before `cursor` was read; the first poll then waits as it would after another poll."""
        self.cursor = self.ahead = cursor
        if read_at is not None:
            self.looked_at = read_at
        for comment in already:
            self._handle(comment, self.forge.own_names())
        self.begun = True

    def poll(self, *, now: bool = False) -> bool:
        """Read new comments if the next read is due or `now` is set; returns whether a command was executed.

        If the forge cannot be reached, an event is emitted, and the task continues. With `now`, since the run is about
        to end, the method raises IssueUnreadable if the forge answers that the issue is gone, so that the result of the
        run is not shown as finished where nobody can read its end.
        """
        with self.lock:
            due = now or clock.monotonic() - self.looked_at >= self.every
            if not self.begun or self.is_reading or not due:
                return False
            self.is_reading = True
            try:
                return self._poll(is_last=now)
            finally:
                self.is_reading = False

    def _poll(self, *, is_last: bool) -> bool:
        self.looked_at = clock.monotonic()
        try:
            names = self.forge.own_names()
            comments, ahead = self.forge.comments_since(self.key, self._position())
        except ForgeError as error:
            self._report_outage(error)
            if is_last:
                self._check_issue(error)
            return False
        # Everything of a comment is recorded before a step that can fail, so that `ahead` passes no lost comment.
        self.talk += for_model(comments, names)
        self.unanswered += comments
        self.ahead = ahead
        self._report_recovery()
        try:
            for comment in comments:
                if not comment.is_bot:
                    self.task.show_seen(comment)
        finally:
            obeyed = self._handle_unanswered(names)
        return obeyed

    def _handle_unanswered(self, names: Sequence[str]) -> bool:
        """Execute the commands in the new comments, and those that failed before; returns whether a command was
        executed."""
        waiting, self.unanswered = self.unanswered, []
        obeyed = False
        try:
            while waiting:
                obeyed |= self._handle(waiting[0], names)
                del waiting[0]
        finally:
            self.unanswered += waiting
        return obeyed

    def _check_issue(self, error: ForgeError) -> None:
        """Raise IssueUnreadable if the comments could not be read because the issue is gone."""
        if isinstance(error, IssueUnreadable):
            raise error
        if isinstance(error, ForgeRefused):
            try:
                self.forge.read_issue(self.key)
            except IssueUnreadable:
                raise
            except ForgeError:
                pass  # the next step that needs the issue reports the error

    def _report_outage(self, error: ForgeError) -> None:
        """Report that the forge does not answer: after the first failure, and then less and less often."""
        now = clock.monotonic()
        if self.away_since is None:
            self.away_since, self.tell_at, self.pause = now, now, FIRST_AGAIN
        if now >= self.tell_at:
            self.tell_at, self.pause = now + self.pause, min(LONGEST_AGAIN, 2 * self.pause)
            self.events.emit("poll_failed", source=self.forge.source, instance=self.forge.instance, error=str(error))

    def _report_recovery(self) -> None:
        """Report once that the forge answers again."""
        if self.away_since is not None:
            seconds = round(clock.monotonic() - self.away_since, 1)
            self.away_since = None
            self.events.emit("poll_recovered", source=self.forge.source, instance=self.forge.instance, seconds=seconds)

    def _position(self) -> str | None:
        """The comment cursor, extended so that each pull request of the task is read from its first comment."""
        cursor = self.ahead
        for url in self.task.pull_urls():
            cursor = ForgeReports(self.forge).with_pull(cursor, url)
        return cursor

    def take_comments(
        self, append: Callable[[Sequence[Comment]], Iterable[FencedComment]], durable: Callable[[], None]
    ) -> Iterator[FencedComment]:
        """Yield the waiting comments in the form that the loop appends to the conversation; `append` makes that form.

        When the loop has appended all comments, `durable` syncs the conversation to disk, and then the cursor moves
        past the comments."""
        with self.lock:
            talk, ahead = self.talk, self.ahead
            self.talk = []
        if talk:
            yield from append(talk)
        if ahead is not None and ahead != self.cursor:
            durable()
            self.cursor = ahead
            self.task.save_comment_cursor(ahead)

    def _handle(self, comment: Comment, names: Sequence[str]) -> bool:
        """Execute the command in a comment, if the comment has one; returns whether a new command was executed.

        For a running task `/retry` and `/resume` only cancel a requested pause.
        """
        order = command_in(comment, names)
        if order is None:
            return False
        word: Request = "resume" if order == "retry" else order
        try:
            row = self.ledger.get(self.uuid)
            if row is None or comment.id in (*row.handled_comments, row.started_by):
                return False
            if word == "resume" and row.requested != "pause":
                self.task.reply_without_effect(row, comment)
                return False
            self.ledger.request(self.uuid, word, comment=comment.id, who=comment.author)
        except UsageError as error:  # the row of the task was closed meanwhile, so the command has no effect
            self.events.emit("effect_failed", effect=order, error=str(error))
            return False
        except (LedgerError, ForgeError) as error:
            self.unanswered.append(comment)
            self.events.emit("effect_failed", effect=order, error=str(error))
            return False
        self.asked_by = "" if word == "resume" else f"{comment.author} wrote /{order}."
        self.events.emit("order_obeyed", uuid=self.uuid, order=order, author=comment.author, comment=comment.id)
        return True


def for_model(comments: Iterable[Comment], names: Sequence[str]) -> list[Comment]:
    """The comments that the model gets: without those of bots, with the lines of commands removed, and without comments
    that have no other text."""
    told = [replace(one, body=_message(one, names)) for one in comments if not one.is_bot]
    return [one for one in told if one.body.strip()]


def _message(comment: Comment, names: Sequence[str]) -> str:
    if comment.requests_changes and not comment.body.strip():
        return NO_TEXT
    return message_in(comment, names)


def comments_since(comments: Iterable[Comment], moment: str, started_by: str | None = None) -> list[Comment]:
    """The comments that belong to the task that was queued at the time `moment`, or on request of the comment
    `started_by`.

    The result has all comments after `started_by`; if `started_by` is not among the comments, the result has all that
    were written at `moment` or later.  A comment without a time counts as older than `moment`."""
    said = list(comments)
    ids = [one.id for one in said]
    if started_by in ids:
        return said[ids.index(started_by) + 1 :]
    second = clock.parse(moment).replace(microsecond=0)
    return [one for one in said if one.created_at and clock.parse(one.created_at) >= second]
