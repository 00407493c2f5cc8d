"""Loops over items that others wrote, or that are stored: one bad item never ends the loop.

    for row in rows:
        with items.one(row.uuid):
            ...
    items.end()

An error of one item is reported once, and again when its text changes.  An error that nobody foresaw is logged with its
traceback as well.  Errors in `WHOLE` are about what all items share (disk, ledger, network): the loop goes on, since
one item may provoke them alone, and `end` raises the first of them; after `IN_A_ROW` of them nothing else is tried.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.errors import (
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
"""Errors of the same families that are about one item."""

IN_A_ROW = 3
REMEMBERED = 10_000
"""Reasons that are remembered, so that each is reported once."""


class Items:
    """The items of one loop.  `skipped` hears the name of an item and why it was left out.  `refusals` are errors that
    are about the whole only where no item went well (`end`)."""

    def __init__(
        self,
        skipped: Callable[[str, str], None],
        whole: tuple[type[Exception], ...] = WHOLE,
        refusals: tuple[type[Exception], ...] = (),
    ) -> None:
        self.skipped = skipped
        self.whole = whole
        self.refusals = refusals
        self.known: dict[str, str] = {}  # name of a bad item → why
        self.went_well = 0
        self.failed: dict[str, Exception] = {}  # item → error of this loop that may be about the whole
        self.in_a_row = 0

    @classmethod
    def of(cls, events: Events, loop: str, **more: Any) -> Items:
        """Skipped items are the event `item_skipped`."""
        return cls(lambda item, why: events.emit("item_skipped", loop=loop, item=item, why=why), **more)

    @classmethod
    def logged(cls, loop: str, **more: Any) -> Items:
        """Skipped items are the line `item_left_out` of the log, where no events can be emitted."""
        return cls(lambda item, why: log.get("items").warning("item_left_out", loop=loop, item=item, why=why), **more)

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Handle one item inside."""
        try:
            yield
        except ForgeLimited:  # everything else would only make it longer
            self._begin_anew()
            raise
        except Exception as error:  # noqa: BLE001 - whatever an item contains, the others are handled
            if isinstance(error, self.whole) and not isinstance(error, OF_ONE):
                self._fail(name, error)
                self.in_a_row += 1
                if self.in_a_row >= IN_A_ROW:
                    self.end()
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

    def end(self, *, unless_some: bool = False) -> None:
        """End the loop: raise the first error that was about the whole.  `unless_some`: where an item went well, such
        errors are reported as those of their items."""
        failed, went_well = self.failed, self.went_well
        self._begin_anew()
        if failed and not (unless_some and went_well):
            raise next(iter(failed.values()))
        for name, error in failed.items():
            self._say(name, error)

    def _begin_anew(self) -> None:
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
        if not isinstance(error, MakimonoError | OSError):
            log.get("items").error("bug", item=name, error=why, exc_info=error)
        self.skipped(name, why)


def reason_of(error: Exception) -> str:
    """Why an item was left out, for a person."""
    if isinstance(error, MakimonoError):
        return str(error)
    if isinstance(error, OSError):
        return str(error)
    return (
        f"an error that nobody foresaw ({type(error).__name__}: {error}); the log has its traceback, please report it"
    )
