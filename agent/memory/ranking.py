"""The relevance of hits: a weighted sum of scores, each normalised per query, times coverage.

BM25 has no upper bound and depends on the query, so each list of scores is divided by its best.  The sum is divided by
the best sum, so that the best hit of a query has its coverage as relevance.  Coverage is the share of the query's
weight (by inverse document frequency) that a hit contains: 1 for a full match.  So 0 lets every hit pass, 1 only full
matches, and the number is relative to the query.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.memory.context_index import Scores

TURN, WINDOW, SESSION = 0.5, 0.5, 0.4
"""Weights of the three scores (docs/memory.md, "Ranking")."""
SPEAKER = 0.1
"""What is added for an event whose speaker the query names, before the sum is normalised."""
FULL = 12
"""Terms whose weight is the whole of a long query: of a query with more terms, the heaviest that occur."""
PARTIAL = 0.99
"""Most coverage of a hit that lacks a term of the query."""


def weights(query: Sequence[str], counts: Mapping[str, int], total: int) -> dict[str, float]:
    """term → weight, for each term of the query: 1 + ln((N + 1) / (n + 1)) with n of N texts; an unknown term weighs as
    much as the rarest.  In a small memory all terms weigh nearly the same."""
    return {term: 1 + math.log((total + 1) / (min(max(counts.get(term, 1), 1), total) + 1)) for term in query}


class Coverage:
    """`Coverage(weights, counts)(terms)` is the share of a query, 0 to 1, that a text with these terms contains."""

    def __init__(self, weight: Mapping[str, float], counts: Mapping[str, int]) -> None:
        self.weight = weight
        self.whole = sum(weight.values())
        known = sorted((weight[term] for term in weight if term in counts), reverse=True)
        if len(weight) > FULL and len(known) >= FULL:
            self.whole = min(self.whole, sum(known[:FULL]))

    def __call__(self, terms: Collection[str]) -> float:
        found = [term for term in self.weight if term in terms]
        if len(found) == len(self.weight):
            return 1.0
        share = sum(self.weight[term] for term in found) / self.whole if self.whole else 0.0
        return min(share, PARTIAL)


def relevance(scores: Mapping[int, Scores], extra: Mapping[int, float] | None = None) -> dict[int, float]:
    """key → weighted sum of the normalised scores, 1 for the best.  `extra` is added to the sum.  For a text that is
    alone its own score stands for its context too."""
    turn = max((one.turn for one in scores.values()), default=0.0)
    window = max((one.window or 0.0 for one in scores.values()), default=0.0)
    session = max((one.session or 0.0 for one in scores.values()), default=0.0)
    sums = {}
    for key, one in scores.items():
        own = _share(one.turn, turn)
        around = own if one.window is None else _share(one.window, window)
        whole = own if one.session is None else _share(one.session, session)
        sums[key] = TURN * own + WINDOW * around + SESSION * whole + (extra or {}).get(key, 0.0)
    most = max(sums.values(), default=0.0)
    return {key: _share(one, most) for key, one in sums.items()}


def _share(score: float, best: float) -> float:
    return max(0.0, score) / best if best > 0 else 0.0
