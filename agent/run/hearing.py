"""What people write to a running task: talk for the next turn, orders at once.

One per worker.  The loop looks at each turn, and the control about every quarter of a minute while the model thinks,
from another thread; both share one look.  Talk waits here until the loop has appended it, and only then the cursor in
the row moves: a process that dies in between hears a comment twice rather than never.  An order goes into the row
together with the comment's id, so that it is obeyed once whoever reads it again (`ledger.request`).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, LedgerError, UsageError
from agent.run.words import order_in, talk_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.forge.base import Comment, Forge
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row
    from agent.taskqueue.moves import Word
    from agent.values import Said, TaskKey


class Hearing:
    """Comments of one task.  `moved` writes the cursor into the row, `refused` tells a person that an order changes
    nothing; `often` is `scheduling.interval`: what is polled that often may be looked at that often too; `asked_by`
    says whose order was obeyed last."""

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
    ) -> None:
        self.forge = forge
        self.key = key
        self.uuid = uuid
        self.ledger = ledger
        self.moved = moved
        self.events = events
        self.refused = refused
        self.unanswered: list[Comment] = []  # orders that could not be looked up or answered: the next look tries again
        self.cursor: str | None = None
        self.ahead: str | None = None  # how far was looked; the cursor follows when the talk is appended
        self.talk: list[Comment] = []
        self.asked_by = ""
        self.begun = False
        self.every = forge.news_interval if often is None else min(often, forge.news_interval)
        self.looked_at = -self.every
        self.lock = threading.Lock()

    def begin(self, cursor: str | None, already: Iterable[Comment] = ()) -> None:
        """Listen from `cursor` on.  `already`: what was written while the task waited and the briefing holds."""
        self.cursor = self.ahead = cursor
        for comment in already:
            self._obey(comment, self.forge.names())
        self.begun = True

    def look(self, *, now: bool = False) -> bool:
        """Ask the forge, when that is due or with `now`; whether an order was obeyed.  A forge that is away is an
        event: the task goes on."""
        with self.lock:
            if not self.begun or (not now and clock.monotonic() - self.looked_at < self.every):
                return False
            self.looked_at = clock.monotonic()
            try:
                names = self.forge.names()
                comments, self.ahead = self.forge.comments_since(self.key, self.ahead)
            except ForgeError as error:
                self.events.emit(
                    "poll_failed", source=self.forge.source, instance=self.forge.instance, error=str(error)
                )
                return False
            self.talk += spoken(comments, names)
            again, self.unanswered = self.unanswered, []
            obeyed = [self._obey(comment, names) for comment in (*again, *comments)]
            return any(obeyed)

    def take(
        self, append: Callable[[Sequence[Comment]], Iterable[Said]], durable: Callable[[], None]
    ) -> Iterator[Said]:
        """The talk that waits, as the loop appends it; then the cursor moves."""
        with self.lock:
            talk, ahead = self.talk, self.ahead
            self.talk = []
        if talk:
            yield from append(talk)
        if ahead is not None and ahead != self.cursor:
            durable()
            self.cursor = ahead
            self.moved(ahead)

    def _obey(self, comment: Comment, names: Sequence[str]) -> bool:
        """Whether the comment gives an order that was not obeyed before.  `/retry` and `/resume` go on with what was
        asked to pause, and say nothing else to a running task."""
        order = order_in(comment, names)
        if order is None:
            return False
        word: Word = "resume" if order == "retry" else order
        try:
            row = self.ledger.get(self.uuid)
            if row is None or comment.id in (*row.orders, row.started_by):
                return False
            if word == "resume" and row.requested != "pause":
                self.refused(row, comment)
                return False
            self.ledger.request(self.uuid, word, comment=comment.id)
        except UsageError as error:  # closed meanwhile
            self.events.emit("effect_failed", effect=order, error=str(error))
            return False
        except (LedgerError, ForgeError) as error:
            self.unanswered.append(comment)
            self.events.emit("effect_failed", effect=order, error=str(error))
            return False
        self.asked_by = "" if word == "resume" else f"{comment.author} wrote /{order}."
        self.events.emit("order_obeyed", uuid=self.uuid, order=order, author=comment.author, comment=comment.id)
        return True


def spoken(comments: Iterable[Comment], names: Sequence[str]) -> list[Comment]:
    """What people say to the model: no machines, no orders."""
    told = [replace(one, body=talk_in(one, names)) for one in comments if not one.is_bot]
    return [one for one in told if one.body.strip()]


def since(comments: Iterable[Comment], moment: str, started_by: str | None = None) -> list[Comment]:
    """What was said to the task that began to wait at `moment`, or with the comment `started_by`: all that stands
    behind that one, else what was written at `moment` or later; one without a time is older."""
    said = list(comments)
    ids = [one.id for one in said]
    if started_by in ids:
        return said[ids.index(started_by) + 1 :]
    second = clock.parse(moment).replace(microsecond=0)
    return [one for one in said if one.created_at and clock.parse(one.created_at) >= second]
