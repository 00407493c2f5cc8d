"""The search over an index of texts with their context, in two steps.

First the rare terms of the query give candidates: BM25 costs a microsecond for each text that matches, and a word that
is in every tenth text says little.  Then all terms score the candidates, alone, with their neighbours and with their
session.  When the rare terms give too few candidates, all terms give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent.memory.context_index import AFTER, BEFORE, Kind, Scores, match_of
from agent.memory.ranking import Coverage, weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.memory.context_index import ContextIndex
    from agent.memory.database import MemoryDatabase

POSTINGS = 2000
"""Texts that the terms of the first step may match together."""
MOST = 150
"""Candidates, and at least 5 times `top_k`."""
MOST_TERMS = 24
"""Terms of a query that count; of a longer one, the rarest that occur."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query: all its `terms`, the `known` ones that occur, and for each of those the number of texts with it."""

    terms: Sequence[str]
    counts: Mapping[str, int]
    known: Sequence[str]

    @property
    def match(self) -> str:
        """The expression of FTS5."""
        return match_of(self.known)


class ContextSearch:
    """The search over one kind of texts."""

    def __init__(self, database: MemoryDatabase, index: ContextIndex) -> None:
        self.database = database
        self.index = index
        self.kind: Kind = index.kind

    def query(self, terms: Sequence[str]) -> Query:
        """What is known of the terms."""
        counts = self.index.counts(terms)
        known = sorted((term for term in terms if term in counts), key=lambda term: (counts[term], term))[:MOST_TERMS]
        return Query(terms, counts, known)

    def coverage(self, query: Query) -> Coverage:
        """The coverage of the query by a text."""
        total = int(self.database.run(f"{self.kind}_total")[0]["texts"])
        return Coverage(weights(query.terms, query.counts, total), query.counts)

    def candidates(self, query: Query, top_k: int, **among: Any) -> list[int]:
        """Keys of texts that match by themselves; `among` are the parameters of the named query that restrict them."""
        most = max(MOST, 5 * top_k)
        first = rare(query.known, query.counts)
        found = self._matching(first, most, among)
        if len(found) < top_k and len(first) < len(query.known):
            found = self._matching(query.known, most, among)
        return found

    def _matching(self, terms: Sequence[str], most: int, among: Mapping[str, Any]) -> list[int]:
        rows = self.database.run(f"{self.kind}_candidates", match=match_of(terms), most=most, **among)
        return [row["key"] for row in rows]

    def scores(self, query: Query, blocks: Mapping[int, int]) -> dict[int, Scores]:
        """key → scores of texts that are given with the block of each; those that do not match have zeros."""
        keys = as_json(blocks)
        turns = self._scores("turn", query, keys)
        windows = self._scores("window", query, keys)
        sessions = self._scores("session", query, as_json(set(blocks.values())))
        made = {}
        for key, block in blocks.items():
            turn, window = turns.get(key, 0.0), windows.get(key)
            # A window has the words of its text, so that it matches where the text does, unless the text is alone.
            alone = turn > 0 and window is None
            made[key] = Scores(turn, None if alone else window or 0.0, None if alone else sessions.get(block, 0.0))
        return made

    def _scores(self, part: str, query: Query, keys: str) -> dict[int, float]:
        rows = self.database.run(f"{self.kind}_{part}_scores", match=query.match, keys=keys)
        return {row["key"]: row["score"] for row in rows}

    def around(self, keys: Iterable[int], *, before: int = BEFORE, after: int = AFTER) -> list[tuple[int, int]]:
        """(key, neighbour) for each neighbour in the same session."""
        rows = self.database.run(f"{self.kind}_around", keys=as_json(keys), before=before, after=after)
        return [(row["key"], row["neighbour"]) for row in rows]


def rare(known: Sequence[str], counts: Mapping[str, int]) -> Sequence[str]:
    """Of terms, the rarest first, those that match at most POSTINGS texts together; at least one."""
    texts = 0
    for at, term in enumerate(known):
        texts += counts[term]
        if texts > POSTINGS and at > 0:
            return known[:at]
    return known


def as_json(values: Iterable[int]) -> str:
    """A list for `json_each`."""
    return orjson.dumps(list(values)).decode()
