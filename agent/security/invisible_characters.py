"""Lists the invisible characters that are removed from texts, by rule.

`str.isprintable` and the category Cf do not find all of them: variation selectors are marks, the Hangul fillers
letters, the Braille blank a symbol (docs/security.md, "Rules").
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTROL = r"[0-?]*+[ -/]*+[@-~]"  # CSI
_STRING = r"[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?"  # a control string: OSC, DCS, SOS, PM or APC
ESCAPES = re.compile(
    rf"\x1b(?:\[{_CONTROL}|[\]PX^_]{_STRING}|[ -/]*+[0-~])"  # the last alternative: any other sequence, such as `ESC c`
    rf"|\x9b{_CONTROL}|\x90{_STRING}|\x98{_STRING}|\x9d{_STRING}|\x9e{_STRING}|\x9f{_STRING}"
)
"""Matches ANSI sequences in 7-bit and 8-bit form. An ANSI control string without a terminator ends before the next
escape character, or at the end of its line."""

STARTS = re.compile(r"[\x1b\x90\x98\x9b\x9d-\x9f]")

_VARIATION = frozenset((*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x180B, 0x180C, 0x180D, 0x180F))
_BIDI = frozenset((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
_TAGS = range(0xE0000, 0xE0080)
_SHAPELESS = frozenset((0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0, 0x17B4, 0x17B5, 0x180E, 0x2800, 0xFFFC))
_KEPT = frozenset("\n\t")

TAG, VARIATION, BIDI, INVISIBLE, CONTROL, SENSELESS = "PI-05", "PI-06", "PI-07", "PI-08", "PI-10", "PI-14"

MANY = 256

LINE_BREAKS = "\u2028\u2029"

# STYLE matches one variation selector beside no other, JOINER one joiner between two emoji: legitimate parts of emoji.
STYLE = re.compile("(?<![\ufe00-\ufe0f\U000e0100-\U000e01ef])[\ufe0e\ufe0f](?![\ufe00-\ufe0f\U000e0100-\U000e01ef])")
_EMOJI = "\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
JOINER = re.compile(f"\u200d(?<=[{_EMOJI}]\u200d)(?=[{_EMOJI}])")


@lru_cache(maxsize=1 << 14)
def rule_of(character: str) -> str | None:
    """The rule that removes `character` from a text; None if it is preserved (the line breaks U+2028 and U+2029
    are)."""
    if character in _KEPT:
        return None
    code = ord(character)
    if code in _TAGS:
        return TAG
    if code in _VARIATION:
        return VARIATION
    if code in _BIDI:
        return BIDI
    if code in _SHAPELESS:
        return INVISIBLE
    return {"Cc": CONTROL, "Cf": INVISIBLE, "Co": SENSELESS, "Cn": SENSELESS, "Cs": SENSELESS}.get(
        unicodedata.category(character)
    )


def replaced(text: str, bad: str, new: Callable[[str], str] | None = None) -> tuple[str, int]:
    """(`text` with each character of `bad` removed or replaced by `new(character)`, the number of these characters in
    `text`)."""
    if len(bad) <= MANY and new is None:
        return re.compile("[" + "".join(map(re.escape, bad)) + "]").subn("", text)
    # One pattern of a hundred thousand different characters would take minutes to compile, so `str.translate` is used.
    table = {ord(character): new(character) if new else None for character in bad}
    if new is None:
        shorter = text.translate(table)
        return shorter, len(text) - len(shorter)
    return text.translate(table), sum(map(text.count, bad)) if len(bad) <= MANY else sum(
        count for character, count in Counter(text).items() if ord(character) in table
    )


def removable(text: str) -> dict[str, str]:
    """Rule → the characters in `text` that the rule removes, as one string.

    Each distinct character of the text is checked once; only `set(text)` reads every character.
    """
    found: dict[str, list[str]] = {}
    for character in set(text):
        rule = rule_of(character)
        if rule is not None:
            found.setdefault(rule, []).append(character)
    return {rule: "".join(bad) for rule, bad in found.items()}
