r"""The structure of a text, in any language: which lines are headings or entries, and which are plain text.

A line is set apart, and so a heading or an entry, by one of these: a sign in front (`-`, `#`, `■`, `|`, `<`), a number,
numeral or single letter with a delimiter behind it (`1.`, `IV)`, `一、`, `٣ -`), a short label and a colon, cells of a
table, an underline, or by being a short line by itself above others.  In JSON each key and each text is an entry.  No
word of any language is looked for.  Called by `judge.py` and `beside.py`.
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
"""Cells of the display: a longer line is no heading by being short; a sign of East Asia has two."""

BULLETS = frozenset("-*+•‣◦·・–—")
"""Signs of the entries of a list; behind another sign a heading may stand."""

_RECORD = frozenset(("role", "name", "content", "calls", "arguments", "task", "summary_so_far"))
"""Keys of the records in a summary request (transcript.py)."""

_FENCE = re.compile(r"\A\s*(?:```|~~~)[^\n]*\n(.*?)(?:\n\s*(?:```|~~~)\s*)?\Z", re.DOTALL)
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
_LABELLED = re.compile(r"(?P<label>[^:：]{1,40}?)[ \t]*(?:：|:(?=\s|$))[ \t]*(?P<content>.*)")
_DASHED = re.compile(r"[^–—-]{1,32}[ \t][–—-][ \t]+\S.*")
_CELLS = re.compile(r"[^|\t\w]*+\w[^|\t]*+(?:(?<=[ ])\|[ ]|\t)[^|\t\w]*+\w.*")
_EMPHASIS = re.compile(r"(?P<sign>\*\*|__)(?P<inner>[^*\n\w]*+\w[^*\n]*?)(?P=sign)(?!\w|\.\w)(?P<behind>.*)")
_SENTENCE = re.compile(r"[.!?]\s|[。！？]")
_CLOSED = tuple(".!?,;。！？，；、…")
"""Signs at the end of a line of plain text."""
_OPENS_PROSE = frozenset("\"'(（「『¿¡")
_UNDERLINE = re.compile(r"([=\-~^*_#])\1{2,}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank.  `kind` is "heading", "entry", "text" or "rule" (no letter and no digit in it);
    `content` is it without its marker, `numbered` whether a number or letter was the marker."""

    text: str
    kind: str
    content: str = ""
    numbered: bool = False


def parsed(text: str) -> list[Line]:
    """The lines of a text that are not blank, in order."""
    if found := _FENCE.match(text):
        text = found[1]
    rows = _TAGS.sub(">\n", text).splitlines()
    marks = [_marked(row) for row in rows]
    lines: list[Line] = []
    for number, row in enumerate(rows):
        if not row.strip():
            continue
        after = next((other for other in range(number + 1, len(rows)) if rows[other].strip()), None)
        alone = number == 0 or not rows[number - 1].strip()
        lines.append(_line(row, marks[number], after, rows, marks, alone=alone, adjoins=after == number + 1))
    return lines


def entries(text: str) -> list[str]:
    """What the headings and entries of a text say, in order, without their markers."""
    inner = found[1] if (found := _FENCE.match(text)) else text
    value = _json(inner)
    if value is not None:
        return list(_leaves(value))
    said: list[str] = []
    for line in parsed(text):
        value = _json(line.text)
        if value is not None:
            said += _leaves(value)
        elif line.kind in ("heading", "entry"):
            said.append(line.content)
    return said


def sections(text: str) -> int:
    """How many different headings and entries a text has."""
    return len({" ".join(one.casefold().split()) for one in entries(text)})


def asks_for_sections(prompt: str) -> int:
    """How many headings, or numbered lines, a prompt has."""
    return len({line.content for line in parsed(prompt) if line.kind == "heading" or line.numbered})


def bodies(text: str) -> Iterator[str]:
    """The lines of a text that say something and are no headings."""
    return (line.text for line in parsed(text) if line.kind in ("entry", "text"))


def records(text: str) -> int:
    """How many lines of a text are records as the summariser was given them."""
    return sum(_is_record(_json(line)) for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: str  # "bullet", "sign", "#", "number", "label", "cells", "wrapped", "" for none, "rule"
    content: str


def _marked(row: str) -> _Mark:
    """What a line alone shows of its place."""
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
            return _Mark("", line)  # a flag, or a word in emphasis
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
) -> Line:
    """`after` is the number of the next line that is not blank; `alone`: a blank line, or nothing, stands before."""
    if mark.kind == "rule":
        return Line(row, "rule")
    following = marks[after] if after is not None else None
    if mark.kind in ("#", "wrapped"):
        return Line(row, "heading", mark.content)
    if after is not None and adjoins and not mark.kind and _UNDERLINE.fullmatch(rows[after].strip()):
        return Line(row, "heading", mark.content)
    if mark.kind in ("number", "sign"):
        numbered = mark.kind == "number"
        above = following is not None and following.kind in ("", "bullet", "label") and _width(mark.content) <= SHORT
        return Line(row, "heading" if above else "entry", mark.content, numbered)
    if mark.kind:
        return Line(row, "entry", mark.content)
    if alone and _is_short(row) and following is not None and after is not None:
        said = rows[after].strip()
        if following.kind in ("bullet", "number", "label", "cells") or not _is_short(said):
            return Line(row, "heading", mark.content)
    return Line(row, "text", mark.content)


def _is_ordinal(label: str) -> bool:
    """Whether a short word in front of a delimiter counts: a roman number, a single letter, or one with a numeral in it
    (`第二`)."""
    roman = set(label.casefold()) <= set("ivxlcdm")
    return len(label) == 1 or roman or any(sign.isnumeric() for sign in label)


def _is_short(row: str) -> bool:
    line = row.strip()
    return _width(line) <= SHORT and not line.endswith(_CLOSED)


def _width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


def _json(text: str) -> Any:
    """The object or list that a text is, None for another."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= _RECORD and bool(value.keys() & {"role", "calls", "arguments"})


def _leaves(value: Any) -> Iterator[str]:
    """The keys and texts of a JSON value that have something in them; none of a record of the conversation."""
    if isinstance(value, dict) and not _is_record(value):
        for key, inner in value.items():
            below = list(_leaves(inner))
            if below:
                yield str(key)
                yield from below
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str) and any(map(str.isalnum, value)):
        yield value
