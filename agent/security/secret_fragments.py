"""Masks declared secrets that are spaced out, reversed or partial in published texts.

The module `redact` finds only exact values and their encodings. A model can reveal a secret in other forms: `g h p _ 1
…`, the value reversed, its first half on one line and the second on the next. `Pieces` compares only letters and digits
of a text and a secret, in either case and both directions, and masks a run of about half of a secret or more. Letters
that look like ASCII (`Ｚ`, `𝐙`, `Ⓩ`) are mapped to ASCII, and the encodings of `secret_spellings` are searched too.

The time of a search for fragments is linear: each quarter of a secret is searched for separately, and each match is
extended to both sides.
"""

from __future__ import annotations

import base64
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from agent.security.redact import MASK, SHORTEST
from agent.security.secret_spellings import spellings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DIVISIBLE = 16
"""A secret with fewer than DIVISIBLE letters and digits must match as a whole, since half of it could occur in ordinary
text."""

LONGEST_PART = 32
"""A part of a secret that is searched for separately has at most this many letters, so that a key of many lines is
divided into more than four parts."""

_UPPER, _LOWER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz"
_FOLD = bytes.maketrans(_UPPER, _LOWER)
_OTHERS = bytes(code for code in range(128) if not chr(code).isalnum())


_FORMS = (
    *((0xAA, 0xBE), (0x2B0, 0x2FF), (0x1D2C, 0x1D6A), (0x2070, 0x209F), (0x2100, 0x214F), (0x2460, 0x24FF)),
    *((0xFF00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F100, 0x1F1FF), (0x1FBF0, 0x1FBF9)),
)
"""Unicode blocks with letters that look like ASCII: modifiers, sub- and superscripts, circled, wide and mathematical
letters."""


@dataclass(frozen=True, slots=True)
class _Needle:
    """Letters and digits of one form of a secret. A run of at least `least` of them reveals the secret; `parts` has the
    (offset, part) pairs that are searched for."""

    letters: bytes
    least: int
    parts: tuple[tuple[int, bytes], ...]


class Pieces:
    """`Pieces(secrets)(text)` returns (`text` with each run that reveals a secret replaced by `***`, the number of
    these runs).

    Thread-safe.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {letters for secret in secrets for letters in _forms(secret.strip())}
        self._needles = [_needle(letters) for letters in sorted(found, key=lambda one: (-len(one), one))]

    def __call__(self, text: str) -> tuple[str, int]:
        if not self._needles:
            return text, 0
        read = text if text.isascii() else text.translate(_look_alike())
        letters = _letters(read)
        spans = sorted(span for needle in self._needles for span in _runs(letters, needle))
        if not spans:
            return text, 0
        places = [at for at, sign in enumerate(read) if sign.isascii() and sign.isalnum()]
        kept, position, count = [], 0, 0
        for first, end in spans:
            start, stop = places[first], places[end - 1] + 1
            if start >= position:
                kept += [text[position:start], MASK]
                count += 1
            position = max(position, stop)
        return "".join((*kept, text[position:])), count


@cache
def _look_alike() -> dict[int, str]:
    """Code point → its ASCII letter or digit (compatibility form, Unicode annex 15)."""
    found = {}
    for first, last in _FORMS:
        for code in range(first, last + 1):
            plain = unicodedata.normalize("NFKC", chr(code))
            if len(plain) == 1 and plain.isascii() and plain.isalnum():
                found[code] = plain
    return found


def _letters(text: str) -> bytes:
    """The ASCII letters and digits of the text, in lower case."""
    return text.encode("ascii", "ignore").translate(_FOLD, _OTHERS)


def _forms(value: str) -> Iterator[bytes]:
    data = value.encode("utf-8", "surrogatepass")
    encoded = (base64.b64encode(b"\0" * shift + data).decode("ascii") for shift in range(3))
    for form in (value, data.hex(), *(text[2 * shift : -4] for shift, text in enumerate(encoded))):
        letters = _letters(form)
        if len(letters) >= SHORTEST:
            yield letters
            yield letters[::-1]
    for form in spellings(value):
        letters = _letters(form)
        if len(letters) >= SHORTEST:
            yield letters


def _needle(letters: bytes) -> _Needle:
    size = len(letters)
    if size < DIVISIBLE:
        return _Needle(letters, size, ((0, letters),))
    # half of the characters of a secret may contain slightly fewer than half of its letters and digits
    least = max(SHORTEST, (size * 45) // 100)
    length = min(LONGEST_PART, max(SHORTEST // 2, least // 2))
    return _Needle(letters, least, tuple((at, letters[at : at + length]) for at in range(0, size - length + 1, length)))


def _runs(letters: bytes, needle: _Needle) -> Iterator[tuple[int, int]]:
    """(start, end) of each run of `letters` that is a substring of the needle (one form of a secret) and long enough to
    reveal the secret."""
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
