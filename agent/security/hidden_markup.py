"""Removes HTML and Markdown that a reader of the rendered page does not see.

The time of the removal is linear in the length of any text: every pattern stops at the next `<`, `[` or end of line.
The removal of hidden markup is applied to texts from a forge, not to files of a repository or output of commands, in
which HTML comments are part of the content.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.markdown_code import OpenComments, sure_code

if TYPE_CHECKING:
    from collections import Counter

OPEN, CLOSE = "<!--", "-->"

_ATTRIBUTES = r"""(?>(?:[^<>"']++|"[^"<]*+"|'[^'<]*+'|["'])*)"""
_HIDING = (
    r"\bhidden\b(?!-)|\bdisplay\s*:\s*none|\bvisibility\s*:\s*hidden"
    r"|\bopacity\s*:\s*0(?![.\d])|\bfont-size\s*:\s*0(?![.\d])"
)
_HIDDEN = re.compile(rf"<([a-zA-Z][a-zA-Z0-9-]*+)(?=[^<>]*?(?:{_HIDING})){_ATTRIBUTES}>", re.IGNORECASE)
_TAG = re.compile(rf"<(/?)([a-zA-Z][a-zA-Z0-9-]*+)({_ATTRIBUTES})>", re.IGNORECASE)
_HIDES = re.compile(_HIDING, re.IGNORECASE)
_DETAILS = re.compile(r"</?(?:details|summary)\b[^<>]*+>", re.IGNORECASE)
_IMAGE = re.compile(r"!\[([^\[\]\n]*+)\](?:\([^()\n]*+\)|\[[^\[\]\n]*+\])")
_HTML_IMAGE = re.compile(rf"<img\b({_ATTRIBUTES})>", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TITLE = r"""(?:"[^"\n]*+"|'[^'\n]*+'|\([^()\n]*+\))"""
_REFERENCE = re.compile(
    rf"^( {{0,3}}\[[^\[\]\n]++\]:[ \t]*+[^\s]++)(?:[ \t]++|[ \t]*+\n[ \t]*+){_TITLE}[ \t]*+$", re.MULTILINE
)
_LINK = re.compile(rf"(\]\((?:<[^<>\n]*+>|[^\s()<>]++))[ \t]++{_TITLE}[ \t]*+\)")


def unhide(text: str, found: Counter[str]) -> tuple[str, bool]:
    """(`text` without hidden markup, whether the end of the text was removed as a part of an unclosed comment).

    The number of removed elements is added to `found`, by rule.

    Fenced code (`markdown_code.py`) is left unchanged, since a forge renders it literally. Code behind an unclosed
    comment is part of the comment.
    """
    kept = []
    position = 0
    for start, end in [*code_blocks(text), (len(text), len(text))]:
        shown, cut = _unhide(text[position:start], found, is_last=start == len(text))
        kept.append(shown)
        if cut:
            return "".join(kept), True
        kept.append(text[start:end])
        position = end
    return "".join(kept), False


def code_blocks(text: str) -> list[tuple[int, int]]:
    """(start, end) of the text between the fences of each block that is surely code; [] if `text` has no fence, or no
    character with which hidden markup begins, so that nothing has to be left unchanged."""
    if ("```" not in text and "~~~" not in text) or not any(sign in text for sign in ("<", "](", "]:", "![")):
        return []
    blocks = (code for code in sure_code(text) if code.is_block)
    return [(text.find("\n", one.start), text.rfind("\n", one.start, one.end - 1) + 1) for one in blocks]


def _unhide(text: str, found: Counter[str], *, is_last: bool) -> tuple[str, bool]:
    cut = False
    if OPEN in text:
        text, cut = _without_comments(text, found, is_last=is_last)
    if "<" in text:
        text = _without_hidden(text, found)
        text = _counted(_DETAILS, "", text, found, "PI-18")
        text = _counted(_HTML_IMAGE, _alt, text, found, "PI-17")
    if "](" in text or "]:" in text or "![" in text:
        text = _counted(_IMAGE, r"\1", text, found, "PI-17")
        text = _counted(_REFERENCE, r"\1", text, found, "PI-17")
        text = _counted(_LINK, r"\1)", text, found, "PI-17")
    return text, cut


def defused(text: str) -> str:
    """`text` with the remaining openers of HTML comments escaped, for markup that is nested deeper than the number of
    passes."""
    return text.replace(OPEN, "&lt;!--")


def _without_comments(text: str, found: Counter[str], *, is_last: bool) -> tuple[str, bool]:
    """(`text` without HTML comments, whether an unclosed comment cut off its end).

    In a text before a block that surely is code (not `is_last`), the page shows an unclosed comment in a paragraph as
    text (spec.commonmark.org/0.31.2, 6.6 "Raw HTML"), so its opener is escaped.
    """
    kept = []
    position = 0
    comments = OpenComments(text)
    while (start := text.find(OPEN, position)) >= 0:
        kept.append(text[position:start])
        end = text.find(CLOSE, start + len("<!"))
        if comments.stays_open(start, end if end >= 0 else len(text), position):
            end = -1
        elif end < 0 and not is_last:
            return "".join((*kept, defused(text[start:]))), False
        if end < 0:
            found["PI-03"] += 1
            return "".join(kept), True
        found["PI-02"] += 1
        position = end + len(CLOSE)
    kept.append(text[position:])
    return "".join(kept), False


def _without_hidden(text: str, found: Counter[str]) -> str:
    """Remove HTML elements that are hidden and have a closing tag.

    If the closing tag is missing, only the opening tag is removed, so that a mention of `<div hidden>` does not remove
    the rest of the text.
    """
    names = {match[1].lower() for match in _HIDDEN.finditer(text)}
    if not names:
        return text
    opened: dict[str, list[tuple[int, int, bool]]] = {name: [] for name in names}
    cuts: list[tuple[int, int]] = []
    for match in _TAG.finditer(text):
        name = match[2].lower()
        if name not in names:
            continue
        if not match[1]:
            hidden = _HIDES.search(match[3]) is not None
            opened[name].append((match.start(), match.end(), hidden))
        elif opened[name]:
            start, _, hidden = opened[name].pop()
            if hidden:
                cuts.append((start, match.end()))
    cuts += [(start, end) for rest in opened.values() for start, end, hidden in rest if hidden]
    kept = []
    position = 0
    for start, end in sorted(cuts, key=lambda cut: (cut[0], -cut[1])):
        if start >= position:
            kept.append(text[position:start])
            found["PI-12"] += 1
        position = max(position, end)
    kept.append(text[position:])
    return "".join(kept)


def _alt(match: re.Match[str]) -> str:
    words = _ALT.search(match[1])
    return next((group for group in words.groups() if group), "") if words else ""


def _counted(pattern: re.Pattern[str], new: object, text: str, found: Counter[str], rule: str) -> str:
    text, count = pattern.subn(new, text)  # type: ignore[call-overload]
    if count:
        found[rule] += count
    return text
