"""The index of texts with their context: each text by itself, with its neighbours, and with its whole session.

One text is found by the words of the question before it and of the reply after it, which it does not repeat; that
was worth 10 to 13 points of recall at 10 on dialogues (docs/memory.md, "Ranking").  Texts are handed in as terms.
Events and records have one index each, told apart by their names.  A text that is alone in its session has no context.
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
"""Neighbours in a window: the two texts before and the one after, in the same session."""
BLOCK = 64
"""Texts of one session that are one document; a longer session is several, so that adding stays cheap."""
NEIGHBOUR = 300
"""Terms of a neighbour that count, so that a long output does not drown the text beside it."""
SESSION = 100
"""Terms of each text that count in the document of its session."""
_NEAR = 1000
"""Numbers of one session that are further apart than this are read in two queries."""


@dataclass(frozen=True, slots=True)
class Scores:
    """BM25 of one text: by itself, with its neighbours, of its session; 0 where it does not match, None for a text that
    is alone."""

    turn: float = 0.0
    window: float | None = 0.0
    session: float | None = 0.0


class ContextIndex:
    """The three indexes of one kind.  `add` and `remove` note what is stale; `flush` writes it, inside the transaction
    of the caller.

    The indexes are written together and at the end: FTS5 writes the terms that it has collected to the disk whenever
    another statement begins that may fail after several changes.
    """

    def __init__(self, database: MemoryDatabase, kind: Kind) -> None:
        self.database = database
        self.kind = kind
        self._stale: defaultdict[Group, set[int]] = defaultdict(set)
        self._blocks: set[int] = set()
        self._added: dict[int, str] = {}  # terms of texts that are not indexed yet

    def add(self, key: int, terms: str, block: int, group: Group) -> None:
        """Index a text at the next `flush`; its row is there already."""
        self._added[key] = terms
        self._note(key, block, group)

    def remove(self, key: int, block: int, group: Group) -> None:
        """Remove a text; its row is removed, or no longer active, before `flush`."""
        if self._added.pop(key, None) is None:
            self.database.run(f"{self.kind}_turn_remove", key=key)
            self.database.run(f"{self.kind}_window_remove", key=key)
        self._note(key, block, group)

    def _note(self, key: int, block: int, group: Group) -> None:
        if group[1]:
            self._stale[group].add(key)
            self._blocks.add(block)

    def flush(self) -> None:
        """Write the texts that are new, and the windows and sessions that are stale."""
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
        """Drop the notes, as after a transaction that was rolled back."""
        self._stale.clear()
        self._blocks.clear()
        self._added.clear()

    def clear(self) -> None:
        """Remove everything from the three indexes."""
        self.forget_stale()
        for part in ("turn", "window", "session"):
            self.database.run(f"{self.kind}_{part}_clear")

    def optimize(self) -> None:
        """Merge the indexes, which removes what was deleted from the file."""
        for part in ("turn", "window", "session"):
            self.database.run(f"{self.kind}_{part}_optimize")

    def counts(self, terms: Sequence[str]) -> dict[str, int]:
        """term → number of texts with it, for those that occur at all."""
        rows = self.database.run(f"{self.kind}_counts", terms=orjson.dumps(list(terms)).decode())
        return {row["term"]: int(row["doc"]) for row in rows}


def _runs(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or keys[at] - keys[at - 1] > _NEAR:
            yield keys[start:at]
            start = at


def _touched(keys: Sequence[int], changed: Iterable[int]) -> set[int]:
    """Places in `keys` of the texts whose window has a changed one; the changed one may be gone."""
    places: set[int] = set()
    for key in changed:
        at = bisect_left(keys, key)
        places.update(range(max(0, at - AFTER), min(len(keys), at + BEFORE + 1)))
    return places


def _first(terms: str, most: int) -> str:
    """The first `most` of the terms."""
    return terms if terms.count(" ") < most else " ".join(terms.split(" ", most)[:most])


def match_of(terms: Sequence[str]) -> str:
    """The expression of FTS5 for any of the terms."""
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
