"""Declared secrets that somebody wrote apart, backwards or in part, for texts that others read.

`redact` finds a secret and its encodings letter by letter.  Words of a model can give one away without those letters in
a row: `g h p _ 1 …`, the value backwards, its first half in one line and the second in the next.  So only letters and
digits are compared, in either case and both directions, and a run of at least half of a secret counts.

Linear: every quarter of a secret is searched by itself, and the places where one is found are followed to both sides.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.security.redact import MASK, SHORTEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DIVISIBLE = 16
"""A value of fewer letters and digits is looked for whole: half of it would be found in honest text."""

LONGEST_PART = 32
"""Letters of a part that is searched; a key of many lines has more parts than four."""

_UPPER, _LOWER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz"
_FOLD = bytes.maketrans(_UPPER, _LOWER)
_OTHERS = bytes(code for code in range(128) if not chr(code).isalnum())


@dataclass(frozen=True, slots=True)
class _Needle:
    """Letters and digits of one form of a secret; `least` of them in a row give it away; `parts` are searched."""

    letters: bytes
    least: int
    parts: tuple[tuple[int, bytes], ...]


class Pieces:
    """`Pieces(secrets)(text)` is (`text` with each such run written as `***`, how many there were).  Safe to share."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {letters for secret in secrets for letters in _forms(secret.strip())}
        self._needles = [_needle(letters) for letters in sorted(found, key=lambda one: (-len(one), one))]

    def __call__(self, text: str) -> tuple[str, int]:
        letters = _letters(text)
        spans = sorted(span for needle in self._needles for span in _runs(letters, needle))
        if not spans:
            return text, 0
        places = [at for at, sign in enumerate(text) if sign.isascii() and sign.isalnum()]
        kept, position, count = [], 0, 0
        for first, end in spans:
            start, stop = places[first], places[end - 1] + 1
            if start >= position:
                kept += [text[position:start], MASK]
                count += 1
            position = max(position, stop)
        return "".join((*kept, text[position:])), count


def _letters(text: str) -> bytes:
    """The letters and digits of ASCII, as small ones."""
    return text.encode("ascii", "ignore").translate(_FOLD, _OTHERS)


def _forms(value: str) -> Iterator[bytes]:
    data = value.encode("utf-8", "surrogatepass")
    encoded = (base64.b64encode(b"\0" * shift + data).decode("ascii") for shift in range(3))
    for form in (value, data.hex(), *(text[2 * shift : -4] for shift, text in enumerate(encoded))):
        letters = _letters(form)
        if len(letters) >= SHORTEST:
            yield letters
            yield letters[::-1]


def _needle(letters: bytes) -> _Needle:
    size = len(letters)
    if size < DIVISIBLE:
        return _Needle(letters, size, ((0, letters),))
    least = max(SHORTEST, (size * 45) // 100)  # the letters of a half are not exactly half of the letters
    length = min(LONGEST_PART, max(SHORTEST // 2, least // 2))
    return _Needle(letters, least, tuple((at, letters[at : at + length]) for at in range(0, size - length + 1, length)))


def _runs(letters: bytes, needle: _Needle) -> Iterator[tuple[int, int]]:
    """(start, end) of the runs of `letters` that stand in the needle in the same order."""
    whole = needle.letters
    for at, part in needle.parts:
        place = letters.find(part)
        while place >= 0:
            start, left = place, at
            while start and left and letters[start - 1] == whole[left - 1]:
                start, left = start - 1, left - 1
            end, right = place + len(part), at + len(part)
            while end < len(letters) and right < len(whole) and letters[end] == whole[right]:
                end, right = end + 1, right + 1
            if end - start >= needle.least:
                yield start, end
                place = letters.find(part, end)
            else:
                place = letters.find(part, place + 1)
