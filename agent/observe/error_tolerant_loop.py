"""Provides a loop over items in which an error that concerns one item does not end the loop.

    for row in rows:
        with items.handling(row.uuid):
            ...
    items.finish()

An error of one item is reported once, and again when the text of the error has changed or the item has succeeded in
between. An error of an unexpected class is also logged with its traceback. Errors in `WHOLE` concern a resource that
all items share (disk, ledger, network). After an error of a class in `WHOLE` the loop continues, since a single item
may have caused the error, and `finish` raises the first such error; only ForgeLimited ends the loop at once. After
`IN_A_ROW` consecutive errors of a class in `WHOLE` the loop ends, unless `is_away` finds that the shared resource can
be reached, so that the items are the cause.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.error_text import named
from agent.errors import (
    MISTAKES,
    AnswerOdd,
    BrokerAway,
    DiskError,
    ForgeLimited,
    ForgeUnreachable,
    LedgerError,
    MakimonoError,
    RemoteAway,
    RowUnreadable,
)
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.observe.events import Events

WHOLE = (BrokerAway, DiskError, ForgeLimited, ForgeUnreachable, LedgerError, RemoteAway)
OF_ONE = (AnswerOdd, RowUnreadable)
"""Errors of a class in WHOLE that nevertheless concern one item only."""

IN_A_ROW = 3
REMEMBERED = 10_000
"""Maximum number of items for which the reason of a skip is remembered, so that the same reason is not reported again
for the same item."""


class ItemLoop:
    """The state of one loop over items: the items that failed, with their errors.

    `skipped` is called with the name of an item and the reason why it was skipped. `refusals` are classes of errors
    that may concern all items as well; after a loop in which an item succeeded, `finish(unless_some=True)` does not
    raise them. `is_away` finds out whether the shared resource is unreachable; if the resource can be reached, the loop
    continues.
    """

    def __init__(
        self,
        skipped: Callable[[str, str], None],
        whole: tuple[type[Exception], ...] = WHOLE,
        refusals: tuple[type[Exception], ...] = (),
        is_away: Callable[[], bool] = lambda: True,
    ) -> None:
        self.skipped = skipped
        self.is_away = is_away
        self.whole = whole
        self.refusals = refusals
        self.known: dict[str, str] = {}  # name of a bad item → reason why it was skipped
        self.went_well = 0
        self.failed: dict[str, Exception] = {}  # name of an item → the error of this item that may concern all items
        self.in_a_row = 0

    @classmethod
    def announcing(cls, events: Events, loop: str, **more: Any) -> ItemLoop:
        """An ItemLoop that reports a skipped item as the event `item_skipped`."""
        return cls(lambda item, why: events.emit("item_skipped", loop=loop, item=item, why=why), **more)

    @classmethod
    def logging(cls, loop: str, **more: Any) -> ItemLoop:
        """An ItemLoop that reports a skipped item as the log line `item_left_out`, for code that has no events."""
        return cls(lambda item, why: log.get("items").warning("item_left_out", loop=loop, item=item, why=why), **more)

    @contextmanager
    def handling(self, name: str) -> Iterator[None]:
        """A context manager for the work on one item. An error of its block is stored or reported and not raised,
        except ForgeLimited and an error that ends the loop."""
        try:
            yield
        except ForgeLimited:  # the loop ends, since further requests would make the rate limit last longer
            self.begin_anew()
            raise
        except Exception as error:  # noqa: BLE001 - an error of one item must not end the loop
            if isinstance(error, self.whole) and not isinstance(error, OF_ONE):
                self._fail(name, error)
                self.in_a_row += 1
                if self.in_a_row >= IN_A_ROW:
                    if self.is_away():
                        self.finish()
                    self.in_a_row = 0
                return
            self.in_a_row = 0
            if isinstance(error, self.refusals):
                self._fail(name, error)
            else:
                self._say(name, error)
        else:
            self.in_a_row = 0
            self.went_well += 1
            self.known.pop(name, None)

    def finish(self, *, unless_some: bool = False) -> None:
        """End the loop over items: raise the first error that may concern all items, if there is one.

        `unless_some`: if an item succeeded, no error is raised, and each error is reported as an error of its item.
        """
        failed, went_well = self.failed, self.went_well
        self.begin_anew()
        if failed and not (unless_some and went_well):
            raise next(iter(failed.values()))
        for name, error in failed.items():
            self._say(name, error)

    def begin_anew(self) -> None:
        """Forget the errors of a loop, also of one that did not reach `finish`."""
        self.failed, self.in_a_row, self.went_well = {}, 0, 0

    def _fail(self, name: str, error: Exception) -> None:
        self.failed.setdefault(name, error)

    def _say(self, name: str, error: Exception) -> None:
        why = reason_of(error)
        if self.known.get(name) == why:
            return
        if name not in self.known and len(self.known) >= REMEMBERED:
            del self.known[next(iter(self.known))]
        self.known[name] = why
        if isinstance(error, MISTAKES) or not isinstance(error, MakimonoError | OSError):
            log.get("items").error("bug", item=name, error=why, exc_info=error)
        self.skipped(name, why)


def reason_of(error: Exception) -> str:
    """The reason why an item was skipped, as a text for people."""
    if isinstance(error, MakimonoError):
        return str(error)
    if isinstance(error, OSError):
        return str(error)
    return f"an error that nobody foresaw ({named(error)}); the log has its traceback, please report it"
