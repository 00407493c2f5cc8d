"""A change as reviewers see it: what is invisible or out of order is written out, nothing is taken away.

For diffs, where every byte counts and where a removed character would hide the attack (Trojan Source,
https://trojansource.codes).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from agent.security import characters
from agent.security.sanitise import Cleaned

_WORD = re.compile(r"\w+")
_ALIKE = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")


def visible(text: str) -> Cleaned:
    r"""`text` with each character that `sanitise.clean` would remove written as `\u202e` or `\U000e0041`, and the
    counts by rule; PI-19 counts words that mix Latin with letters of a script that looks like it."""
    found: Counter[str] = Counter()
    text = text.replace("\r\n", "\n")
    for rule, bad in characters.removable(text).items():
        text, count = characters.replaced(text, bad, _escape)
        found[rule] += count
    for line_break in characters.LINE_BREAKS:
        text = text.replace(line_break, f"\\u{ord(line_break):04x}")
    if not text.isascii():
        mixed = sum(map(_is_mixed, _WORD.findall(text)))
        if mixed:
            found["PI-19"] += mixed
    return Cleaned(text, dict(found))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _is_mixed(word: str) -> bool:
    if word.isascii():
        return False
    scripts = {unicodedata.name(letter, "").split(" ", 1)[0] for letter in word if letter.isalpha()}
    return "LATIN" in scripts and not scripts.isdisjoint(_ALIKE)
