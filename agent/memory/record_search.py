"""The retrieval of memory records below one namespace or several, ordered by relevance, age and outcomes."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.memory import ranking
from agent.memory.base import MemoryHit
from agent.memory.containment import COMMON_WORDS, LONGEST_TEXT, Containment
from agent.memory.full_text_index import Scores
from agent.memory.full_text_search import MOST, as_json
from agent.memory.namespaces import span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.memory.base import RetrievalConfig
    from agent.memory.database import MemoryDatabase
    from agent.memory.full_text_search import FullTextSearch, SearchQuery
    from agent.memory.records import Records
    from agent.memory.terms import Terms
    from agent.memory.vectors import Vectors

OLDEST = 0.5
"""The lowest factor for age, and also the lowest for bad outcomes, by which the rank of a record is multiplied."""
LONGEST_QUERY = 10_000
"""Maximum number of characters of a query; the rest is ignored."""


class RecordSearch:
    """Searches memory records."""

    def __init__(
        self,
        database: MemoryDatabase,
        terms: Terms,
        records: Records,
        search: FullTextSearch,
        half_life_days: Mapping[str, float],
        vectors: Vectors,
    ) -> None:
        self.database = database
        self.terms = terms
        self.records = records
        self.search = search
        self.half_life_days = half_life_days
        self.vectors = vectors

    def __call__(self, query: str, namespace: str, config: RetrievalConfig) -> list[MemoryHit]:
        """The hits of the query below `namespace`, at most `config.top_k`, ordered by relevance times the factors for
        age and outcomes."""
        return self.of_each(query, [(namespace, config)])[0]

    def of_each(self, query: str, wanted: Sequence[tuple[str, RetrievalConfig]]) -> list[list[MemoryHit]]:
        """The hits of the query for each pair of namespace and config. For each term of the query, the number of
        records that contain the term is read once and used for all pairs; the candidates of all namespaces are scored
        together."""
        query = query[:LONGEST_QUERY]
        vector = self.vectors.of_query(query)  # this call must precede the first SQL statement, see `Vectors.of_query`
        among = [(*span(namespace), config.min_trust) for namespace, config in wanted]
        asked = self.search.query(self.terms.of_query(query))
        most: dict[tuple[str, str, int], int] = {}
        for one, (_, config) in zip(among, wanted, strict=True):
            most[one] = max(most.get(one, 0), config.top_k)
        keys = {one: self._candidates(asked, one, top_k) for one, top_k in most.items()}
        every = list(dict.fromkeys(key for found in keys.values() for key in found))
        rows = {row["key"]: row for row in self.database.run("record_rows", keys=as_json(every))}
        blocks = {key: row["block"] for key, row in rows.items()}
        scores = self.search.scores(asked, blocks) if asked.known else dict.fromkeys(blocks, Scores())
        terms = {key: set(row["terms"].split(" ")) for key, row in rows.items()}
        total = self.search.total()
        coverage = self.search.coverage(asked, total)
        held = self._contained_records(Containment(query, self.terms, asked.counts, total, self._common), rows, terms)
        near = self.vectors.cosines(vector, rows)
        covered = {
            key: max(coverage(terms[key]), near.get(key, 0.0))
            for key in rows
            if scores[key].turn > 0 or near.get(key) or held.get(key)
        }
        made = []
        for one, (_, config) in zip(among, wanted, strict=True):
            mine = ranking.with_cosines(
                ranking.relevance({key: scores[key] for key in keys[one] if key in covered}), near
            )
            found = {key: max(share * covered[key], held.get(key, 0.0)) for key, share in mine.items()}
            made.append(self._best(found, rows, config))
        return made

    def _contained_records(
        self, share: Containment, rows: Mapping[int, Mapping[str, Any]], terms: Mapping[int, set[str]]
    ) -> dict[int, float]:
        """key of a record → share of the record that the query contains, for short records (`containment.py`)."""
        short = {key: row["text"] for key, row in rows.items() if len(row["text"]) <= LONGEST_TEXT}
        texts = {key: text for key, text in short.items() if share.may_hold(terms[key])}
        # one call for all texts fills the cache of stems, which the calls of `share` then read
        self.terms("\n".join(texts.values()))
        return {key: found for key, text in texts.items() if (found := share(text))}

    @cached_property
    def _common(self) -> frozenset[str]:
        return frozenset(self.terms(COMMON_WORDS))

    def _candidates(self, asked: SearchQuery, where: tuple[str, str, int], top_k: int) -> list[int]:
        """Keys of the active records of a namespace that may match: all of them if there are at most MOST, else the
        candidates of the search.
        """
        first, end, min_trust = where
        among = {"first": first, "end": end, "min_trust": min_trust, "now": clock.stamp()}
        few = self.database.run("record_few", most=MOST + 1, **among)
        if len(few) <= MOST:
            return [row["key"] for row in few]
        return self.search.candidates(asked, top_k, **among) if asked.known else []

    def _best(
        self, scores: Mapping[int, float], rows: Mapping[int, Mapping[str, Any]], config: RetrievalConfig
    ) -> list[MemoryHit]:
        """The best `top_k` of the given records with at least the relevance `config.relevance_score`, each with its
        relevance."""
        scored = []
        for key, score in scores.items():
            row = rows[key]
            if score >= config.relevance_score:
                age = self._freshness(row["strategy"], row["pinned"], row["last_used_at"], row["timestamp"])
                scored.append((-score * age * confidence(row["helped"], row["hurt"]), -key, score, row))
        best = sorted(scored, key=lambda one: one[:2])[: config.top_k]
        made = self.records.of_rows([row for _, _, _, row in best])
        return [MemoryHit(record, score) for record, (_, _, score, _) in zip(made, best, strict=True)]

    def rank(self, hit: MemoryHit) -> float:
        """The number by which hits of several namespaces are ordered: relevance times the factors for age and
        outcomes."""
        record = hit.record
        age = self._freshness(record.strategy, record.pinned, record.last_used_at, record.timestamp)
        return hit.score * age * confidence(record.helped, record.hurt)

    def _freshness(self, strategy: str, pinned: object, last_used_at: str | None, timestamp: str) -> float:
        """The factor for age: 0.5 to the power of (age / half-life), at least OLDEST; 1 for a pinned record and for a
        strategy without a half-life.  The age is counted from the last use of the record, or from the time of the
        record if that is later."""
        days = self.half_life_days.get(strategy)
        if days is None or pinned:
            return 1.0
        age = clock.now() - clock.parse(max(last_used_at or "", timestamp))
        return max(OLDEST, float(0.5 ** max(0.0, age / timedelta(days=days))))


def confidence(helped: int, hurt: int) -> float:
    """The factor for the outcomes of the tasks that got the record: (helped + 2) / (helped + hurt + 2), at least
    OLDEST."""
    return max(OLDEST, (helped + 2) / (helped + hurt + 2))
