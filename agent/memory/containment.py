"""The share of a short record that a query contains: the second measure of relevance, beside coverage of the query.

A preference like "Use unittest, not pytest." has at most three terms of an issue of two hundred, so its coverage of the
query is always small.  The share of the record that the query contains is the better measure for it.  Terms that nearly
every issue has, and pairs of hiragana, which are mostly grammar, count little.  The terms of the title and those that
the query repeats count more, since they name its subject.  A long word counts in part if the query has its beginning or
its end: `unittest` for `test`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from agent.memory.terms import Terms

LONGEST = 24
"""Maximum number of terms of a short record.  A longer one is measured by coverage alone."""
LONGEST_TEXT = 250
"""Maximum number of characters of a short record."""
ENOUGH = 4
"""So many of the heaviest terms of a record count as the whole record; a third of them if that is more."""
LEAST = 2.0
"""The lowest weight of a whole record, so that one word of a record of two is no full match."""
PARTIAL = 0.99
"""Maximum containment.  A relevance of 1 means that the record has every term of the query."""
PART = 0.7
"""Share of a long word that counts if the query has its beginning or its end."""
SHORTEST_PART, SHORTEST_WHOLE = 4, 6
"""Minimum number of characters of such a beginning or end, and of the long word."""
SUBJECT = 1.5
"""Factor of a word of the first line of a query of several lines, or one that the query has twice."""
COMMON = 0.2
"""Weight of a common word."""
PAIR = 0.1
"""Weight of a pair of adjacent characters that is no part of a word in kanji or katakana: mostly grammar."""
HANGUL_PAIR = 0.5
"""Weight of such a pair in another script without spaces, like Hangul or Thai."""

COMMON_WORDS = """
    actual add allow always app application ask behavior behaviour browser bug call case change check class clean close
    correct create describe ensure entry environment event example exist expect fail file find first fix format function
    get github handle implement improve include information install issue know last like line list load make method miss
    move must name need never new none note number off one open operate option page pass please prefer problem project
    pull python raise read refer remove rename replace report reproduce request require return run sample say search see
    set show simplify start step support system tell time two update use user value version wait want way without work
    write
"""
"""Terms of many commits and of the templates of issues, of any subject."""

_KATAKANA = re.compile("[\u30a0-\u30ff]{2,}")
_KANA = re.compile("[\u3040-\u30ff]")
_KANJI = re.compile("[\u3400-\u9fff]{2,}")


class Containment:
    """`Containment(query, terms, counts, total, common)(text)` is the share of a text that the query contains, 0 to
    PARTIAL.

    `counts` are the numbers of records for the terms of the query that occur among `total` records, and `common` the
    terms of COMMON_WORDS.
    """

    def __init__(self, query: str, terms: Terms, counts: Mapping[str, int], total: int, common: frozenset[str]) -> None:
        self.terms = terms
        self.common = common
        found, (title, _, rest) = Counter(terms(query)), query.strip().partition("\n")
        subject = {term for term, times in found.items() if times > 1} | set(terms(title) if rest else ())
        most = _inverse(1, total)
        self.shares = {
            term: min(1.0, _inverse(counts.get(term, 1), total) / most) * (SUBJECT if term in subject else 1.0)
            for term in found
        }
        self.parts = {
            term: share
            for term, share in self.shares.items()
            if len(term) >= SHORTEST_PART and term.isascii() and term not in common
        }
        self.heads = frozenset(part[:SHORTEST_PART] for part in self.parts)
        self.tails = frozenset(part[-SHORTEST_PART:] for part in self.parts)
        self.rare = frozenset(self.shares) - common
        self.known: dict[str, float] = {}

    def may_hold(self, terms: Collection[str]) -> bool:
        """Whether the query has more of a text with these terms than common ones; a check without the text."""
        return not self.rare.isdisjoint(terms) or any(map(self._has_part, terms))

    def _has_part(self, term: str) -> bool:
        is_long = len(term) >= SHORTEST_WHOLE
        return is_long and (term[:SHORTEST_PART] in self.heads or term[-SHORTEST_PART:] in self.tails)

    def __call__(self, text: str) -> float:
        if len(text) > LONGEST_TEXT:
            return 0.0
        words = dict(self._words(text))
        telling = sorted((weight for weight in words.values() if weight), reverse=True)
        if not telling or len(telling) > LONGEST:
            return 0.0
        whole = max(LEAST, sum(telling[: max(ENOUGH, len(telling) // 3)]))
        found = sum(weight * self._share(parts) for parts, weight in words.items())
        return min(found / whole, PARTIAL)

    def _words(self, text: str) -> Iterator[tuple[tuple[str, ...], float]]:
        """Pairs of what the query must have, a run of terms, and its weight.

        A run of katakana is one such item.  Each pair in a run of kanji is one; together they weigh half its length.
        """
        ascii_only = text.isascii()
        for run in () if ascii_only else _KATAKANA.findall(text):
            yield _pairs(run), 1.0
        pairs = {}
        for run in () if ascii_only else _KANJI.findall(text):
            pairs.update(dict.fromkeys(_pairs(run), len(run) / 2 / (len(run) - 1)))
        for term in self.terms(text):
            if term.isascii():
                yield (term,), COMMON if term in self.common or term.isdecimal() else 1.0
            elif len(term) == 2 and not _KATAKANA.match(term):
                yield (term,), pairs.get(term, PAIR if _KANA.search(term) else HANGUL_PAIR)
            elif len(term) > 2:
                yield (term,), 1.0

    def _share(self, parts: tuple[str, ...]) -> float:
        shares = [self.shares.get(part, 0.0) for part in parts]
        if (share := min(shares)) or len(parts) > 1:
            return share
        (term,) = parts
        if term not in self.known:
            sizes = range(SHORTEST_PART, len(term)) if self._has_part(term) else ()
            ends = (self.parts.get(part, 0.0) for size in sizes for part in (term[:size], term[-size:]))
            self.known[term] = PART * max(ends, default=0.0)
        return self.known[term]


def _pairs(run: str) -> tuple[str, ...]:
    return tuple(run[at : at + 2] for at in range(len(run) - 1))


def _inverse(texts: int, total: int) -> float:
    """1 + ln((N + 1) / (n + 1)), where n of N texts contain a term."""
    return 1 + math.log((total + 1) / (min(max(texts, 1), total) + 1)) if total else 1.0
