"""Finds the pictures of a Markdown text, including `<img>` in its HTML.

Pictures in code and in comments, and each `<img>` that itself is hidden, are not returned, since they are not rendered.
The Markdown parser is imported only for texts that may contain a picture.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

from agent.security.unquoted_text import parsed_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token


def links(text: str) -> list[tuple[str, str]]:
    """(URL, alternative text) of each picture in the parsed part of the text, in order, each URL once."""
    if "![" not in text and "<img" not in text.lower():
        return []
    from markdown_it import MarkdownIt

    found: dict[str, str] = {}
    for address, words in _pictures(MarkdownIt("commonmark").parse(parsed_part(text))):
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
