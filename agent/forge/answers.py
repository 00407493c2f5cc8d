"""The one reader of a forge's answers: an answer of 200 is checked where it comes in, before anybody looks at it.

A proxy, or a host that starts, answers 200 with HTML, `null`, a list where an object belongs, an object without its
number.  Such an answer is `AnswerOdd`, which names the request, the field, what it must be and what was found: the
host is away in a way of its own, and is asked again.  What is wrong in our own code is never taken for that: an adapter
looks at no field that its table of shapes does not name (`github_shapes.py`, `gitlab_shapes.py`).

A shape is a type; `TIME`; `[shape]` for a list; a tuple for one of several; a dict of field → shape for an object,
where a name with `?` may be missing or null.  Other fields of an answer are nobody's business and stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import AnswerOdd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ANY = object
NAMES = {str: "text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}
SHOWN = 60
"""Characters of what was found that an error shows."""


class Time:
    """A text that is a time; "" where the field may be missing."""


TIME = Time
Shape = Any


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of one forge's answers, by verb (a regular expression) and path; the first that fits counts."""

    rows: tuple[tuple[re.Pattern[str], Shape], ...]

    @classmethod
    def of(cls, *rows: tuple[str, str, Shape]) -> Shapes:
        """From rows of (verbs, end of the path, shape)."""
        return cls(tuple((re.compile(f"(?:{verbs}) .*{path}"), shape) for verbs, path, shape in rows))

    def find(self, verb: str, path: str) -> Shape:
        """The shape of an answer.  LookupError when nobody has written it down: then nothing may be read of it."""
        asked = f"{verb} {path.partition('?')[0]}"
        for pattern, shape in self.rows:
            if pattern.fullmatch(asked):
                return shape
        raise LookupError(f"no shape is known for the answer to {asked}")

    def check(self, verb: str, path: str, data: Any, what: str) -> None:
        """AnswerOdd unless an answer is what it must be; `what` names the request in the error."""
        if (wrong := fault_in(data, self.find(verb, path))) is not None:
            raise AnswerOdd(f"{what}: {wrong}", maybe=verb != "GET")

    def items(
        self, path: str, data: Iterable[Any], what: str, odd: Callable[[AnswerOdd], None] | None
    ) -> Iterator[Any]:
        """The items of a page of a list.  `odd` hears of those that are not what they must be, which are left out;
        without it, or where all of a page are odd, AnswerOdd is raised."""
        (shape,) = self.find("GET", path)
        error, good = None, False
        for place, item in enumerate(data):
            if (wrong := fault_in(item, shape, f"[{place}]")) is None:
                good = True
                yield item
                continue
            error = AnswerOdd(f"{what}: {wrong}")
            if odd is None:
                raise error
            odd(error)
        if error is not None and not good:
            raise error


def fault_in(value: Any, shape: Shape, place: str = "") -> str | None:
    """What is wrong with a value, in words; None for nothing."""
    if isinstance(shape, tuple):
        faults = [fault_in(value, one, place) for one in shape]
        return None if None in faults else faults[0]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _must(place, "a list", value)
        found = (fault_in(one, shape[0], f"{place}[{number}]") for number, one in enumerate(value))
        return next((fault for fault in found if fault is not None), None)
    if isinstance(shape, dict):
        return _fault_in_object(value, shape, place)
    if shape is TIME:
        return None if _is_time(value) else _must(place, "a time", value)
    good = isinstance(value, shape) and (shape is not int or not isinstance(value, bool))
    return None if good else _must(place, NAMES.get(shape, str(shape)), value)


def _fault_in_object(value: Any, shape: dict[str, Shape], place: str) -> str | None:
    if not isinstance(value, dict):
        return _must(place, "an object", value)
    for name, inner in shape.items():
        field = name.removesuffix("?")
        where = f"{place}.{field}" if place else field
        if field not in value:
            if name == field:
                return f"the field `{where}` is missing"
            continue
        found = value[field]
        if name != field and (found is None or (found == "" and inner is TIME)):
            continue
        if (fault := fault_in(found, inner, where)) is not None:
            return fault
    return None


def _is_time(value: Any) -> bool:
    try:
        clock.parse(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return False
    return True


def _must(place: str, kind: str, value: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
    return f"{f'the field `{place}`' if place else 'the answer'} must be {kind}, and is {shown}"
