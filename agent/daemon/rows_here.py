"""The rows of tasks that run on this host, read once in a step of the supervisor.

Several parts of the supervisor's step need the rows of the tasks that run here; without `RowsHere` each part would send
the same query to the ledger.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.taskqueue import Ledger, Row


def workers_of(ledger: Ledger, rows: Iterable[Row], owner: str) -> set[str]:
    """The uuids of those of `rows`, all of them running, of which the worker has the host and base_dir of `owner`.

    The limit `scheduling.max_workers` counts the rows that `workers_of` returns.
    """
    return {row.uuid for row in rows if ledger.is_mine(row, owner)}


class RowsHere:
    """The rows of tasks that run on this host. Within `one_step` the rows are read once and stored; `forget` drops the
    stored rows after this daemon has changed rows. Outside of `one_step` each call of `read` queries the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._keeps = False
        self._rows: list[Row] | None = None

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """A context manager within which the rows are read once, and again only after `forget`."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            self.forget()

    def read(self) -> list[Row]:
        """The running rows of this host: those that are stored, else those that the ledger returns now."""
        rows = self.ledger.running_here() if self._rows is None else self._rows
        if self._keeps:
            self._rows = rows
        return rows

    def forget(self) -> None:
        """Drop the stored rows, so that the next `read` queries the ledger."""
        self._rows = None
