"""A value as one line of the log can hold it: plain JSON, and no more than so many characters in all.

Anything may be handed to a log: a list that holds itself, keys that are no text, a megabyte, an object whose own text
raises.  None of it may stop the work or fill the disk, so what does not fit is said in a word.  Called by `log.py`.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 20_000
"""Characters of one field; the whole text is in the task's files."""
DEEPEST = 8
KEY = 200
"""Characters of a key."""
EACH = 4
"""What an element costs beside its text, so that a million zeros are not a line either."""
BITS = 1024
"""Largest number that is written as one."""
LEFT_OUT = "…"


def fit(value: Any) -> Any:
    """The value, if it is short and plain already; else what can be said of it."""
    if value is None or type(value) is bool or (isinstance(value, str) and len(value) <= LONGEST):
        return value
    return _Room(LONGEST).take(value, ())


def text_of(value: Any) -> str:
    """`str(value)`, or the name of its type when that raises."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything; a log never stops the work
        return f"<{type(value).__name__}: its text raised {type(error).__name__}>"


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text without its middle when it is too long: a traceback's last words tell the most."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}… ({len(text)} characters) …{text[-half:]}"


class _Room:
    """What is left of one field's characters."""

    def __init__(self, room: int) -> None:
        self.room = room

    def take(self, value: Any, inside: tuple[int, ...]) -> Any:
        """`inside`: the containers around it, by id."""
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
        for value in list(values):  # another thread may go on filling it
            if self.room <= 0:
                return [*taken, LEFT_OUT]
            taken.append(self.take(value, inside))
        return taken

    def _mapping(self, values: dict[Any, Any], inside: tuple[int, ...]) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for key, value in list(values.items()):
            if self.room <= 0:
                return taken | {LEFT_OUT: LEFT_OUT}
            name = shortened(key if isinstance(key, str) else text_of(key), KEY)
            self.room -= len(name)
            taken[name] = self.take(value, inside)
        return taken
