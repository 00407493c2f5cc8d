r"""Names in a conversation: paths, identifiers and ids, the words that a summary has to keep letter by letter.

A name is a word of ASCII letters and digits that prose does not have: with `_`, `/`, `\\`, a dot or colon inside, with
letters and digits mixed (where digits stand first, not as in `3rd`), or with a capital after a small letter.  So the
same rule serves every language.

A name tells which conversation a text is about when hardly another one has it.  `README.md`, `main.py` and `self.args`
are plain: words of one case.  A plain name counts with its folder alone, and so does one that several folders have.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from dataclasses import dataclass, field
from string import ascii_letters, digits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.values import Json

    Forms = tuple[str, ...]

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:\\@+-]{2,118}[A-Za-z0-9_]", re.ASCII)
_NAME = re.compile(
    r"""
    \A (?: [^A-Za-z]*+ [A-Za-z] .* [_/\\.:\d]
         | [^_/\\.:]*+ [_/\\.:] .* [A-Za-z]
         | \D*+ \d .{5,} [A-Za-z] )
    | [a-z][A-Z]
    """,
    re.VERBOSE | re.ASCII,
)
_LAST_PART = re.compile(r"[^/\\:]{4,}\Z")
_LINE = re.compile(r"(?::\d+)+\Z")
_FOLDER = re.compile(r"[/\\:]+")
_PLAIN = re.compile(r"_*(?:[a-z]+|[A-Z][a-z]*|[A-Z]+)_*", re.ASCII)
_VALUE = re.compile(
    r"""(?<![\w.,])\d[\d.,]*\d(?![\w])
    | `([^`\n]{2,40})` | 「([^」\n]{1,40})」 | 『([^』\n]{1,40})』 | “([^”\n]{2,40})” | «([^»\n]{2,40})»
    | (?<![\w\\])"([^"\\\n]{2,40})"(?!\w)""",
    re.VERBOSE,
)
_LEAST_DIGITS = 3
_LETTERS = frozenset(f"{ascii_letters}{digits}_")

MOST_NAMES = 4096
"""Different names that are remembered; of more, those that were met once are forgotten first."""


def names_in(text: str) -> Iterator[str]:
    """Every name in `text`, in order, repeated ones too."""
    for found in _WORD.finditer(text):
        if _NAME.search(found[0]):
            yield found[0]


def values_in(text: str) -> Iterator[str]:
    """Every number of three digits or more, and every short quotation in `text`, in order."""
    for found in _VALUE.finditer(text):
        quoted = next(filter(None, found.groups()), None)
        if quoted is not None:
            yield quoted
        elif sum(map(str.isdigit, found[0])) >= _LEAST_DIGITS:
            yield found[0]


def weights(names: Iterable[str]) -> dict[str, float]:
    """name → what it counts.  Names that differ only in their digits are of one family, which counts as one name: a
    list of `part1.py` to `part40.py`, or of line numbers, does not outweigh what was found out."""
    known = dict.fromkeys(names)
    families = Tally(_shape(name) for name in known)
    return {name: 1 / families[_shape(name)] for name in known}


def _shape(name: str) -> str:
    return re.sub(r"\d", "0", name)


def stands_in(word: str, text: str) -> bool:
    """Whether `text` has the word by itself, not as a part of a longer name."""
    place = text.find(word)
    while place >= 0:
        behind = place + len(word)
        joined = place and word[0] in _LETTERS and text[place - 1] in _LETTERS
        if not joined and not (behind < len(text) and word[-1] in _LETTERS and text[behind] in _LETTERS):
            return True
        place = text.find(word, place + 1)
    return False


def is_named(name: str, text: str) -> bool:
    """Whether `text` has the name, or the last part of a path where that is a name by itself."""
    if stands_in(name, text):
        return True
    last = _LAST_PART.search(name)
    return last is not None and last[0] != name and bool(_NAME.search(last[0])) and stands_in(last[0], text)


def named(names: Iterable[str], text: str) -> list[str]:
    """Those of `names` that `text` has."""
    return [name for name in names if is_named(name, text)]


def telling(names: Iterable[str]) -> dict[str, Forms]:
    """name → the forms of it that tell which conversation a text is about; names without such a form are left out.

    The forms are the name itself (not of a plain one without a folder), its last two parts, and its last part where
    that is not plain and no other folder has it.  Numbers of lines behind a path are no part of it.
    """
    found: dict[str, Forms] = {}
    paths: dict[str, list[list[str]]] = {}
    split = {name: _parts(name) for name in dict.fromkeys(_LINE.sub("", name) for name in names)}
    for parts in split.values():
        if len(parts) > 1:
            paths.setdefault(parts[-1], []).append(parts)
    for name, parts in split.items():
        last = parts[-1]
        forms = [name] if len(parts) > 1 or not _is_plain(last) else []
        if len(parts) > 1:
            forms += [name[name.rindex(parts[-2], 0, len(name) - len(last)) :]] if len(parts) > 2 else []
            forms += [last] if _NAME.search(last) and not _is_plain(last) and _one_place(paths[last]) else []
        if forms:
            found[name] = tuple(forms)
    return found


def told(forms: Mapping[str, Forms], text: str) -> list[str]:
    """Those names that `text` has in one of their forms."""
    return [name for name, ways in forms.items() if any(stands_in(way, text) for way in ways)]


def _parts(name: str) -> list[str]:
    return [part for part in _FOLDER.split(name) if part] or [name]


def _is_plain(part: str) -> bool:
    return all(_PLAIN.fullmatch(word) for word in part.split(".") if word)


def _one_place(paths: list[list[str]]) -> bool:
    """Whether paths with the same last part are one file: each ends with the shortest (`a/src/x`, `work/src/x`)."""
    least = min(paths, key=len)
    return all(parts[-len(least) :] == least for parts in paths)


@dataclass
class Names:
    """The names of messages, and in how many of them each stands.

    `said` are those of what people and the model wrote and of the arguments of calls, `shown` those of tool results,
    `tools` the names of the tools themselves, which tell nothing.
    """

    said: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    tools: set[str] = field(default_factory=set)

    def take(self, record: Json) -> None:
        """Take in one record of a transcript."""
        content = str(record.get("content") or "")
        if record.get("role") == "tool":
            _add(self.shown, content)
            return
        calls = record.get("calls") or ()
        self.tools.update(str(call.get("name")) for call in calls)
        _add(self.said, "\n".join([content, *(str(call.get("arguments")) for call in calls)]))

    def pool(self, more: Iterable[str], without: Iterable[str], least: int) -> dict[str, Forms]:
        """The names that a summary is measured by, with their forms: those of `said` and `more`, those of `shown` too
        where that are less than `least`, and plain ones too where it still is.  None of `without`."""
        without = {*without, *self.tools}
        said = {*self.said, *more} - without
        for names in (said, said | self.shown.keys() - without):
            if len(found := telling(names)) >= least:
                return found
        return {name: (name,) for name in said | self.shown.keys() - without}


def _add(known: dict[str, int], text: str) -> None:
    for name in set(names_in(text)):
        known[name] = known.get(name, 0) + 1
    if len(known) > MOST_NAMES:
        for name in [one for one, number in known.items() if number == 1][: len(known) - MOST_NAMES // 2]:
            del known[name]
        for name in list(known)[: max(0, len(known) - MOST_NAMES)]:
            del known[name]
