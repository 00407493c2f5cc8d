"""What people say to tasks that no worker holds: those that wait, and those that have ended.

A task that asked a question goes on when a person answers; `/stop`, `/pause`, `/resume` do what they say; one whose
issue is closed, or whose label was taken away, is stopped.  After the end a comment that mentions the account, or
`/retry`, starts a task that goes on from it, for `context_inheritance.expiry_days` (design: section 8).

Politely: one list per repository tells which issues changed (`Forge.stirred`), and only those are read.  Once: the
order stands in the row with the comment's id, and the id of the comment that starts a task is a key of the ledger.
Called by the poller (`producer.py`), which has a thread of its own.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ClaimLost, IssueUnreadable, UsageError
from agent.observe.items import Items
from agent.run import words
from agent.run.answering import answer
from agent.run.claims import is_held, over_in, told_end
from agent.run.hearing import since, spoken
from agent.run.publishable import Door
from agent.run.settle import settle
from agent.run.showing import WAITING, show
from agent.run.starting import start
from agent.taskqueue.identity import owner
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from agent.config import Settings
    from agent.forge.base import Comment, Forge
    from agent.observe.events import Events
    from agent.run.answering import Why
    from agent.taskqueue import Ledger, Row
    from agent.taskqueue.moves import Word
    from agent.values import TaskKey

SKEW = timedelta(minutes=10)
"""How far the forge's clock may be from ours: what changed longer than this before an end is not about it."""

PAUSED_SECONDS = 3600.0
"""How often a task that waits is looked at although nothing stirred: an issue that is deleted stands in no list."""


class Attention:
    """One forge's share.  It keeps how far it has looked; what is true stands in the rows."""

    def __init__(self, settings: Settings, ledger: Ledger, forge: Forge, events: Events) -> None:
        self.settings = settings
        self.ledger = ledger
        self.forge = forge
        self.events = events
        self.cursor: str | None = None
        self.stirred: set[TaskKey] = set()  # changed, and not answered yet
        self.waiting: set[tuple[str, int, Status]] = set()  # open rows as they were at the last look
        self.paused_at = -PAUSED_SECONDS
        self.late: set[TaskKey] = set()  # of those, the ones that failed at the last look: they come last
        self.items = Items(self._skipped)
        self.rows = Items(self._skipped)

    def look(self, started: list[str]) -> bool:
        """Whether anything changed; the uuids of tasks that were started are added to `started`.  ForgeError when the
        forge is away: what is not answered is kept for the next look."""
        rows = self._watched()
        if not rows:
            return False
        cursor = self.cursor or clock.stamp(min(map(_mark, rows.values())) - SKEW)
        stirred, self.cursor = self.forge.stirred({key: row.url for key, row in rows.items()}, cursor)
        self.stirred |= {key for key, when in stirred.items() if clock.parse(when) >= _mark(rows[key]) - SKEW}
        self.stirred |= self._let_go(rows)
        for key in sorted(self.stirred, key=lambda key: (key in self.late, str(key))):
            self.stirred.discard(key)
            if key not in rows:
                continue
            with self.items.one(str(key)):
                try:
                    done, uuid = self._answer(rows[key])
                except self.items.whole:
                    self.stirred.add(key)
                    self.late.add(key)
                    raise
                started += [uuid] if uuid is not None else []
                self.late.discard(key)
                if not done:
                    self.stirred.add(key)
        self.late &= self.stirred
        self.items.end()
        return bool(stirred)

    def _skipped(self, item: str, why: str) -> None:
        said = why if item in why else f"{item}: {why}"
        self.events.emit("issue_skipped", source=self.forge.source, instance=self.forge.instance, why=said)

    def _let_go(self, rows: Mapping[TaskKey, Row]) -> set[TaskKey]:
        """Keys of rows that a worker let go of since the last look: what was said while it had them may have reached
        nobody.  Now and then all that wait."""
        now = {(row.uuid, row.attempt, row.status): row for row in rows.values() if _is_begun(row)}
        before, self.waiting = self.waiting, set(now)
        if clock.monotonic() - self.paused_at >= PAUSED_SECONDS:
            self.paused_at = clock.monotonic()
            before = set()
        return {row.key for mark, row in now.items() if mark not in before}

    def _watched(self) -> Mapping[TaskKey, Row]:
        """The newest row of each key that is not running.  A pull request that is a task itself, and was opened for an
        issue's, comes first in `watched`'s order when it is the newer one."""
        days = timedelta(days=self.settings.context_inheritance.expiry_days)
        rows = self.ledger.watched(self.forge.source, self.forge.instance, clock.now() - days)
        watched = {}
        for row in rows:
            with self.rows.one(row.uuid):
                if self.forge.covers(row.key) and _mark(row):
                    watched[row.key] = row
        return watched

    def _answer(self, row: Row) -> tuple[bool, str | None]:
        """(whether all is done that the change asks for, the uuid of a task that was started)."""
        if row.status in CLOSED_STATUSES:
            return self._after_the_end(row)
        if _is_begun(row) and self.forge.control(row.key) == "stop":
            if not self._believe(row):
                self._request(row, "stop")
            return True, None
        comments = self._comments(row)
        obeyed = [self._obey(row, comment) for comment in _said_to(row, comments)]
        asked = row.status is Status.PAUSED and row.outcome == "asked" and not any(obeyed)
        if asked and spoken(comments, self.forge.names()):
            self._request(row, "resume", waiting="asked")
        return True, None

    def _believe(self, row: Row) -> bool:
        """Whether the label is that of the task's own end, told by an attempt that the row does not know (a backup that
        was put back): what the forge shows is newer, and the row follows."""
        with suppress(IssueUnreadable):  # it was deleted
            status = told_end(self.forge, row.key, row.uuid, self.forge.read(row.key).labels)
            if status is None:
                return False
            with suppress(ClaimLost):  # a worker takes it, and finds the same
                settle(self.ledger, row, owner(self.settings.base_dir), status)
                until = clock.now() + SKEW
                if self.ledger.telling(row.uuid, until):  # it stands there
                    self.ledger.told(row.uuid, until)
                self.events.emit("row_settled", uuid=row.uuid, was=str(row.status), status=str(status))
            return True
        return False

    def _comments(self, row: Row) -> tuple[Comment, ...]:
        """What was said since the task left off, on its pull request too, which this process may not know yet."""
        if row.branch:
            self.forge.find_pull(row.key, row.branch)
        return self.forge.comments_since(row.key, row.cursor)[0]

    # --- a task that waits ------------------------------------------------------------------------------------

    def _obey(self, row: Row, comment: Comment) -> bool:
        """Whether the comment gives an order, obeyed now or before."""
        order = words.order_in(comment, self.forge.names())
        if order is None:
            return False
        word: Word = "resume" if order == "retry" else order
        if comment.id not in (*row.orders, row.started_by):
            why = f"{comment.author} wrote /{order}."
            if (status := self._request(row, word, comment, why=why)) is None:
                return True
            self.events.emit("order_obeyed", uuid=row.uuid, order=order, author=comment.author, comment=comment.id)
            if status in WAITING:  # a stop is told as every end is (`closing.py`)
                show(self.settings, self.ledger, lambda: self.forge, self.events, row, why)
        return True

    def _request(
        self, row: Row, word: Word, comment: Comment | None = None, waiting: str | None = None, why: str | None = None
    ) -> Status | None:
        """The row's new status; None when somebody closed it meanwhile."""
        said = comment.id if comment is not None else None
        try:
            status = self.ledger.request(row.uuid, word, comment=said, waiting=waiting, why=why)
        except UsageError:
            return None
        if status is Status.QUEUED and row.status is Status.PAUSED:
            self.events.emit("task_resumed", uuid=row.uuid)
        return status

    # --- a task that has ended --------------------------------------------------------------------------------

    def _after_the_end(self, row: Row) -> tuple[bool, str | None]:
        """The row's cursor stays where the run left off: the new task tells by it what was written since."""
        comments = _said_to(row, self._comments(row))
        if comments and is_held(self.forge, row.key, row.uuid, over_in(self.ledger)):
            return True, None  # a task of another ledger hears them
        if (asking := next((one for one in comments if self._starts(one)), None)) is not None:
            uuid, refused = start(
                self.settings,
                self.ledger,
                self.forge,
                row.key,
                self.events,
                user=asking.author,
                title=row.title,
                parent_uuid=row.uuid,
                started_by=asking.id,
            )
            if refused == "limit":
                self._tell(row, asking, "limit")
            elif refused == "taken" and asking.id not in row.orders and self.forge.read(row.key).state == "closed":
                self._tell(row, asking, "closed")
            return refused != "limit", uuid
        for comment in comments:
            if words.order_in(comment, self.forge.names()) is not None:
                self._tell(row, comment, "ended")
        return True, None

    def _tell(self, row: Row, comment: Comment, why: Why) -> None:
        door = Door.of(self.settings, self.events, self.forge.instance, row.uuid)
        answer(self.ledger, self.forge, self.events, door, row, comment, why)

    def _starts(self, comment: Comment) -> bool:
        names = self.forge.names()
        order = words.order_in(comment, names)
        return order == "retry" or (order is None and words.mentions(comment, names))


def _said_to(row: Row, comments: tuple[Comment, ...]) -> list[Comment]:
    """Those of the comments that are about this task: a row that was never read has no cursor, and what was said before
    the task is not said to it."""
    return since(comments, row.created_at, row.started_by) if row.cursor is None else list(comments)


def _is_begun(row: Row) -> bool:
    """Whether a worker had the waiting row, and got so far that the label is ours: of any other the label says nothing
    yet.  Where the end is decided, it may be the label of that end."""
    return not row.is_decided and (row.status is Status.PAUSED or (row.status is Status.QUEUED and row.last_seq > 0))


def _mark(row: Row) -> datetime:
    """From when on a change is about this row."""
    return clock.parse(row.completed_at or row.created_at)
