"""Comments of people on a running task: the model gets their text at the next turn, and commands take effect at once.

Each worker has one inbox.  The loop polls at each turn.  The control polls about every 15 seconds while the model
thinks, from another thread; loop and control share the results.  A text waits in the inbox until the loop has appended
it, and only then does the cursor in the row move: a process that dies in between delivers a comment twice rather than
never.  A command is stored in the row together with the comment's id, so that it is executed once even if it is read
again (`ledger.request`).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, LedgerError, UsageError
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
"""Seconds until a forge that does not answer is reported again: the first time, and at most."""


class CommentInbox:
    """The comments of one task.

    `moved` writes the cursor into the row.  `refused` notifies a person that a command changes nothing.  `often` is the
    value of `scheduling.interval`: the comments may be read as often as the daemon polls.  `pulls` returns the
    addresses of the pull requests of the task, whose comments are read too.  `seen` shows at a comment of a person that
    it was read.  `asked_by` is the name of the author of the last command that was executed."""

    def __init__(
        self,
        forge: Forge,
        key: TaskKey,
        uuid: str,
        ledger: Ledger,
        moved: Callable[[str], None],
        events: Events,
        refused: Callable[[Row, Comment], None] = lambda _row, _comment: None,
        often: float | None = None,
        pulls: Callable[[], Iterable[str]] = tuple,
        seen: Callable[[Comment], None] = lambda _comment: None,
    ) -> None:
        self.forge = forge
        self.pulls = pulls
        self.seen = seen
        self.key = key
        self.uuid = uuid
        self.ledger = ledger
        self.moved = moved
        self.events = events
        self.refused = refused
        self.unanswered: list[Comment] = []  # commands that failed at the ledger or the forge, to be tried again
        self.cursor: str | None = None
        # the position up to which comments were read; the cursor follows when their text is appended
        self.ahead: str | None = None
        self.talk: list[Comment] = []
        self.asked_by = ""
        self.begun = False
        self.every = forge.news_interval if often is None else min(often, forge.news_interval)
        self.looked_at = -self.every
        self.away_since: float | None = None  # time of the monotonic clock of the first failure in a row
        self.tell_at, self.pause = 0.0, FIRST_AGAIN
        self.lock = threading.RLock()
        # a wait inside a poll checks for a stop, which calls poll again (`deadline.is_stopping`)
        self.is_reading = False

    def start(self, cursor: str | None, already: Iterable[Comment] = (), read_at: float | None = None) -> None:
        """Begin reading at `cursor`.  `already`: comments from the waiting time that the briefing contains.  `read_at`:
        the time of the monotonic clock at which everything before `cursor` was read; the first poll then waits as it
        would after another poll."""
        self.cursor = self.ahead = cursor
        if read_at is not None:
            self.looked_at = read_at
        for comment in already:
            self._handle(comment, self.forge.own_names())
        self.begun = True

    def poll(self, *, now: bool = False) -> bool:
        """Ask the forge for comments, if that is due or `now` is set; returns whether a command was executed.

        If the forge is unreachable, an event is emitted and the task continues.
        """
        with self.lock:
            due = now or clock.monotonic() - self.looked_at >= self.every
            if not self.begun or self.is_reading or not due:
                return False
            self.is_reading = True
            try:
                return self._poll()
            finally:
                self.is_reading = False

    def _poll(self) -> bool:
        self.looked_at = clock.monotonic()
        try:
            names = self.forge.own_names()
            comments, self.ahead = self.forge.comments_since(self.key, self._position())
        except ForgeError as error:
            self._away(error)
            return False
        self._back()
        for comment in comments:
            if not comment.is_bot:
                self.seen(comment)
        self.talk += for_model(comments, names)
        again, self.unanswered = self.unanswered, []
        obeyed = [self._handle(comment, names) for comment in (*again, *comments)]
        return any(obeyed)

    def _away(self, error: ForgeError) -> None:
        """Report that the forge does not answer: at the first failure, then less and less often."""
        now = clock.monotonic()
        if self.away_since is None:
            self.away_since, self.tell_at, self.pause = now, now, FIRST_AGAIN
        if now >= self.tell_at:
            self.tell_at, self.pause = now + self.pause, min(LONGEST_AGAIN, 2 * self.pause)
            self.events.emit("poll_failed", source=self.forge.source, instance=self.forge.instance, error=str(error))

    def _back(self) -> None:
        """Report that the forge answers again, once."""
        if self.away_since is not None:
            seconds = round(clock.monotonic() - self.away_since, 1)
            self.away_since = None
            self.events.emit("poll_recovered", source=self.forge.source, instance=self.forge.instance, seconds=seconds)

    def _position(self) -> str | None:
        """The cursor, which reads the pull requests of the task from their first comment on."""
        cursor = self.ahead
        for url in self.pulls():
            cursor = ForgeReports(self.forge).with_pull(cursor, url)
        return cursor

    def take_comments(
        self, append: Callable[[Sequence[Comment]], Iterable[FencedComment]], durable: Callable[[], None]
    ) -> Iterator[FencedComment]:
        """Yield the waiting comments in the form in which the loop appends them (`append` makes that form).

        When the loop has appended all comments, `durable` makes them durable, and then the cursor moves past them."""
        with self.lock:
            talk, ahead = self.talk, self.ahead
            self.talk = []
        if talk:
            yield from append(talk)
        if ahead is not None and ahead != self.cursor:
            durable()
            self.cursor = ahead
            self.moved(ahead)

    def _handle(self, comment: Comment, names: Sequence[str]) -> bool:
        """Execute the command in a comment; returns whether the command was new.

        `/retry` and `/resume` cancel a requested pause and have no other effect on a running task.
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
                self.refused(row, comment)
                return False
            self.ledger.request(self.uuid, word, comment=comment.id)
        except UsageError as error:  # the row was closed meanwhile
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
    """The comments for the model: without those of bots, and without commands."""
    told = [replace(one, body=message_in(one, names)) for one in comments if not one.is_bot]
    return [one for one in told if one.body.strip()]


def comments_since(comments: Iterable[Comment], moment: str, started_by: str | None = None) -> list[Comment]:
    """The comments for the task that began to wait at `moment`, or that the comment `started_by` requested.

    The result has all comments after `started_by`; without that comment, all comments written at `moment` or later.  A
    comment without a time counts as older."""
    said = list(comments)
    ids = [one.id for one in said]
    if started_by in ids:
        return said[ids.index(started_by) + 1 :]
    second = clock.parse(moment).replace(microsecond=0)
    return [one for one in said if one.created_at and clock.parse(one.created_at) >= second]
