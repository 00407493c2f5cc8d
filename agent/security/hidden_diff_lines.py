"""Lists the added lines of a change with characters that a reviewer does not see or takes for other characters; these
characters are escaped in the list.

This module removes nothing from the change, since a removed character would hide the attack (Trojan Source,
https://trojansource.codes).  Hidden lines do not stop a publication; the pull request lists the first MOST of them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from agent.security import invisible_characters, lookalikes
from agent.security.added_lines import added_lines
from agent.security.sanitise import Cleaned

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 10
"""Maximum number of hidden lines that are listed."""

SHOWN = 120
"""At most this many characters of a hidden line are listed, from around its first escaped character."""

OVERLAP = 64
"""Pieces of a long line overlap by this many bytes, so that a hidden character, or a short word with look-alike
letters, is whole in one of two neighbouring pieces; a hidden character inside the overlap may be listed twice."""

SIGNS = "\u037e\u1fef\u01c3\u2024\u2044\u2215\u2236\u02d0\ua789\u0589\u05c3\u2223\u01c0\u2028\u2029\x85"
"""Characters that look like characters of code (`;`, a backtick, `!`, `.`, `/`, `:`, `|`; from Unicode's
confusables.txt, UTS 39), and characters that only some editors treat as a line end."""

_SIGN = re.compile(f"[{re.escape(SIGNS)}]")
_STYLE = re.compile(
    "[\ufe0e\ufe0f](?:(?<=[\u203c-\u3299\U0001f000-\U0001faff][\ufe0e\ufe0f])|(?<=[0-9#*]\ufe0f)(?=\u20e3))"
)
"""Matches a variation selector after a sign from a block with emoji, or in a keycap emoji, where it is legitimate. In
other places, such as after a letter, a variation selector is suspicious."""
_UNUSUAL = re.compile(rb"[^\t\n -~]")


def hidden_lines(diff: Iterable[bytes]) -> list[str]:
    r"""Added lines of a diff with hidden or misleading characters, in order: `PI-07 src/a.py, line 3: if access\u202e
    …`.  The list has at most 10 lines with hidden characters, then a line that says that there are more.

    Joiners and selectors of emoji, a byte order mark at the start of a file, and CR LF are not listed.
    """
    found: list[str] = []
    for where, line in added_lines(diff, lambda block: _UNUSUAL.search(block) is not None, OVERLAP):
        text = line[1:].decode("utf-8", "replace").removesuffix("\r")
        if where.endswith(", line 1"):
            text = text.removeprefix("\ufeff")
        if _is_harmless(text):
            continue
        text = _STYLE.sub("", invisible_characters.JOINER.sub("", text)).strip(" \t")
        seen = show_hidden(text)
        if seen.findings:
            if len(found) >= MOST:
                return [*found, f"and more; the first {MOST} are listed"]
            same = next((at for at, (old, new) in enumerate(zip(text, seen.text, strict=False)) if old != new), 0)
            begin = max(0, same - SHOWN // 2)
            excerpt = seen.text[begin : begin + SHOWN]
            excerpt = f"{'…' if begin else ''}{excerpt}{'…' if begin + SHOWN < len(seen.text) else ''}"
            found.append(f"{', '.join(sorted(seen.findings))} {where}: {excerpt}")
    return found


_harmless: set[str] = set()
MOST_KNOWN = 1 << 14


def _is_harmless(text: str) -> bool:
    """Whether no rule about hidden characters concerns any character of the text, as for most lines, which then need no
    further check.

    Characters that no rule about hidden characters concerns are stored in `_harmless`, at most MOST_KNOWN of them.
    """
    if _harmless.issuperset(text):
        return True
    for sign in set(text) - _harmless:
        kinds = lookalikes.FOREIGN | lookalikes.WIDE_LATIN
        if sign in SIGNS or invisible_characters.rule_of(sign) or lookalikes.kinds_of(sign) & kinds:
            return False
        if len(_harmless) < MOST_KNOWN:
            _harmless.add(sign)
    return True


def show_hidden(text: str) -> Cleaned:
    r"""`text` with each invisible character (`invisible_characters.removable`) escaped as `\u202e` or `\U000e0041`, and
    the counts by rule.

    PI-19 counts words with letters that look like Latin ones (`lookalikes.py`); those letters are escaped too. The rule
    PI-20 counts look-alikes of code characters and unusual line ends (SIGNS), which are escaped too. CR LF becomes
    LF."""
    found: Counter[str] = Counter()
    text = text.replace("\r\n", "\n")
    text, count = _SIGN.subn(lambda match: lookalikes.escape(match[0]), text)
    if count:
        found["PI-20"] += count
    for rule, bad in invisible_characters.removable(text).items():
        text, count = invisible_characters.replaced(text, bad, lookalikes.escape)
        found[rule] += count
    text, count = lookalikes.mark_lookalikes(text)
    if count:
        found["PI-19"] += count
    return Cleaned(text, dict(found))
