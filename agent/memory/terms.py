"""Splits a text into terms, for the index and for queries: stems of words, parts of identifiers, pairs of characters.

* The identifiers `getUserName` and `get_user_name` both become `getusername`, `get`, `user`, `name`, before stemming.
* Scripts without spaces between words (Japanese, Chinese, Thai, and Korean, where endings are attached) are indexed as
  single characters and as pairs of adjacent ones.  A query in a script without spaces uses only the pairs, except for a
  run of one character.
* Text is normalised to NFKC, to lower case, and without accents. English words are replaced by their stems
  (`stems.py`). Stop words like `the` are left out of the terms, unless the text has no other words.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from typing import TYPE_CHECKING

from agent.memory.stems import Stemmer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af"
)
"""Character ranges of scripts without spaces between words: Thai, Lao, Myanmar, Khmer, Hangul, kana, Han."""
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_WORD = re.compile(r"\w+", re.ASCII)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_HUMP = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")
_MARKS = re.compile("[\u0300-\u036f]+")

STOP = frozenset(
    """a about above after again against all am an and any are aren as at be because been before being below between
    both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further had
    hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just
    ll m me might more most must mustn my myself no nor not now o of off on once only or other our ours ourselves out
    over own re s same shall shan she should shouldn so some such t than that the their theirs them themselves then
    there these they this those through to too under until up ve very was wasn we were weren what when where which while
    who whom whose why will with won would wouldn y you your yours yourself yourselves""".split()  # noqa: SIM905 - one string of words is easier to read than a list
)

LONGEST = 64
"""Maximum number of characters of a word that is indexed. Longer words are mostly hashes or encoded data, and are
cut."""
MOST = 60_000
"""Maximum number of words in the cache of stems. When the cache is larger, it is cleared."""


def words(text: str, *, pairs_only: bool = False) -> Iterator[str]:
    """The words of a text with stop words, not replaced by their stems, in the order of the text: an identifier of
    several parts as a whole and then its parts, a run of a script without spaces as its characters and then its pairs.

    With `pairs_only`, as for a query, text in a script without spaces gives only pairs, and a single character only if
    it stands alone.
    """
    for run in _runs(text):
        yield from _of_run(run, pairs_only=pairs_only)


def _runs(text: str) -> list[str]:
    """Runs of letters, digits and `_`; a run contains either only characters of scripts without spaces, or none."""
    return _WORD.findall(text) if text.isascii() else _RUN.findall(unicodedata.normalize("NFKC", text))


def _of_run(run: str, *, pairs_only: bool) -> Iterator[str]:
    if _IS_UNSPACED.match(run):
        if not pairs_only or len(run) == 1:
            yield from run
        for at in range(len(run) - 1):
            yield run[at : at + 2]
        return
    parts = _HUMP.findall(run) if run.isascii() else [part for part in run.split("_") if part]
    if len(parts) > 1:
        yield _folded("".join(parts))[:LONGEST]
    for part in parts:
        yield _folded(part)[:LONGEST]


def _folded(word: str) -> str:
    folded = word.casefold()
    if folded.isascii():
        return folded
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", folded)))


class Terms:
    """`Terms()(text)` is the list of terms under which a text is indexed, in order.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stemmer = Stemmer()
        self._known: dict[str, tuple[str, ...]] = {}  # a run of letters → its terms (stems without stop words)

    def __call__(self, text: str) -> list[str]:
        runs = _runs(text)
        with self._lock:
            known = self._known
            if new := {run for run in runs if run not in known}:
                self._learn(new)
            found = [term for run in runs for term in known[run]]
            if not found and runs:  # the text consists only of stop words, so they are indexed
                every = [word for run in runs for word in _of_run(run, pairs_only=False)]
                stems = self._stemmer(every)
                found = [stems[word] for word in every]
            if len(known) > MOST:
                known.clear()
        return found

    def of_query(self, text: str) -> list[str]:
        """The distinct terms of a query, in order, without stop words unless it has no other words; text in a script
        without spaces gives only pairs of characters, and a single character only if it stands alone."""
        found = list(words(text, pairs_only=True))
        kept = [word for word in found if word not in STOP] or found
        with self._lock:
            stems = self._stemmer(kept)
        return list(dict.fromkeys(stems[word] for word in kept))

    def _learn(self, runs: Iterable[str]) -> None:
        made = {run: [word for word in _of_run(run, pairs_only=False) if word not in STOP] for run in runs}
        stems = self._stemmer([word for found in made.values() for word in found])
        self._known.update((run, tuple(stems[word] for word in found)) for run, found in made.items())

    def close(self) -> None:
        """Close the stemmer."""
        self._stemmer.close()
