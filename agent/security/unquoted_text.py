"""Extracts the text of a comment that its author wrote, without quotations, code and hidden parts.

A comment may be a command to this program; text in a quotation, a log or a template is no command. The Markdown parser
recognises nested quotations, lazy continuation lines, every kind of code, comments, `<?…?>` and CDATA as the rendered
page shows them. The text of raw HTML elements that are a quotation, code or hidden (`hidden`, `display:none`) is left
out too; without a closing tag of such an element, the rest of the comment is left out. The parser is imported on first
use.
"""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

LONGEST = 65_536
BOUNDS = ((re.compile(r"\["), 2_000), (re.compile(r"\r\n?|\n"), 2_000), (re.compile(r"[*_~`<&!\\]"), 5_000))
"""The text is parsed up to LONGEST characters, GitHub's limit, and up to the numbers of opening brackets, lines, and
other signs of Markdown in BOUNDS; a command to this program behind one of these limits does not count.

The time of the Markdown parser grows with the number of brackets, lines and signs: at each bracket that nothing closes
it searches the rest of the text, and at each line it looks for the end of each quotation around the line. Without the
limits in BOUNDS, parsing a text of 65,536 characters took up to four seconds.
"""

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


def own_text(text: str) -> str:
    """The text of a comment that its author wrote, line by line; an empty line separates blocks."""
    from markdown_it import MarkdownIt

    return "".join(_words(MarkdownIt("commonmark").parse(parsed_part(text)), _Html())).strip("\n")


def parsed_part(text: str) -> str:
    """The part of a text that is given to the Markdown parser: without empty lines before it, up to the bounds."""
    blank = len(text) - len(text.lstrip(" \t\r\n"))
    text = text[max(text.rfind(sign, 0, blank) for sign in "\r\n") + 1 :]
    end = LONGEST
    for sign, most in BOUNDS:
        beyond = next(islice(sign.finditer(text, 0, end), most, None), None)
        end = beyond.start() if beyond is not None else end
    return text[:end]


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
        if token.type in ("link_open", "link_close"):  # the text of a link is left out, since it may hide any URL
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
    """State of the raw HTML that was read so far: `open` lists the elements of which the text is left out, outermost
    first, and `count` the number of each."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.count: Counter[str] = Counter()

    def read(self, text: str) -> None:
        """Process the tags in one piece of raw HTML."""
        reader = _Tags(self.open, self.count)
        reader.feed(text)


class _Tags(HTMLParser):
    def __init__(self, stack: list[str], count: Counter[str]) -> None:
        super().__init__()
        self.stack, self.count = stack, count

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        hidden = "hidden" in named or "display:none" in (named.get("style") or "").replace(" ", "").lower()
        if tag in _NOT_SAID or hidden:
            self.stack.append(tag)
            self.count[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        while self.count[tag]:
            closed = self.stack.pop()
            self.count[closed] -= 1
            if closed == tag:
                return
