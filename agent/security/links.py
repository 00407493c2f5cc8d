"""Pictures and links that would carry words of ours to a stranger's server, in a text that others read.

Whoever shows a picture asks its server for it, by an address that the writer chose (https://embracethered.com, "ASCII
smuggling" and Markdown pictures); a link with a query does so at a click, or when a chat looks at it.  So a picture of
another host is a link, and the query of a link to another host is masked.  Hosts of ours keep both.

No parser tells here what is a picture, since hosts read Markdown in different ways: whatever could be one is none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.redact import MASK

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection

APART = "\u200b"
"""Stands in between, is not seen, and is no white space to any pattern."""

_PICTURE = re.compile(r"!(?=\[)(?:\[[^\[\]\n]{0,1000}+\]\((?P<address>[^\s()<>\\&\"']{1,2000}+)\))?")
_TAG = re.compile(
    r"<(?=/?(?:a|area|audio|base|embed|form|frame|iframe|image|img|input|link|meta|object|picture|portal|script"
    r"|source|style|svg|track|video)(?:[\s/>]|\Z))",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<(?=[!?])")
_ADDRESS = re.compile(
    r"(?:\b(?:https?|ftp)\\?:\\?/\\?/\\?|(?<![\w:/.\\])//|\bwww\\?\.)(?P<rest>[^\s<]+)", re.IGNORECASE
)
"""As every reader of Markdown takes one: with its scheme or without, with signs that a backslash makes plain, and up to
the next space (github.github.com/gfm, 6.9)."""

_CLOSERS = {"<": ">", '"': '"', "'": "'", "[": "]"}
_RELATIVE = re.compile(r"(?!//)[\w./%-]+\Z")


def still(text: str, own: Collection[str], found: Counter[str], *, is_markdown: bool = True) -> str:
    """`text` outside of code, with pictures and queries of other hosts than `own` (`example.org`, `[::1]:8080`, in
    small letters) made inert; counts PU-01 (pictures and tags that load), PU-02 (links)."""

    def picture(match: re.Match[str]) -> str:
        address = match["address"]
        if address is not None and (_RELATIVE.match(address) or _host(address.partition("//")[2]) in own):
            return match[0]
        found["PU-01"] += 1
        return f"!{APART}{match[0][1:]}"

    def link(match: re.Match[str]) -> str:
        rest = match["rest"]
        head = match[0][: len(match[0]) - len(rest)]
        host = _host(rest if not head.lower().startswith("www") else f"{head}{rest}")
        if host in own:
            return match[0]
        name = rest[: _end_of_host(rest)].rpartition("@")
        start, end = rest.find("?"), _end(rest, match.string[match.start() - 1 : match.start()])
        has_query = 0 <= start < end and rest[start + 1 : end].strip("\\*.,;:!") != ""
        if not has_query and not name[1]:
            return match[0]
        found["PU-02"] += 1
        place = rest[len(name[0] + name[1]) : start if has_query else end].removesuffix("\\")
        behind = rest[end:]
        if any(map(str.isalnum, behind)):  # else a reader who sees no link before it would take it for a part of it
            behind = f"{behind[0]} {behind[1:]}"
        return f"{head}{place}{'?' + MASK if has_query else ''}{behind}"

    if "!" in text and is_markdown:
        text = _PICTURE.sub(picture, text)
    if "<" in text and is_markdown:
        text, count = _TAG.subn(f"<{APART}", text)
        if count:
            found["PU-01"] += count
        text, count = _COMMENT.subn(f"<{APART}", text)
        if count:
            found["PU-05"] += count
    return _ADDRESS.sub(link, text) if "?" in text or "@" in text else text


def _end_of_host(rest: str) -> int:
    return min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))


def _host(rest: str) -> str:
    return rest[: _end_of_host(rest)].rpartition("@")[2].casefold()


def _end(rest: str, before: str) -> int:
    """Where an address ends that stands behind the sign `before`: at the sign that ends what that one begins, else with
    all but the text's own signs."""
    if before == "(":
        depth = 0
        for at, sign in enumerate(rest):
            depth += (sign == "(") - (sign == ")")
            if depth < 0:
                return at
    elif before and (closer := _CLOSERS.get(before)) and closer in rest:
        return rest.index(closer)
    return len(rest.rstrip(".,;:!?*_)]}>\"'`"))
