"""Full-text index of events or records with their context: each text alone, with its neighbours, with its session.

A reply often does not repeat the terms of the question before it.  With the neighbours in the index, a query with those
terms finds the reply too, which improved recall at 10 on dialogues by 10 to 13 percentage points (docs/memory.md,
"Ranking").  The caller passes each text as its terms.  Events have one index of this kind, and records have another.  A
text that is the only one of its session has no context.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.memory.database import MemoryDatabase

Kind = Literal["event", "record"]
Group = tuple[str, str]
"""(actor, session) of an event, (namespace, session) of a record."""
BEFORE, AFTER = 2, 1
"""Neighbours of a text in its window: two texts before it and one after it, in the same session."""
BLOCK = 64
"""Maximum number of texts of a session in one document.  A longer session has several documents, since each added text
rewrites the document that it is in."""
NEIGHBOUR = 300
"""Maximum number of terms of a neighbour that are indexed.  With more terms, a long output would outweigh the text
beside it.
"""
SESSION = 100
"""Maximum number of terms of a text that are indexed in the document of its session."""
_NEAR = 1000
"""Two changed texts of a session are read in separate queries if their keys are further apart than this."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The BM25 scores of one text: for the text alone, for its window with the neighbours, and for its session.  A
    score is 0 without a match; `window` and `session` are None for the only text of a session."""

    turn: float = 0.0
    window: float | None = 0.0
    session: float | None = 0.0


class ContextIndex:
    """The three FTS5 indexes (text, window, session) of events or of records.

    `add` and `remove` only collect changes; `flush` writes them, inside the transaction of the caller.  One flush at
    the end is cheaper: FTS5 writes its collected terms to disk whenever another statement begins that changes several
    rows and may fail in between.
    """

    def __init__(self, database: MemoryDatabase, kind: Kind) -> None:
        self.database = database
        self.kind = kind
        self._stale: defaultdict[Group, set[int]] = defaultdict(set)
        self._blocks: set[int] = set()
        self._added: dict[int, str] = {}  # terms of texts that are waiting for `flush`

    def add(self, key: int, terms: str, block: int, group: Group) -> None:
        """Index a text at the next `flush`.  Its row must exist already."""
        self._added[key] = terms
        self._note(key, block, group)

    def remove(self, key: int, block: int, group: Group) -> None:
        """Remove a text from the index.  The caller deletes or deactivates the text's row before `flush`."""
        if self._added.pop(key, None) is None:
            self.database.run(f"{self.kind}_turn_remove", key=key)
            self.database.run(f"{self.kind}_window_remove", key=key)
        self._note(key, block, group)

    def _note(self, key: int, block: int, group: Group) -> None:
        if group[1]:
            self._stale[group].add(key)
            self._blocks.add(block)

    def flush(self) -> None:
        """Write the added texts, and write the windows and sessions around every change again."""
        for key, terms in self._added.items():
            self.database.run(f"{self.kind}_turn_add", key=key, terms=terms)
        for group, keys in self._stale.items():
            for run in _runs(sorted(keys)):
                self._write_windows(group, run)
        for block in sorted(self._blocks):
            rows = self.database.run(f"{self.kind}_block_terms", block=block)
            self.database.run(f"{self.kind}_session_remove", key=block)
            if len(rows) > 1:
                text = " ".join(_first(row["terms"], SESSION) for row in rows)
                self.database.run(f"{self.kind}_session_add", key=block, terms=text)
        self.forget_stale()

    def _write_windows(self, group: Group, changed: Sequence[int]) -> None:
        around = BEFORE + AFTER
        rows = self.database.run(
            f"{self.kind}_group_terms",
            first=group[0],
            session_id=group[1],
            low=changed[0],
            high=changed[-1],
            around=around,
        )
        keys = [row["key"] for row in rows]
        short = [_first(row["terms"], NEIGHBOUR) for row in rows]
        for at in sorted(_touched(keys, changed)):
            if keys[at] not in self._added:
                self.database.run(f"{self.kind}_window_remove", key=keys[at])
            if len(rows) > 1:
                before, after = short[max(0, at - BEFORE) : at], short[at + 1 : at + 1 + AFTER]
                text = " ".join((*before, rows[at]["terms"], *after))
                self.database.run(f"{self.kind}_window_add", key=keys[at], terms=text)

    def forget_stale(self) -> None:
        """Drop the collected changes; needed after a transaction was rolled back."""
        self._stale.clear()
        self._blocks.clear()
        self._added.clear()

    def clear(self) -> None:
        """Remove everything from the three indexes."""
        self.forget_stale()
        for part in ("turn", "window", "session"):
            self.database.run(f"{self.kind}_{part}_clear")

    def optimize(self) -> None:
        """Merge the segments of the indexes, which removes deleted terms from the file."""
        for part in ("turn", "window", "session"):
            self.database.run(f"{self.kind}_{part}_optimize")

    def counts(self, terms: Sequence[str]) -> dict[str, int]:
        """term → number of texts that contain it, for the terms that occur in at least one text."""
        rows = self.database.run(f"{self.kind}_counts", terms=orjson.dumps(list(terms)).decode())
        return {row["term"]: int(row["doc"]) for row in rows}


def _runs(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or keys[at] - keys[at - 1] > _NEAR:
            yield keys[start:at]
            start = at


def _touched(keys: Sequence[int], changed: Iterable[int]) -> set[int]:
    """Positions in `keys` of the texts with windows that must be written again, because a text in the window changed or
    is gone.

    `_write_windows` has read exactly the neighbours that these windows need.
    """
    places: set[int] = set()
    for key in changed:
        at = bisect_left(keys, key)
        is_there = at < len(keys) and keys[at] == key
        places.update(range(max(0, at - AFTER), min(len(keys), at + BEFORE + is_there)))
    return places


def _first(terms: str, most: int) -> str:
    """The first `most` of the terms."""
    return terms if terms.count(" ") < most else " ".join(terms.split(" ", most)[:most])


def match_of(terms: Sequence[str]) -> str:
    """The FTS5 expression that matches a text with at least one of the terms."""
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
