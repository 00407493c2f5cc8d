"""Turns any value into plain JSON of limited length, so that it can be a field of the log (`log.py`).

The value of a log field may be a list that contains itself, have keys that are not strings, be a megabyte long, or be
an object with a `__str__` that raises. No value of a log field may stop the work or fill the disk, so a part of the
value that does not fit is replaced by a short text.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 20_000
"""The maximum characters of one field of a log line."""
DEEPEST = 8
KEY = 200
"""The maximum characters of a key of a mapping in a log field."""
EACH = 4
"""Characters that an element of a list counts in addition to its text, so that the maximum also holds for a list of a
million zeros."""
BITS = 1024
"""The maximum bits of an integer that the log writes as a number."""
LEFT_OUT = "…"


def truncate(value: Any) -> Any:
    """`value` itself if it is short and plain; otherwise a truncated form of `value` that is valid JSON."""
    if value is None or type(value) is bool or (isinstance(value, str) and len(value) <= LONGEST):
        return value
    return _Room(LONGEST).to_json(value, ())


def text_of(value: Any) -> str:
    """`str(value)`, or a text with the name of its type when `str` raises an error."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - `__str__` may raise any error, which must not stop the work
        return f"<{type(value).__name__}: its text raised {type(error).__name__}>"


def shorten(text: str, longest: int = LONGEST) -> str:
    """The text, without its middle if it is longer than `longest`; the end is preserved, since it is the most important
    part of a traceback."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}… ({len(text)} characters) …{text[-half:]}"


class _Room:
    """Counts the characters that are left for one field of a log line."""

    def __init__(self, room: int) -> None:
        self.room = room

    def to_json(self, value: Any, inside: tuple[int, ...]) -> Any:
        """The JSON form of `value`.  `inside` has the ids of the containers around `value`."""
        self.room -= EACH
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= BITS else f"a number of {value.bit_length()} bits"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, dict | list | tuple | set | frozenset):
            if id(value) in inside or len(inside) >= DEEPEST:
                return LEFT_OUT
            within = (*inside, id(value))
            return self._mapping(value, within) if isinstance(value, dict) else self._list(value, within)
        return self._text(value if isinstance(value, str) else text_of(value))

    def _text(self, text: str) -> str:
        length, room = len(text), max(0, self.room)
        self.room -= min(length, room)
        return text if length <= room else f"{text[:room]}… ({length} characters)"

    def _list(self, values: Iterable[Any], inside: tuple[int, ...]) -> list[Any]:
        taken: list[Any] = []
        for value in list(values):  # the list is copied, since another thread may still add to it
            if self.room <= 0:
                return [*taken, LEFT_OUT]
            taken.append(self.to_json(value, inside))
        return taken

    def _mapping(self, values: dict[Any, Any], inside: tuple[int, ...]) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for key, value in list(values.items()):
            if self.room <= 0:
                return taken | {LEFT_OUT: LEFT_OUT}
            name = shorten(key if isinstance(key, str) else text_of(key), KEY)
            self.room -= len(name)
            taken[name] = self.to_json(value, inside)
        return taken
