"""Finds words that look Latin but contain letters of other scripts.

The module knows a subset of Unicode's confusables.txt (UTS 39), letters that look alike in most fonts, and letters that
programs normalise to Latin ones (NFKC: Python treats a mathematical `eval` as `eval`).  `hidden_diff_lines.py` uses
this module.
"""

from __future__ import annotations

import re
import unicodedata
from functools import partial

_WORD = re.compile(r"\w+")
SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")
TWINS = frozenset(
    "асԁеһіјӏорԛѕѵԝхуүАВСЕНІЈКМОРЅТХУҮԜԚӀԌ"  # Cyrillic
    "οϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹ"  # Greek
    "օՕՏՍԼցհոսզ"  # Armenian
    "ᎪᏴᏟᎠᎬᏀᎻᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳᏃᎥᏒ"  # Cherokee
    "ⲞⲟⲢⲣⲤⲥⲦⲨⲬⲀⲂⲈⲎⲒⲔⲘⲚ"  # Coptic
    "ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ"  # Lisu
)
"""Letters that look exactly like a Latin letter."""
NEAR = frozenset("гкмнтвпьαγικνρσυω")
"""Letters that look like a Latin letter inside a word, but are common on their own (`α = 0.1`)."""

_ALSO_LATIN = re.compile("[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u212a\u212b]")
_WIDE = re.compile("[\uff21-\uff3a\uff41-\uff5a]")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def mark_lookalikes(text: str) -> tuple[str, int]:
    r"""(`text` with deceptive letters escaped as `\u0430`, the number of words with such letters).

    A word is deceptive if it mixes Latin with look-alike letters, if it consists of look-alike letters in a line that
    is not in their script, or if programs normalise it to a Latin word.
    """
    if text.isascii():
        return text, 0
    is_of_script = any(letter.isalpha() and _is_foreign(letter) and letter not in TWINS | NEAR for letter in text)
    is_east_asian = _EAST_ASIAN.search(text) is not None
    count = 0

    def word(match: re.Match[str]) -> str:
        nonlocal count
        found = match[0]
        if found.isascii():
            return found
        in_code = (match.end() < len(text) and text[match.end()] in "([") or text.endswith(".", 0, match.start())
        if _is_mixed(found) or (_is_alike(found) and (in_code or not is_of_script)):
            count += 1
            return "".join(escape(letter) if _is_foreign(letter) else letter for letter in found)
        if _ALSO_LATIN.search(found) and not (is_east_asian and _WIDE.search(found)):
            count += 1
            return _ALSO_LATIN.sub(lambda letter: escape(letter[0]), found)
        return found

    return _WORD.sub(word, text), count


def escape(character: str) -> str:
    r"""The escape sequence of one character, for example `\u202e` or `\U000e0041`."""
    code = ord(character)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _is_mixed(word: str) -> bool:
    letters = [letter for letter in word if letter.isalpha()]
    return any(map(_is_foreign, letters)) and any(map(partial(_is_of, ("LATIN",)), letters))


def _is_alike(word: str) -> bool:
    letters = [letter for letter in word if letter.isalpha()]
    if not letters or not TWINS.union(NEAR).issuperset(letters):
        return False
    return not TWINS.isdisjoint(letters) and (len(letters) > 1 or letters[0] in TWINS)


def _is_foreign(letter: str) -> bool:
    return _is_of(SCRIPTS, letter)


def _is_of(scripts: tuple[str, ...], letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(scripts)
