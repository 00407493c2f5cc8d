"""Finds the parts of a Markdown text that are surely code: the one rule for all filters that leave code unchanged.

A part counts as code only if every renderer that follows CommonMark (GitHub, GitLab, Forgejo) shows it as code, also
after a filter has changed other parts of the text. If renderers disagree about a block, or the rule would need a whole
parser, nothing in the rest of the text counts as code; after a doubtful span, nothing in the rest of its paragraph. In
case of doubt a filter thus changes a little more code than it must, but no live text escapes it. The time is linear in
the length of any text; a parser such as markdown-it-py is not linear, so only the tests use one, to check the result.

Blocks: a fence at the start of a line opens a block in any renderer, unless raw HTML is open. A fence at the start of a
line also closes each list and each quotation before it. An indented fence, or one behind a bullet, opens a block if the
closing fence starts in the same column and no line between starts left of it; then it does not matter whether the block
is in a list. A line that begins with `>` opens no block outside its quotation. After a line that may be a fence, but is
of none of these kinds, nothing in the rest of the text counts as code.

Spans: a code span is within one line. In a paragraph nothing counts as a span after something that could take a
backtick away: a backtick without partner, an escaped one, raw HTML, a link that is not simple, a cell of a table, math.

Sources: spec.commonmark.org/0.31.2, 4.5 "Fenced code blocks", 4.6 "HTML blocks", 6.1 "Code spans";
github.github.com/gfm, 4.10 "Tables"; docs.gitlab.com "GitLab Flavored Markdown", front matter and math.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from agent.security.links import APART

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n?|\n|\Z")
_BLANK = re.compile(r"[ \t]*+")
_RUN = re.compile(r"`{3,}+|~{3,}+")
_CLOSING = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+")
_BEFORE_FENCE = re.compile(r"(?>(?:[\W\d_]|(?<=\[)[xX](?=\]))*)")
_BLANK_LINE = re.compile(r"\n[ \t]*+\n")
_ITEM = re.compile(r"^[ \t>]*+(?:[-+*]|[0-9]{1,9}[.)]|\[\^)", re.MULTILINE)
_SPACES = re.compile(r" *+")
_BULLET = re.compile(r" {0,3}[-+*] {1,4}")
_HTML = re.compile(r"(?>(?:[^\w<`\r\n]|\d|(?<=\[)[xX](?=\]))*)<(?=[A-Za-z/!?])")
_CONTAINER = r"(?>(?:[ \t>]|[-+*:](?=[ \t])|[0-9]{1,9}[.)](?=[ \t])|\[[ xX]\]|\[\^[^\]\s]{1,99}\]:)*)"
"""What may stand before a block in its line: marks of lists, tasks, quotations, definitions and footnotes."""
_RAW_NAMES = "pre|script|style|textarea"
"""The names of the tags with which raw HTML may begin that can contain blank lines; the end tag of any of them ends
it."""
_BLOCK_TAGS = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    "fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    "menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|source|summary|table|tbody|td|tfoot|th|thead|"
    "title|tr|track|ul"
)
_HTML_BLOCK = re.compile(
    rf"{_CONTAINER}<(?=[!?]|(?:{_RAW_NAMES})(?:[\s>]|\Z)|/?(?:{_BLOCK_TAGS})(?:[\s/>]|\Z)"
    r"""|/?[A-Z][A-Z0-9-]*+(?=[\s/>])(?>(?:[^<>"'\r\n]|"[^"\r\n]*+"|'[^'\r\n]*+')*)>[ \t]*+(?:[\r\n]|\Z))""",
    re.IGNORECASE,
)
"""Matches the beginning of a line up to the `<` of a tag with which a block of HTML begins (4.6 "HTML blocks"): one of
the tags of blocks, or any whole tag alone in its line.  Other tags, and addresses in `<…>`, stand in a paragraph."""
_RAW = re.compile(rf"({_RAW_NAMES})\b|!--|\?|!\[CDATA\[|!", re.IGNORECASE)
_RAW_BEGINS = re.compile(rf"<(?:[!?]|{_RAW_NAMES})", re.IGNORECASE)
_RAW_TAG = re.compile(rf"<(?:{_RAW_NAMES})\b", re.IGNORECASE)
_RAW_ENDS = {"!--": "-->", "?": "?>", "![cdata[": "]]>", "!": ">"}
_RAW_CLOSED = re.compile(rf"</(?:{_RAW_NAMES})>", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\s*+(?:---|\+\+\+|;;;)")
_TICKS = re.compile(r"`++")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_WORDLESS = re.compile(r"(?:^|(?<=\r))[^\w\r\n]*+(?=[\r\n]|\Z)", re.MULTILINE)
_SIMPLE_LINK = re.compile(r"""\](?:\([^\s()<>"'`\\]*+(?: "[^"`\\\r\n]*+")?\)|\[[^\[\]`\\]*+\])""")


class Code(NamedTuple):
    """Code from `start` to `end` in a text: a block with its fences and their line ends, or a span with its
    backticks."""

    start: int
    end: int
    is_block: bool


class Doubt(NamedTuple):
    """The rest of a text from `start` on, in which nothing counts as code any more.

    `fence`: the fence at `start`, if it surely opens a block and nothing closes this block; "" otherwise."""

    start: int
    fence: str


def sure_code(text: str) -> Iterator[Code]:
    """The parts of `text` that are surely code, in order."""
    return (part for part in _walk(text) if isinstance(part, Code))


def closed(text: str) -> str:
    """`text`, changed so that it leaves no block of code and no raw HTML open: a block in a text that follows is then
    code.

    A block that surely is open gets its closing fence. If the rest of the text is doubtful for another reason than an
    open block, U+200B is put into each fence, and into each tag that begins raw HTML which may contain blank lines, so
    that they are ordinary text.
    """
    doubt = next((part for part in _walk(text) if isinstance(part, Doubt)), None)
    if doubt is None:
        return text
    if doubt.fence and "\n" in text:
        line_end = "" if text.endswith("\n") else "\n"
        return f"{text}{line_end}{doubt.fence}"
    rest = _RAW_BEGINS.sub(lambda tag: f"<{APART}{tag[0][1:]}", _RUN.sub(rf"{APART}\g<0>", text[doubt.start :]))
    return text[: doubt.start] + rest


class OpenComments:
    """Finds the HTML comments of `text` that may be open in the page although a `-->` follows: a line before the `-->`
    ends the raw HTML that the comment is part of, so that the `-->` is text (4.6 "HTML blocks").

    The comments are asked about in their order, so that each line is read once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._read = 0  # offset up to which lines were read
        self._above: list[str] = []  # text before the first tag of each line since the last blank line (`_add`)
        found = _ITEM.search(text)
        self._first_item = found.start() if found else len(text)
        raw = _RAW_TAG.search(text)
        self._first_raw = raw.start() if raw else len(text)

    def stays_open(self, start: int, end: int, known: int) -> bool:
        """Whether the comment from `start` to the `-->` at `end` may be open; the comment before it ends at `known`,
        which is 0 without one."""
        text = self.text
        if text.find("\n", start, end) < 0:
            return False
        if self._first_raw < start and _RAW_CLOSED.search(text, start, end):
            return True  # raw HTML like `<pre>`, open since an earlier line, ends with a line of the comment
        line = text.rfind("\n", 0, start) + 1
        tag = _HTML_BLOCK.match(text, line, start + 5)
        is_first = tag is not None and tag.end() - 1 == start
        if tag is None and known > line and text.rfind("<!--", line, known) < 0:
            return True  # an earlier comment ends in this line, and its raw HTML may end with the line
        if tag is not None and not is_first and _RAW.match(text, tag.end()):
            return True  # raw HTML like `<pre>` ends with the line that contains its own end
        self._read_lines(line)
        if tag is None and not self._above:
            return False  # a paragraph
        if (self._above or not is_first) and _BLANK_LINE.search(text, start, end):
            return True
        prefixes = [*self._above, text[line : tag.end() - 1]] if tag is not None else self._above
        return any(self._leaves(prefix, start, end) for prefix in prefixes)

    def _read_lines(self, line: int) -> None:
        while self._read < line:
            begin, (end, self._read) = self._read, _line(self.text, self._read)
            if _BLANK.fullmatch(self.text, begin, end):
                self._above = []
            elif (tag := _HTML_BLOCK.match(self.text, begin, end)) is not None and self.text[tag.end()] not in "!?":
                self._add(self.text[begin : tag.end() - 1])

    def _add(self, prefix: str) -> None:
        """Keep at most two prefixes: of those with the same number of `>` only the longest, since a line that leaves
        the list of a shorter one leaves that of the longest too; and one with another number of `>`, since each line
        leaves the quotation of at least one of the two."""
        marks = prefix.count(">")
        same = [one for one in self._above if one.count(">") == marks]
        others = [one for one in self._above if one.count(">") != marks]
        self._above = [max([*same, prefix], key=_width), *others[:1]]

    def _leaves(self, prefix: str, start: int, end: int) -> bool:
        """Whether a line of the comment, after its first, may leave the list or the quotation to which `prefix`
        belongs, the text before an HTML tag in its line."""
        width, marks = _width(prefix), prefix.count(">")
        if not prefix.strip() and self._first_item > start:
            return False
        rows = (row for row in self.text[start : end + 1].expandtabs(4).split("\n")[1:] if row.strip())
        return any(row[:width].strip(" >") or row[:width].count(">") != marks for row in rows)


def _width(prefix: str) -> int:
    return len(prefix.expandtabs(4))


def _walk(text: str) -> Iterator[Code | Doubt]:
    """The parts that are surely code, in order, and at the end the doubtful rest, if there is one."""
    if "`" not in text and "~~~" not in text and "<" not in text:
        return
    if _FRONT_MATTER.match(text):
        yield Doubt(0, "")
        return
    position, paragraph = 0, -1  # `paragraph`: offset of the current paragraph, -1 outside of one
    html = False  # whether raw HTML may have begun since the last blank line
    while position < len(text):
        line_end, after = _line(text, position)
        if _BLANK.fullmatch(text, position, line_end):
            yield from _spans(text, paragraph, position)
            paragraph, html = -1, False
        elif fence := _fence(text, position, line_end):
            yield from _spans(text, paragraph, position)
            prefix = text[position : fence.start()]
            end = -1 if html else _end_of_block(text, after, prefix, fence[0])
            if end < 0:
                yield Doubt(position, "" if html or prefix else fence[0])
                return
            paragraph, after = -1, end
            html = len(prefix) > 3 and not prefix.strip()  # a fence after 4 or more spaces opens a block only in a list
            if not html:
                yield Code(position, end, is_block=True)
        elif tag := _HTML.match(text, position, line_end):
            yield from _spans(text, paragraph, position)
            paragraph, html = -1, True
            after = _end_of_raw(text, tag.end(), after)
            if after < 0:
                yield Doubt(position, "")
                return
        elif paragraph < 0 and not html:
            paragraph = position
        position = after
    yield from _spans(text, paragraph, position)


def _line(text: str, position: int) -> tuple[int, int]:
    """(the end of the line at `position`, the start of the next line)."""
    found = _LINE_END.search(text, position)
    return found.span() if found else (len(text), len(text))


def _fence(text: str, start: int, end: int) -> re.Match[str] | None:
    """The fence in this line, if the line may open a block outside quotations in some renderer; else None."""
    found = _RUN.search(text, start, end)
    if found is None or _BEFORE_FENCE.fullmatch(text, start, found.start()) is None:
        return None
    if found[0][0] == "`" and text.find("`", found.end(), end) >= 0:
        return None
    return None if text[start : found.start()].lstrip(" \t").startswith(">") else found


def _end_of_block(text: str, position: int, prefix: str, fence: str) -> int:
    """The end of the block that has its content from `position` on; -1 if the end is uncertain."""
    if prefix and _SPACES.fullmatch(prefix) is None and _BULLET.fullmatch(prefix) is None:
        return -1
    indent = " " * len(prefix)
    while position < len(text):
        line_end, after = _line(text, position)
        closing = _CLOSING.fullmatch(text, position, line_end)
        if closing is not None and closing[2][0] == fence[0] and len(closing[2]) >= len(fence):
            if not prefix and closing[1] in ("", " ", "  ", "   "):
                return after
            if prefix:
                return after if closing[1] == indent else -1
        elif prefix and _is_less(text, position, line_end, len(prefix)):
            return -1
        position = after
    return -1


def _is_less(text: str, start: int, end: int, indent: int) -> bool:
    """Whether a line that is not blank has less than `indent` columns of white space before its text."""
    white = _BLANK.match(text, start, end)
    return white is not None and white.end() < end and len(white[0].expandtabs(4)) < indent


def _end_of_raw(text: str, position: int, after: int) -> int:
    """The start of the line after the raw HTML that has the name of its tag at `position`; -1 if it is uncertain.

    HTML with an end of its own (a comment, `<pre>`) may contain blank lines. For HTML without an end of its own the
    result is `after`, the start of the next line.
    """
    raw = _RAW.match(text, position)
    if raw is None:
        return after
    if raw[1]:
        closed = _RAW_CLOSED.search(text, position)
        end = closed.end() if closed else -1
    else:
        end = text.find(_RAW_ENDS[raw[0].lower()], position)
    if end < 0:
        return -1
    after = _line(text, end)[1]
    # a filter may make this tag ordinary text, and then a fence or another tag inside the HTML would be live
    return -1 if _RUN.search(text, position, after) or _RAW_BEGINS.search(text, position, after) else after


def _spans(text: str, start: int, end: int) -> Iterator[Code]:
    """The code spans of the paragraph from `start` to `end`, up to the first doubt; none if `start` is -1."""
    if start < 0 or text.find("`", start, end) < 0:
        return
    is_table = any(text.find("-", row.start(), row.end()) >= 0 for row in _WORDLESS.finditer(text, start, end))
    while start < end:
        line_end, after = _line(text, start)
        runs = list(_TICKS.finditer(text, start, line_end))
        following: dict[int, deque[int]] = {}
        for place, run in enumerate(runs):
            following.setdefault(len(run[0]), deque()).append(place)
        position, place = start, 0
        while place < len(runs):
            run = runs[place]
            same = following[len(run[0])]
            while same and same[0] <= place:
                same.popleft()
            if not same or _takes_backticks(text, position, run.start(), line_end):
                return
            place = same[0]
            position = runs[place].end()
            if is_table and text.find("|", run.start(), position) >= 0:
                return
            yield Code(run.start(), position, is_block=False)
            place += 1
        if _takes_backticks(text, position, line_end, line_end):
            return
        start = after


def _takes_backticks(text: str, start: int, end: int, line_end: int) -> bool:
    """Whether the text from `start` to `end`, which is no code, has markup (a tag, a link, math) that may take up the
    backticks after it."""
    if start == end:
        return False
    between = text[start:end]
    if between.endswith("\\") or _TAG.search(between):
        return True
    if "$" in between and text.find("$", end, line_end) >= 0:
        return True
    between = _SIMPLE_LINK.sub("", between)
    return "](" in between or "][" in between
