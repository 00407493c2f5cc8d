"""Computes the relevance of hits, 0 to 1: a weighted sum of normalised scores, multiplied by coverage.

BM25 has no upper bound and depends on the query, so each list of scores is divided by its highest score. The weighted
sum of the scores of each hit is divided by the highest of these sums. Coverage is the share of the query that a hit
contains, weighted by inverse document frequency: 1 for a full match. The relevance of a short record is at least the
share of the record that the query contains (`containment.py`). A lower limit of 0 for the relevance accepts every hit,
and 1 accepts full matches only. The relevances of hits of different queries cannot be compared.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.memory.full_text_index import Scores

TURN, WINDOW, SESSION = 0.5, 0.5, 0.4
"""Weights of the three scores of a text: of the text alone, with its neighbours, and of its session (docs/memory.md,
"Ranking")."""
SPEAKER = 0.1
"""Number that is added to the weighted sum of an event if the query contains the name of the event's speaker, before
the sums are normalised."""
FULL = 12
"""If a query has more than FULL terms, a hit needs only the FULL heaviest terms that the index knows for a coverage
near 1."""
PARTIAL = 0.99
"""Maximum coverage of a hit that lacks a term of the query."""


def weights(query: Sequence[str], counts: Mapping[str, int], total: int) -> dict[str, float]:
    """term → weight, for each term of the query: 1 + ln((N + 1) / (n + 1)), where n of N texts contain the term.  A
    term that occurs in no text has the weight of a term that occurs in one text.  In a memory with few texts the
    weights of all terms are nearly equal."""
    return {term: 1 + math.log((total + 1) / (min(max(counts.get(term, 1), 1), total) + 1)) for term in query}


class Coverage:
    """`Coverage(weights, counts)(terms)` is the share of the query's total weight, 0 to 1, that the terms of a text
    have."""

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
    """Key of a text → weighted sum of its normalised scores, divided by the highest sum, so that the best text has 1.
    `extra` maps the key of a text to a number that is added to its sum. If the score of a text with its neighbours, or
    that of its session, is missing, the score of the text alone replaces it."""
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


def with_cosines(scores: Mapping[int, float], cosines: Mapping[int, float]) -> Mapping[int, float]:
    """key → sum of the score and the cosine (divided by the highest cosine), divided by the highest sum; the scores
    unchanged if there are no cosines."""
    best = max((cosines.get(key, 0.0) for key in scores), default=0.0)
    if best <= 0:
        return scores
    sums = {key: score + cosines.get(key, 0.0) / best for key, score in scores.items()}
    most = max(sums.values())
    return {key: _share(one, most) for key, one in sums.items()}


def _share(score: float, best: float) -> float:
    return max(0.0, score) / best if best > 0 else 0.0
