"""The retrieval of memory records below one namespace, ordered by relevance and age."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.memory import ranking
from agent.memory.base import MemoryHit
from agent.memory.context_search import as_json
from agent.memory.namespaces import span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.memory.base import RetrievalConfig
    from agent.memory.context_search import ContextSearch
    from agent.memory.database import MemoryDatabase
    from agent.memory.records import Records
    from agent.memory.terms import Terms

OLDEST = 0.5
"""The lowest factor by which age lowers the rank of a record."""
LONGEST_QUERY = 10_000
"""Characters of a query that are read."""


class RecordSearch:
    """The search in records."""

    def __init__(
        self,
        database: MemoryDatabase,
        terms: Terms,
        records: Records,
        search: ContextSearch,
        half_life_days: Mapping[str, float],
    ) -> None:
        self.database = database
        self.terms = terms
        self.records = records
        self.search = search
        self.half_life_days = half_life_days

    def __call__(self, query: str, namespace: str, config: RetrievalConfig) -> list[MemoryHit]:
        """At most `config.top_k` hits below `namespace`, ordered by relevance times the factor of age."""
        first, end = span(namespace)
        asked = self.search.query(self.terms.of_query(query[:LONGEST_QUERY]))
        if not asked.known:
            return []
        among = {"first": first, "end": end, "min_trust": config.min_trust, "now": clock.stamp()}
        found = self.search.candidates(asked, config.top_k, **among)
        rows = self.database.run("record_rows", keys=as_json(found))
        ranked = ranking.relevance(self.search.scores(asked, {row["key"]: row["block"] for row in rows}))
        coverage = self.search.coverage(asked)
        scored = []
        for row in rows:
            score = ranked[row["key"]] * coverage(set(row["terms"].split(" ")))
            if score >= config.relevance_score:
                age = self._freshness(row["strategy"], row["pinned"], row["last_used_at"], row["timestamp"])
                scored.append((-score * age, -row["key"], score, row))
        best = sorted(scored, key=lambda one: one[:2])[: config.top_k]
        made = self.records.of_rows([row for _, _, _, row in best])
        return [MemoryHit(record, score) for record, (_, _, score, _) in zip(made, best, strict=True)]

    def rank(self, hit: MemoryHit) -> float:
        """The sort key for hits of several namespaces: relevance times the factor of age."""
        record = hit.record
        return hit.score * self._freshness(record.strategy, record.pinned, record.last_used_at, record.timestamp)

    def _freshness(self, strategy: str, pinned: object, last_used_at: str | None, timestamp: str) -> float:
        """The factor of age: 0.5 to the power of (age / half-life), at least OLDEST.  The age is counted from the last
        use, if that is later than the record."""
        days = self.half_life_days.get(strategy)
        if days is None or pinned:
            return 1.0
        age = clock.now() - clock.parse(max(last_used_at or "", timestamp))
        return max(OLDEST, float(0.5 ** max(0.0, age / timedelta(days=days))))
