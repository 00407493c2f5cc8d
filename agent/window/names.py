r"""Names in a conversation: paths, identifiers and ids, the words that a summary has to keep letter by letter.

A name is a word of ASCII letters and digits that prose does not have: with `_`, `/`, `\\`, a dot or colon inside, with
letters and digits mixed (where digits stand first, not as in `3rd`), or with a capital after a small letter.  So the
same rule serves every language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.values import Json

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:\\@+-]{2,118}[A-Za-z0-9_]", re.ASCII)
_NAME = re.compile(r"[A-Za-z].*[_/\\.:]|[_/\\.:].*[A-Za-z]|[A-Za-z].*\d|\d.{5,}[A-Za-z]|[a-z][A-Z]", re.ASCII)
_LAST_PART = re.compile(r"[^/\\:]{4,}\Z")

MOST_NAMES = 4096
"""Different names that are remembered; of more, those that were met once are forgotten first."""


def names_in(text: str) -> Iterator[str]:
    """Every name in `text`, in order, repeated ones too."""
    for found in _WORD.finditer(text):
        if _NAME.search(found[0]):
            yield found[0]


def is_named(name: str, text: str) -> bool:
    """Whether `text` has the name, or the last part of a path where that is a name by itself."""
    if name in text:
        return True
    last = _LAST_PART.search(name)
    return last is not None and last[0] != name and bool(_NAME.search(last[0])) and last[0] in text


def named(names: Iterable[str], text: str) -> list[str]:
    """Those of `names` that `text` has."""
    return [name for name in names if is_named(name, text)]


@dataclass
class Names:
    """The names of messages, and in how many of them each stands.

    `said` are those of what people and the model wrote and of the arguments of calls, `shown` those of tool results.
    """

    said: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)

    def take(self, record: Json) -> None:
        """Take in one record of a transcript."""
        content = str(record.get("content") or "")
        if record.get("role") == "tool":
            _add(self.shown, content)
            return
        calls = "\n".join(str(call.get("arguments")) for call in record.get("calls") or ())
        _add(self.said, f"{content}\n{calls}")

    def pool(self, least: int) -> set[str]:
        """The names that a summary is measured by: those of `said`, and those of `shown` too where `said` has less
        than `least`."""
        return set(self.said) if len(self.said) >= least else self.said.keys() | self.shown.keys()


def _add(known: dict[str, int], text: str) -> None:
    for name in set(names_in(text)):
        known[name] = known.get(name, 0) + 1
    if len(known) > MOST_NAMES:
        for name in [one for one, number in known.items() if number == 1][: len(known) - MOST_NAMES // 2]:
            del known[name]
        for name in list(known)[: max(0, len(known) - MOST_NAMES)]:
            del known[name]
