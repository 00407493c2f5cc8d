r"""Finds the names in a conversation that a summary must repeat exactly: paths, identifiers and ids.

A name is a word of ASCII letters and digits of a form that does not occur in prose. A name contains `_`, `/`, `\\`, a
dot or a colon, or it mixes letters and digits (with a digit before the first letter only if it has at least 7
characters, unlike `1000ms`), or it has a capital after a small letter. The form of a name does not depend on the
language of the text around it.

A name is characteristic of a conversation if few other conversations contain the name. Names such as `README.md`,
`main.py` and `self.args` are plain: each of their words is in small letters, in capitals, or capitalised. A plain name
is characteristic of a conversation only together with its folder, and so is a name that occurs in several folders.
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
_FOLDER = re.compile(r"[/\\:]+")
_PLAIN = re.compile(r"_*(?:[a-z]+|[A-Z][a-z]*|[A-Z]+)_*", re.ASCII)
_VALUE = re.compile(
    r"""[\d`「『“«"] (?:  # what one begins with: so `re` passes over all other signs quickly
      (?<=\d)(?<![\w.,]\d)[\d.,]*\d(?![\w])
    | (?<=`)([^`\n]{2,40}+)` | (?<=「)([^」\n]{1,40}+)」 | (?<=『)([^』\n]{1,40}+)』
    | (?<=“)([^”\n]{2,40}+)” | (?<=«)([^»\n]{2,40}+)»
    | (?<=")(?<![\w\\]")([^"\\\n]{2,40}+)"(?!\w) )""",
    re.VERBOSE,
)
_LEAST_DIGITS = 3
_LETTERS = frozenset(f"{ascii_letters}{digits}_")
_ANY_DIGIT = str.maketrans(digits, "0" * len(digits))

MOST_NAMES = 4096
"""The maximum number of different names in memory; above it, names that occur only once are dropped first."""


def names_in(text: str) -> Iterator[str]:
    """Every name in `text`, in order, with repetitions."""
    for found in _WORD.finditer(text):
        if _NAME.search(found[0]):
            yield found[0]


def values_in(text: str) -> Iterator[str]:
    """Every number of at least three digits, and every short quotation in `text`, in order."""
    for found in _VALUE.finditer(text):
        quoted = next(filter(None, found.groups()), None)
        if quoted is not None:
            yield quoted
        elif sum(map(str.isdigit, found[0])) >= _LEAST_DIGITS:
            yield found[0]


def weights(names: Iterable[str]) -> dict[str, float]:
    """name → its weight in the check of a summary.

    Names that differ only in their digits form a family; the weights in a family add up to that of one name. Because of
    families, a list of `part1.c` to `part40.c`, or of line numbers, does not outweigh the other names.
    """
    known = dict.fromkeys(names)
    families = Tally(_shape(name) for name in known)
    return {name: 1 / families[_shape(name)] for name in known}


def _shape(name: str) -> str:
    return name.translate(_ANY_DIGIT)


def stands_in(word: str, text: str) -> bool:
    """Whether `text` contains the word by itself, and not only as a part of a longer name."""
    place = text.find(word)
    while place >= 0:
        behind = place + len(word)
        joined = place and word[0] in _LETTERS and text[place - 1] in _LETTERS
        if not joined and not (behind < len(text) and word[-1] in _LETTERS and text[behind] in _LETTERS):
            return True
        place = text.find(word, place + 1)
    return False


def is_named(name: str, text: str) -> bool:
    """Whether `text` contains the name `name`, or the last part of a path if that part is itself a name."""
    if stands_in(name, text):
        return True
    last = _LAST_PART.search(name)
    return last is not None and last[0] != name and bool(_NAME.search(last[0])) and stands_in(last[0], text)


def present_in(names: Iterable[str], text: str) -> list[str]:
    """Those of `names` that `text` contains."""
    return [name for name in names if is_named(name, text)]


def telling_forms(names: Iterable[str]) -> dict[str, Forms]:
    """name → its forms that are characteristic of a conversation; a name without such a form is left out.

    The forms of a name are the name itself (unless it has no folder and is plain, like `main.py`), its last two parts,
    and its last part alone if that is not plain and occurs in no other folder. Line numbers after a path are not part
    of the name.
    """
    found: dict[str, Forms] = {}
    paths: dict[str, list[list[str]]] = {}
    split = {name: _parts(name) for name in dict.fromkeys(map(_without_lines, names))}
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


def _without_lines(name: str) -> str:
    """A path without line and column numbers at its end."""
    path, colon, number = name.rpartition(":")
    while colon and number.isdecimal():
        name = path
        path, colon, number = name.rpartition(":")
    return name


def found_in(forms: Mapping[str, Forms], text: str) -> list[str]:
    """The names that `text` contains in at least one of their forms."""
    return [name for name, ways in forms.items() if any(stands_in(way, text) for way in ways)]


def _parts(name: str) -> list[str]:
    return [part for part in _FOLDER.split(name) if part] or [name]


def _is_plain(part: str) -> bool:
    return all(_PLAIN.fullmatch(word) for word in part.split(".") if word)


def _one_place(paths: list[list[str]]) -> bool:
    """Whether paths with the same last part are one file, seen from different folders: all of them end with the
    shortest one (`a/src/x`, `work/src/x`, `src/x`)."""
    least = min(paths, key=len)
    return all(parts[-len(least) :] == least for parts in paths)


@dataclass
class NameIndex:
    """The names in messages, each with the number of messages that contain it.

    `said` has the names in texts of people and of the model and in the arguments of calls, `shown` has the names in
    tool results. `tools` are the names of the tools, which are not characteristic of a conversation.
    """

    said: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    tools: set[str] = field(default_factory=set)

    def add(self, record: Json) -> None:
        """Add the names of one record of a transcript."""
        content = str(record.get("content") or "")
        if record.get("role") == "tool":
            _add(self.shown, content)
            return
        calls = record.get("calls") or ()
        self.tools.update(str(call.get("name")) for call in calls)
        _add(self.said, "\n".join([content, *(str(call.get("arguments")) for call in calls)]))

    def pool(self, more: Iterable[str], without: Iterable[str], least: int) -> dict[str, Forms]:
        """The names that a good summary should contain, each with its forms; those in `without` are left out.

        `pool` returns the names of `said` and `more`; if fewer than `least` of them are characteristic, also those of
        `shown`; if that is not enough, all names of both, plain ones included.
        """
        without = {*without, *self.tools}
        said = {*self.said, *more} - without
        for names in (said, said | self.shown.keys() - without):
            if len(found := telling_forms(names)) >= least:
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
