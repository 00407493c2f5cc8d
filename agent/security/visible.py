"""What a change hides from the person who looks at it: written out, nothing is taken away.

Every byte of a diff counts, and a removed character would hide the attack (Trojan Source,
https://trojansource.codes).  What is found refuses nothing; the pull request shows it (`run/delivery.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

from agent.security import characters
from agent.security.added import added
from agent.security.sanitise import Cleaned

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 10
"""More lines than this are not listed."""

SHOWN = 120
"""Characters of a listed line."""

SIGNS = "\u037e\u1fef\u01c3\u2024\u2044\u2215\u2236\u02d0\ua789\u0589\u05c3\u2223\u01c0\u2028\u2029\x85"
"""Signs that look like those of code (`;`, a backtick, `!`, `.`, `/`, `:`, `|`) or end a line for some readers only;
Unicode's confusables.txt (UTS 39)."""

_SIGN = re.compile(f"[{re.escape(SIGNS)}]")
_STYLE = re.compile("(?<=[\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)")
"""A selector behind a sign that has two pictures; behind a letter it hides something."""
_WORD = re.compile(r"\w+")
_ALIKE = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
_UNUSUAL = re.compile(rb"[^\t\n -~]")


def hidden(diff: Iterable[bytes]) -> list[str]:
    r"""The lines that a diff adds with something in them that a reader does not see or takes for something else, in
    order: `PI-07 src/a.py, line 3: if access\u202e …`.  At most 10, then one that says so.

    Emoji are written with joiners and selectors, a file may begin with a mark of its encoding, and lines may end with
    CR LF: none of that is listed.
    """
    found: list[str] = []
    for where, line in added(diff, lambda block: _UNUSUAL.search(block) is not None):
        text = line[1:].decode("utf-8", "replace").removesuffix("\r")
        if where.endswith(", line 1"):
            text = text.removeprefix("\ufeff")
        text = _STYLE.sub("", characters.JOINER.sub("", text)).strip(" \t")
        seen = visible(text)
        if seen.findings:
            if len(found) >= MOST:
                return [*found, f"and more; the first {MOST} are listed"]
            same = next((at for at, (old, new) in enumerate(zip(text, seen.text, strict=False)) if old != new), 0)
            begin = max(0, same - SHOWN // 2)
            excerpt = seen.text[begin : begin + SHOWN]
            excerpt = f"{'…' if begin else ''}{excerpt}{'…' if begin + SHOWN < len(seen.text) else ''}"
            found.append(f"{', '.join(sorted(seen.findings))} {where}: {excerpt}")
    return found


def visible(text: str) -> Cleaned:
    r"""`text` with each character that `sanitise.clean` would remove written as `\u202e` or `\U000e0041`, and the
    counts by rule; PI-19 counts words that mix Latin with letters of a script that looks like it, PI-20 signs that look
    like those of code."""
    found: Counter[str] = Counter()
    text = text.replace("\r\n", "\n")
    text, count = _SIGN.subn(lambda match: _escape(match[0]), text)
    if count:
        found["PI-20"] += count
    for rule, bad in characters.removable(text).items():
        text, count = characters.replaced(text, bad, _escape)
        found[rule] += count
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
