"""What the writer of a comment says in their own words: no quotation, no code, nothing that is not shown.

A comment may be an order, and a pasted quotation, a log or a template is none.  A Markdown parser decides:
quotations inside each other, lines that go on lazily, code of every kind, comments, `<?…?>` and CDATA are told apart as
the page shows them.  Text inside raw HTML that quotes, is code or is hidden is not said either; in doubt nothing is.
The parser is imported only when it is needed.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

LONGEST = 65_536
"""Characters that are looked through, as many as GitHub takes; an order behind them is none."""

_NOT_SAID = frozenset(
    (
        "blockquote",
        "code",
        "del",
        "kbd",
        "pre",
        "q",
        "s",
        "samp",
        "script",
        "strike",
        "style",
        "template",
        "textarea",
        "tt",
    )
)
_BREAKS = frozenset(("softbreak", "hardbreak"))


def spoken(text: str) -> str:
    """The words of a Markdown text that its writer says, line by line; blocks are apart by an empty line."""
    from markdown_it import MarkdownIt

    return "".join(_words(MarkdownIt("commonmark").parse(text[:LONGEST]), _Html())).strip("\n")


def _words(tokens: list[Token], html: _Html) -> Iterator[str]:
    quoted = 0
    for token in tokens:
        if token.type in ("blockquote_open", "blockquote_close"):
            quoted += token.nesting
        elif token.type == "html_block":
            html.read(token.content)
        elif token.type == "inline" and not quoted:
            yield from _inline(token.children or [], html)
            yield "\n\n"


def _inline(tokens: list[Token], html: _Html) -> Iterator[str]:
    linked = 0
    for token in tokens:
        if token.type in ("link_open", "link_close"):  # an address may stand behind any words
            linked += token.nesting
        elif token.type == "html_inline":
            html.read(token.content)
            yield " "
        elif html.open or linked:
            continue
        elif token.type == "text":
            yield token.content
        elif token.type in _BREAKS:
            yield "\n"
        else:
            yield " "


class _Html:
    """Raw HTML so far: `open` are the elements whose text is not said, outermost first."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def read(self, text: str) -> None:
        """Take in the tags of a piece."""
        reader = _Tags(self.open)
        reader.feed(text)


class _Tags(HTMLParser):
    def __init__(self, stack: list[str]) -> None:
        super().__init__()
        self.stack = stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        hidden = "hidden" in named or "display:none" in (named.get("style") or "").replace(" ", "").lower()
        if tag in _NOT_SAID or hidden:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.stack:
            del self.stack[len(self.stack) - 1 - self.stack[::-1].index(tag) :]
