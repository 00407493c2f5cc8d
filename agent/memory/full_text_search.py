"""Search in a `FullTextIndex`, in two steps: the rare terms of a query select candidates, then all terms score them.

The first step leaves out common terms, because BM25 takes a microsecond for each matching text, and a term that every
tenth text contains hardly separates texts. If the rare terms of a query select fewer candidates than wanted, all its
terms select the candidates. The second step of the search scores each candidate alone, with its neighbours and with its
session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent.memory.full_text_index import AFTER, BEFORE, Kind, Scores, match_of
from agent.memory.ranking import Coverage, weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.memory.database import MemoryDatabase
    from agent.memory.full_text_index import FullTextIndex

POSTINGS = 2000
"""Maximum number of texts that all terms of the first search step may match in total."""
MOST = 150
"""Maximum number of candidates of a search, unless 5 times `top_k` is more."""
MOST_TERMS = 24
"""Maximum number of terms of a query that are used for the search: the rarest ones that occur in the index."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query: all its `terms`, the `known` ones (the rarest terms that occur in the index), and `counts`, the number
    of texts for each term that occurs."""

    terms: Sequence[str]
    counts: Mapping[str, int]
    known: Sequence[str]

    @property
    def match(self) -> str:
        """The FTS5 expression that matches texts with at least one of the terms in `known`."""
        return match_of(self.known)


class FullTextSearch:
    """Searches one `FullTextIndex`."""

    def __init__(self, database: MemoryDatabase, index: FullTextIndex) -> None:
        self.database = database
        self.index = index
        self.kind: Kind = index.kind

    def query(self, terms: Sequence[str]) -> SearchQuery:
        """Make a SearchQuery from terms, with the number of texts for each term."""
        counts = self.index.counts(terms)
        known = sorted((term for term in terms if term in counts), key=lambda term: (counts[term], term))[:MOST_TERMS]
        return SearchQuery(terms, counts, known)

    def coverage(self, query: SearchQuery, total: int) -> Coverage:
        """The function that computes which share of the query the terms of a text cover; `total` is the number of
        texts."""
        return Coverage(weights(query.terms, query.counts, total), query.counts)

    def total(self) -> int:
        """The number of indexed texts."""
        return int(self.database.run(f"{self.kind}_total")[0]["texts"])

    def candidates(self, query: SearchQuery, top_k: int, **among: Any) -> list[int]:
        """Keys of the texts that match by themselves, without their neighbours, best first.  `among` are parameters of
        the named SQL query that restrict the texts (actor, session, namespace)."""
        most = max(MOST, 5 * top_k)
        first = rare(query.known, query.counts)
        found = self._matching(first, most, among)
        if len(found) < top_k and len(first) < len(query.known):
            found = self._matching(query.known, most, among)
        return found

    def _matching(self, terms: Sequence[str], most: int, among: Mapping[str, Any]) -> list[int]:
        rows = self.database.run(f"{self.kind}_candidates", match=match_of(terms), most=most, **among)
        return [row["key"] for row in rows]

    def scores(self, query: SearchQuery, blocks: Mapping[int, int]) -> dict[int, Scores]:
        """key → Scores of the text.  `blocks` maps the key of each text to the key of its session document.  The score
        of a text that does not match the query is 0."""
        keys = as_json(blocks)
        turns = self._scores("turn", query, keys)
        windows = self._scores("window", query, keys)
        sessions = self._scores("session", query, as_json(set(blocks.values())))
        made = {}
        for key, block in blocks.items():
            turn, window = turns.get(key, 0.0), windows.get(key)
            # The window of a text (the text and its neighbours) contains all terms of the text. So if a text matches
            # the query but has no window with a score, it has no neighbours: it is the only text of its session.
            alone = turn > 0 and window is None
            made[key] = Scores(turn, None if alone else window or 0.0, None if alone else sessions.get(block, 0.0))
        return made

    def _scores(self, part: str, query: SearchQuery, keys: str) -> dict[int, float]:
        rows = self.database.run(f"{self.kind}_{part}_scores", match=query.match, keys=keys)
        return {row["key"]: row["score"] for row in rows}

    def around(self, keys: Iterable[int], *, before: int = BEFORE, after: int = AFTER) -> list[tuple[int, int]]:
        """A pair (key of a text, key of a neighbour) for each neighbour of each text in the same session."""
        rows = self.database.run(f"{self.kind}_around", keys=as_json(keys), before=before, after=after)
        return [(row["key"], row["neighbour"]) for row in rows]


def rare(known: Sequence[str], counts: Mapping[str, int]) -> Sequence[str]:
    """The first terms of `known` (rarest first) that match at most POSTINGS texts in total; at least one term."""
    texts = 0
    for at, term in enumerate(known):
        texts += counts[term]
        if texts > POSTINGS and at > 0:
            return known[:at]
    return known


def as_json(values: Iterable[object]) -> str:
    """The values as a JSON array, for `json_each` in SQL."""
    return orjson.dumps(list(values)).decode()
