r"""Finds the structure of a text in any language: which lines are headings, entries of a list, or plain text.

A line is a heading or an entry if it has one of these marks: a sign at its beginning (`-`, `#`, `■`, `|`, `<`); a
number, numeral or single letter followed by a delimiter (`1.`, `IV)`, `一、`, `٣ -`); a short label and a colon; cells
of a table; an underline. A short line is a heading too if it follows a blank line and precedes longer lines or a
list. In a JSON text, each string with a letter or digit is an entry, and so is each key above one.
`text_structure.py` does not search for words of any language.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = 60
"""The maximum display width of a line that counts as a heading only because it is short; an East Asian character has a
width of two."""

DEEPEST = 64
"""Maximum depth of nested objects and lists of JSON from which strings are read."""

BULLETS = frozenset("-*+•‣◦·・–—")
"""Signs that mark entries of a list; other signs may mark a heading."""

_RECORD = frozenset(("role", "name", "content", "calls", "arguments", "task", "summary_so_far"))
"""Keys of the records in a summary request (transcript.py)."""

_FENCE = re.compile(
    r"""\A\s*(?:```|~~~)[^\n]*\n
    ( (?>[^\n]*+(?: \n(?!\s*+(?:```|~~~)\s*+\Z)\s*+ [^\n]*+ )*) )  # line by line, empty ones with the one before them
    (?:\n\s*+(?:```|~~~)\s*+)?\Z""",
    re.VERBOSE,
)
_TAGS = re.compile(r">\s*(?=<[A-Za-z])")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>")
_ENUMERATED = re.compile(
    r"""[(（\[［]?
    (?: (?P<number> \d{1,3}(?:\.\d{1,3}){0,3} ) (?: [.)\]:．）、］：。]+ (?!\d) \s* | \s* [-–—] \s+ | (?<=\d\.\d) \s+ )
      | (?P<word> [ivxlcdm]{1,7} | \w{1,4} ) (?: [．）、］：。]+ \s* | [.)\]:]+ \s+ | \s+ [-–—] \s+ )
    )
    (?P<content> \S.* )""",
    re.VERBOSE | re.IGNORECASE,
)
_LABELLED = re.compile(r"(?P<label>[^:：]{0,39}?[^:： \t])[ \t]*+(?:：|:(?=\s|$))[ \t]*+(?P<content>.*)")
_DASHED = re.compile(r"[^–—-]{1,32}[ \t][–—-][ \t]+\S.*")
_CELLS = re.compile(r"[^|\t\w]*+\w[^|\t]*+(?:(?<=[ ])\|[ ]|\t)[^|\t\w]*+\w.*")
_EMPHASIS = re.compile(r"(?P<sign>\*\*|__)(?P<inner>[^*\n\w]*+\w[^*\n]*?)(?P=sign)(?!\w|\.\w)(?P<behind>.*)")
_SENTENCE = re.compile(r"[.!?]\s|[。！？]")
_CLOSED = tuple(".!?,;。！？，；、…")
"""A short line that ends with one of these characters is plain text and no heading."""
_OPENS_PROSE = frozenset("\"'(（「『¿¡")
_UNDERLINE = re.compile(r"([=\-~^*_#])\1{2,}")


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of a text; blank lines have no TextLine.

    `kind` of a line is "heading", "entry", "text", or "rule" (a line without a letter or digit). `content` is the line
    without its mark; `numbered`: the mark was a number or letter.
    """

    text: str
    kind: str
    content: str = ""
    numbered: bool = False


def parse_lines(text: str) -> list[TextLine]:
    """The lines of a text that are not blank, in order."""
    if found := _FENCE.match(text):
        text = found[1]
    rows = _TAGS.sub(">\n", text).splitlines()
    marks = [_marked(row) for row in rows]
    lines: list[TextLine] = []
    for number, row in enumerate(rows):
        if not row.strip():
            continue
        after = next((other for other in range(number + 1, len(rows)) if rows[other].strip()), None)
        alone = number == 0 or not rows[number - 1].strip()
        lines.append(_line(row, marks[number], after, rows, marks, alone=alone, adjoins=after == number + 1))
    return lines


def entries(text: str) -> list[str]:
    """The contents of the headings and entries of a text, in order, without their marks."""
    inner = found[1] if (found := _FENCE.match(text)) else text
    value = _json(inner)
    if value is not None:
        return list(_leaves(value))
    said: list[str] = []
    for line in parse_lines(text):
        value = _json(line.text)
        if value is not None:
            said += _leaves(value)
        elif line.kind in ("heading", "entry"):
            said.append(line.content)
    return said


def sections(text: str) -> int:
    """The number of different texts among the headings and entries of a text."""
    return len({" ".join(one.casefold().split()) for one in entries(text)})


def asks_for_sections(prompt: str) -> int:
    """The number of different headings and numbered lines in a prompt."""
    return len({line.content for line in parse_lines(prompt) if line.kind == "heading" or line.numbered})


def body_lines(text: str) -> Iterator[str]:
    """The lines of a text that are entries or plain text."""
    return (line.text for line in parse_lines(text) if line.kind in ("entry", "text"))


def records(text: str) -> int:
    """The number of lines that are records of the conversation, as a request for a summary has them
    (`transcript.py`)."""
    return sum(_is_record(_json(line)) for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: str  # "bullet", "sign", "#", "number", "label", "cells", "wrapped", "rule", or "" if the line has no mark
    content: str


def _marked(row: str) -> _Mark:
    """The mark of a line, determined without the lines before and after it."""
    line = row.strip()
    if not any(map(str.isalnum, line)):
        return _Mark("rule", "")
    first = line[0]
    category = unicodedata.category(first)
    bare = _TAG.sub(" ", line).strip()
    if first == "<" and _TAG.match(line):
        if line.startswith("</") and not any(map(str.isalnum, bare)):
            return _Mark("rule", "")
        return _Mark("sign", bare) if any(map(str.isalnum, bare)) else _Mark("wrapped", line)
    if first == "#":
        return _Mark("#", line.strip("# \t"))
    if (found := _ENUMERATED.match(line)) and (found["number"] or _is_ordinal(found["word"])):
        return _Mark("number", found["content"])
    if category in ("No", "Nl") and len(line) > 1:
        return _Mark("number", line[1:].strip())
    if not first.isalnum() and category not in ("Pi", "Pf") and first not in _OPENS_PROSE:
        if found := _EMPHASIS.match(line):
            return _Mark("label", line) if any(map(str.isalnum, found["behind"])) else _Mark("wrapped", found["inner"])
        if first == "_":
            return _Mark("", line)
        content = line.lstrip("".join(BULLETS) + " \t[]xX" if first in BULLETS else first).strip()
        if first in BULLETS and (len(line) == 1 or not line[1].isspace()) and first not in "•‣◦・":
            return _Mark("", line)  # the sign begins a command-line option or an emphasised word, so it is no mark
        if first in "【［[〔" and unicodedata.category(line[-1]) == "Pe":
            return _Mark("wrapped", line[1:-1].strip())
        return _Mark("bullet" if first in BULLETS else "sign", content)
    found = _LABELLED.fullmatch(line)
    if found and any(map(str.isalpha, found["label"])) and not _SENTENCE.search(found["label"]):
        return _Mark("label", line) if found["content"] else _Mark("wrapped", found["label"])
    if _CELLS.fullmatch(line):
        return _Mark("cells", line)
    return _Mark("label", line) if _DASHED.fullmatch(line) else _Mark("", line)


def _line(
    row: str, mark: _Mark, after: int | None, rows: list[str], marks: list[_Mark], *, alone: bool, adjoins: bool
) -> TextLine:
    """Determine the kind of a line of a text.

    `after` is the number of the next line that is not blank; `alone`: there is no line before, or it is blank;
    `adjoins`: the next line is not blank.
    """
    if mark.kind == "rule":
        return TextLine(row, "rule")
    following = marks[after] if after is not None else None
    if mark.kind in ("#", "wrapped"):
        return TextLine(row, "heading", mark.content)
    if after is not None and adjoins and not mark.kind and _UNDERLINE.fullmatch(rows[after].strip()):
        return TextLine(row, "heading", mark.content)
    if mark.kind in ("number", "sign"):
        numbered = mark.kind == "number"
        above = following is not None and following.kind in ("", "bullet", "label") and _width(mark.content) <= SHORT
        return TextLine(row, "heading" if above else "entry", mark.content, numbered)
    if mark.kind:
        return TextLine(row, "entry", mark.content)
    if alone and _is_short(row) and following is not None and after is not None:
        said = rows[after].strip()
        if following.kind in ("bullet", "number", "label", "cells") or not _is_short(said):
            return TextLine(row, "heading", mark.content)
    return TextLine(row, "text", mark.content)


def _is_ordinal(label: str) -> bool:
    """Whether a short word before a delimiter is an ordinal: a Roman numeral, a single letter, or a word that contains
    a numeral (`第二`)."""
    roman = set(label.casefold()) <= set("ivxlcdm")
    return len(label) == 1 or roman or any(sign.isnumeric() for sign in label)


def _is_short(row: str) -> bool:
    line = row.strip()
    return _width(line) <= SHORT and not line.endswith(_CLOSED)


def _width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


def _json(text: str) -> Any:
    """The object or list in a JSON text; None for any other text."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= _RECORD and bool(value.keys() & {"role", "calls", "arguments"})


def _leaves(value: Any, depth: int = DEEPEST) -> Iterator[str]:
    """The keys and strings in a JSON value, without empty ones. The keys and strings of a record of the conversation
    are left out, so that a copy of the conversation does not count as a summary."""
    if depth == 0:
        return
    if isinstance(value, dict) and not _is_record(value):
        for key, inner in value.items():
            below = list(_leaves(inner, depth - 1))
            if below:
                yield str(key)
                yield from below
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, depth - 1)
    elif isinstance(value, str) and any(map(str.isalnum, value)):
        yield value
