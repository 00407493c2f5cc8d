"""The pictures that a text shows: what a Markdown parser takes for one, and `<img>` in the HTML of it.

A picture in code, in a comment or in hidden HTML is not shown and so is none.  Called by `run/pictures.py` for texts in
which there may be one; the parser is imported only then.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

LONGEST = 65_536
"""Characters that are looked through, as many as GitHub takes; what lies behind them has no pictures."""


def links(text: str) -> list[tuple[str, str]]:
    """(address, alternative text) of each picture, in order, each address once."""
    if "![" not in text and "<img" not in text.lower():
        return []
    from markdown_it import MarkdownIt

    found: dict[str, str] = {}
    for address, words in _pictures(MarkdownIt("commonmark").parse(text[:LONGEST])):
        found.setdefault(address, words)
    return list(found.items())


def _pictures(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    for token in tokens:
        if token.type == "image":
            yield str(token.attrs.get("src") or ""), token.content
        elif token.type in ("html_block", "html_inline"):
            reader = _Images()
            reader.feed(token.content)
            yield from reader.found
        if token.children:
            yield from _pictures(token.children)


class _Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        hidden = "hidden" in named or "display:none" in (named.get("style") or "").replace(" ", "").lower()
        if tag == "img" and named.get("src") and not hidden:
            self.found.append((str(named["src"]), named.get("alt") or ""))
