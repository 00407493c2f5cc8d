"""Computes which share of a short memory record a query contains: the second measure of relevance, besides the share of
the query that the record covers.

A preference like "Use unittest, not pytest." can match at most three of the two hundred terms of an issue, so the share
of the query that such a record covers is small.  For a short record, the share of the record that the query contains is
the better measure.  Terms that nearly every issue contains, and pairs of hiragana, which are mostly grammar, have a low
weight.  Terms in the first line of the query (the title), and terms that the query repeats, have a higher weight, since
they name the subject.  A long term of the record also counts in part if the query contains only its beginning or end:
for example if the query has `test` and the record `unittest`.
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
"""Maximum number of terms of a short record.  The relevance of a record with more terms than LONGEST is the share of
the query that the record covers."""
LONGEST_TEXT = 250
"""Maximum number of characters of a short record."""
ENOUGH = 4
"""A record counts as fully contained in a query if the terms that the query contains weigh as much as the record's
ENOUGH heaviest terms together, or its heaviest third if that is more terms."""
LEAST = 2.0
"""The matching terms must weigh at least this much for a full match, so that one term is not a full match of a record
with two terms."""
PARTIAL = 0.99
"""The largest result of `Containment`, even for a record that the query contains in full. Only a record that itself has
every term of the query gets the relevance 1."""
PART = 0.7
"""The share of a term's weight that counts if the query contains only the beginning or the end of that term of the
record."""
SHORTEST_PART, SHORTEST_WHOLE = 4, 6
"""Minimum number of characters of the beginning or end of a term that counts in part (SHORTEST_PART), and of the whole
term (SHORTEST_WHOLE)."""
SUBJECT = 1.5
"""Factor for the weight of a term in the first line of a query of several lines, and of a term that occurs more than
once in the query."""
COMMON = 0.2
"""Weight of a term that is in COMMON_WORDS or is a number."""
PAIR = 0.1
"""Weight of a pair of adjacent characters with hiragana or katakana that is no part of a run of kanji or katakana:
mostly grammar."""
HANGUL_PAIR = 0.5
"""Weight of a pair of adjacent characters in another script without spaces, like Hangul or Thai."""

COMMON_WORDS = """
    actual add allow always app application ask behavior behaviour browser bug call case change check class clean close
    correct create describe ensure entry environment event example exist expect fail file find first fix format function
    get github handle implement improve include information install issue know last like line list load make method miss
    move must name need never new none note number off one open operate option page pass please prefer problem project
    pull python raise read refer remove rename replace report reproduce request require return run sample say search see
    set show simplify start step support system tell time two update use user value version wait want way without work
    write
"""
"""Terms that are frequent in commits and in issue templates, regardless of the subject."""

_KATAKANA = re.compile("[\u30a0-\u30ff]{2,}")
_KANA = re.compile("[\u3040-\u30ff]")
_KANJI = re.compile("[\u3400-\u9fff]{2,}")


class Containment:
    """`Containment(query, terms, counts, total, common)(text)` is the share of a text that the query contains, 0 to
    PARTIAL; 0 for a text that is too long for a short record.

    `counts` has the number of records for each query term that occurs among `total` records; `common` are the terms of
    COMMON_WORDS.
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
        """Whether the query contains at least one term of a text, other than common words, or the beginning or end of a
        term; a cheap check before the whole text is compared."""
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
        """Yields the items of the text that are searched for in the query: the terms of each item, and its weight.

        A run of katakana in the text is one item of the text.  Each pair of characters in a run of kanji is one item;
        together the pairs of a run weigh half the run's length.
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
    """The weight of a term that n of N texts contain: 1 + ln((N + 1) / (n + 1))."""
    return 1 + math.log((total + 1) / (min(max(texts, 1), total) + 1)) if total else 1.0
