"""Finds words that look Latin but contain letters of other scripts.

`lookalikes.py` knows a subset of Unicode's confusables.txt (UTS 39): letters that look alike in most fonts, and letters
that programs normalise to Latin ones (NFKC: Python treats a mathematical `eval` as `eval`).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_ASCII = r"\b[0-9A-Za-z_]*+(?![\x00-\x7f])\w++"
_WORD = re.compile(_NOT_ASCII)
"""Matches a whole word with a character that is not ASCII."""
_IN_CODE = re.compile(rf"(?<=\.){_NOT_ASCII}|{_NOT_ASCII}(?=[(\[])")
"""Matches a word with a character that is not ASCII that follows a dot, or precedes a bracket."""
_AROUND_CODE = frozenset(".([")
SHORT = 40
"""For words with at most this many characters, the kinds of their characters are cached, since a text repeats its
words."""
SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")
TWINS = frozenset(
    "асԁеһіјӏорԛѕѵԝхуүАВСЕНІЈКМОРЅТХУҮԜԚӀԌ"  # Cyrillic
    "οϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹ"  # Greek
    "օՕՏՍԼցհոսզ"  # Armenian
    "ᎪᏴᏟᎠᎬᏀᎻᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳᏃᎥᏒ"  # Cherokee
    "ⲞⲟⲢⲣⲤⲥⲦⲨⲬⲀⲂⲈⲎⲒⲔⲘⲚ"  # Coptic
    "ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ"  # Lisu
)
"""Letters that look like a Latin letter in most fonts, also on their own."""
NEAR = frozenset("гкмнтвпьαγικνρσυω")
"""Letters that look like a Latin letter inside a word, but are common on their own (`α = 0.1`)."""

_ALSO_LATIN = re.compile("[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u212a\u212b]")
_WIDE = re.compile("[\uff21-\uff3a\uff41-\uff5a]")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def mark_lookalikes(text: str) -> tuple[str, int]:
    r"""(`text` with deceptive letters escaped as `\u0430`, the number of words with such letters).

    A word is deceptive if it mixes Latin letters with letters of SCRIPTS. A word of look-alike letters only is
    deceptive if no other letter of SCRIPTS is in `text`, or if the word stands behind a dot or before a bracket as in
    code. A word with letters that programs normalise to Latin ones is deceptive, except full-width letters in a text
    with Japanese, Chinese or Korean characters.
    """
    if text.isascii():
        return text, 0
    signs = set(text)
    kinds = _kinds_in(signs)
    is_of_script = bool(kinds & OF_SCRIPT)
    may_be_alike = bool(kinds & TWIN) and (not is_of_script or not _AROUND_CODE.isdisjoint(signs))
    may_be_mixed = bool(kinds & FOREIGN and kinds & LATIN)
    if not (may_be_alike or may_be_mixed or kinds & WIDE_LATIN):
        return text, 0
    is_east_asian = _EAST_ASIAN.search(text) is not None
    count = 0

    def word(match: re.Match[str]) -> str:
        nonlocal count
        found = match[0]
        kinds = _kinds_of_short(found) if len(found) <= SHORT else _kinds_in(set(found))
        in_code = (match.end() < len(text) and text[match.end()] in "([") or text.endswith(".", 0, match.start())
        is_alike = kinds & TWIN and not kinds & UNLIKE
        if (kinds & FOREIGN and kinds & LATIN) or (is_alike and (in_code or not is_of_script)):
            count += 1
            return "".join(escape(letter) if _is_foreign(letter) else letter for letter in found)
        if kinds & WIDE_LATIN and not (is_east_asian and _WIDE.search(found)):
            count += 1
            return _ALSO_LATIN.sub(lambda letter: escape(letter[0]), found)
        return found

    return (_WORD if may_be_mixed or not is_of_script or kinds & WIDE_LATIN else _IN_CODE).sub(word, text), count


def escape(character: str) -> str:
    r"""The escape sequence of one character, for example `\u202e` or `\U000e0041`."""
    code = ord(character)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _is_foreign(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(SCRIPTS)


FOREIGN, LATIN, TWIN, UNLIKE, OF_SCRIPT, WIDE_LATIN = (1 << bit for bit in range(6))
"""The kinds of a character, as bits, in this order: a letter of `SCRIPTS`; a Latin letter; one of `TWINS`; a letter
that is not in `TWINS` or `NEAR`; a letter of `SCRIPTS` that is not in `TWINS` or `NEAR`; a letter that programs
normalise to a Latin letter."""


@lru_cache(maxsize=1 << 14)
def kinds_of(character: str) -> int:
    """The kinds of a character, as bits; 0 for most characters that are no letters."""
    kinds = WIDE_LATIN if _ALSO_LATIN.match(character) else 0
    if not character.isalpha():
        return kinds
    if "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3":
        # The names of Japanese, Chinese and Korean characters are not looked up, since that would take most of the
        # time.
        return kinds | UNLIKE
    kinds |= TWIN if character in TWINS else 0
    kinds |= 0 if character in TWINS or character in NEAR else UNLIKE
    if _is_foreign(character):
        return kinds | FOREIGN | (OF_SCRIPT if kinds & UNLIKE else 0)
    return kinds | (LATIN if unicodedata.name(character, "").startswith("LATIN") else 0)


def _kinds_in(signs: Iterable[str]) -> int:
    kinds = 0
    for sign in signs:
        kinds |= kinds_of(sign)
    return kinds


@lru_cache(maxsize=1 << 12)
def _kinds_of_short(word: str) -> int:
    return _kinds_in(set(word))
