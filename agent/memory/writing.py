"""A write: one transaction in which entries are appended to the log and the tables follow."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.memory.base import Entry, Log
    from agent.memory.views import Views


class Writing:
    """Given to the block of `writing`: reads the tables, and appends to the log."""

    def __init__(self, log: Log, views: Views, who: str) -> None:
        self.log = log
        self.views = views
        self.who = who
        self.blocks: dict[tuple[str, str], tuple[int, int]] = {}
        """(actor, session) → newest block of its events, and the number of events in it; of this transaction."""

    def run(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """The rows of a named query, everything appended before included."""
        return self.views.database.run(name, **params)

    @cached_property
    def has_forgotten(self) -> bool:
        """Whether anything was ever forgotten."""
        return bool(self.run("tombstone_any"))

    def append(self, operation: str, subject: str, payload: Mapping[str, Any], reason: str = "") -> Entry:
        """Append an entry, and apply it to the tables."""
        entry = self.log.append(operation, subject, payload, who=self.who, reason=reason)
        self.views.apply(entry)
        return entry


@contextmanager
def writing(log: Log, views: Views, who: str) -> Iterator[Writing]:
    """A transaction; when the block raises, neither the log nor a table has changed."""
    with log.transaction():
        try:
            yield Writing(log, views, who)
            views.flush()
        except BaseException:
            views.forget_stale()
            raise
