"""Disarms pictures and links in published texts that could send data to a foreign server.

A browser that renders a picture requests a URL that the writer of the text chose (https://embracethered.com, "ASCII
smuggling" and Markdown pictures). A link with a query sends data in the same way when somebody clicks it, or when a
program fetches its preview. A picture of a foreign host becomes a link, and the query of a link to a foreign host is
masked. Pictures and links of the configured hosts are not changed.

No Markdown parser is used to find links, since forges differ in their Markdown: everything that could be a picture is
disarmed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.redact import MASK

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection

APART = "\u200b"
"""An invisible separator (U+200B) after a URL, which no pattern treats as white space."""

_PICTURE = re.compile(r"!(?=\[)(?:\[[^\[\]\n]{0,1000}+\]\((?P<address>[^\s()<>\\&\"']{1,2000}+)\))?")
_TAG = re.compile(
    r"<(?=/?[abefilmopstv])(?=/?(?>a(?:rea|udio)?|base|embed|f(?:orm|rame)|i(?:frame|mage|mg|nput)|link|meta|object"
    r"|p(?:icture|ortal)|s(?:cript|ource|tyle|vg)|track|video)(?:[\s/>]|\Z))",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<(?=[!?])")
_ADDRESS = re.compile(
    r"(?:[hHfF](?<=\b[hHfF])(?i:(?<=h)ttps?|(?<=f)tp)\\?:\\?/\\?/\\?|/(?<![\w:/.\\]/)/|[wW](?<=\b[wW])(?i:ww)\\?\.)"
    r"(?P<rest>[^\s<]+)"
)
"""Matches a URL as any Markdown renderer recognises it: with or without scheme, with backslash escapes, up to the next
space (github.github.com/gfm, 6.9)."""

_CLOSERS = {"<": ">", '"': '"', "'": "'", "[": "]"}
_RELATIVE = re.compile(r"(?!//)[\w./%-]+\Z")


def defang_links(text: str, own: Collection[str], found: Counter[str], *, is_markdown: bool = True) -> str:
    """`text`, which is not code, with pictures of foreign hosts disarmed, and with queries and user names of links to
    foreign hosts removed.

    Pictures and links of the hosts in `own` are not changed (`example.org`, `[::1]:8080`, in lower case). `found` gets
    the number of changes by rule: PU-01 for pictures and tags that load a URL, PU-02 for links, PU-05 for HTML
    comments."""

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
        # without this separator a renderer could treat the next character as part of the URL
        if any(map(str.isalnum, behind)):
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
    """The length of the URL at the beginning of `rest`, which follows the character `before`.

    If `before` is an opening bracket or quote, the URL ends at its counterpart; otherwise trailing punctuation does not
    belong to the URL."""
    if before == "(":
        depth = 0
        for at, sign in enumerate(rest):
            depth += (sign == "(") - (sign == ")")
            if depth < 0:
                return at
    elif before and (closer := _CLOSERS.get(before)) and closer in rest:
        return rest.index(closer)
    return len(rest.rstrip(".,;:!?*_)]}>\"'`"))
