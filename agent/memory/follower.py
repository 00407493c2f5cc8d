"""Applies entries of the shared log, which other hosts have appended, to the memory.db of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.memory import purge
from agent.memory.base import Selector
from agent.memory.forget import FORGOTTEN, entries_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.memory.base import Entry
    from agent.memory.commit_index import CommitIndex
    from agent.memory.log import LocalLog
    from agent.memory.log_projection import LogProjection


class Follower:
    """Applies entries.  `pieces` are parts of the texts that other hosts have forgotten; `purge.py` checks that
    memory.db and its exports no longer contain these parts.
    """

    def __init__(self, local: LocalLog, projection: LogProjection, history: CommitIndex) -> None:
        self.local = local
        self.projection = projection
        self.history = history
        self.pieces: list[bytes] = []

    def apply(self, entries: Sequence[Entry]) -> None:
        """Store the log entries in memory.db and apply them to its tables; the caller must have begun a transaction."""
        for entry in entries:
            self.local.insert(entry)
            if entry.operation == FORGOTTEN and entry.payload is not None:
                self._forget(entry.payload)
            self.projection.apply(entry)
        self.projection.flush()

    def take_pieces(self) -> list[bytes]:
        """Return the collected pieces of forgotten texts and clear their list."""
        found, self.pieces = self.pieces, []
        return found

    def _forget(self, payload: Mapping[str, Any]) -> None:
        """Remove texts that another host has forgotten from the local log and from the history of commits."""
        database = self.local.database
        self.pieces += purge.pieces_of(texts_of(database, payload["events"], payload["records"]))
        del self.pieces[purge.MOST :]
        self.local.blank(entries_of(database, payload["events"], payload["records"]))
        self.history.forget_commits(payload.get("commits") or ())
        if actor := payload.get("actor"):
            self.history.forget(Selector(actor=str(actor)))
