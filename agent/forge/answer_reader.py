"""Validates the JSON of a forge's answers.  The HTTP clients of the forges check a successful answer on arrival, before
the adapter reads it.

A proxy, or a host that is starting, may answer 200 with HTML, `null`, a list instead of an object, or an object in
which a field is missing. An answer of a wrong shape raises `AnswerOdd`, with a message that names the request, the
field and the mismatch. `AnswerOdd` is a kind of `ForgeUnreachable`, so code that does not handle `AnswerOdd` itself
treats an answer of a wrong shape like a host that does not answer. Each adapter for a host has a table of shapes (such
as `forge/github/answer_shapes.py`), which names the fields that the adapter reads.

The shape of a value in an answer is one of: a type; `TIME`; `[shape]` for a list; a tuple for one of several shapes; a
dict of field → shape for an object. If a dict names a field with a `?` at the end of the name, the field may be missing
or null. Fields of an object that the dict of its shape does not name are not checked.
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
"""Maximum characters of a wrong value of an answer that an error message shows."""


class Time:
    """The shape of a string that is a valid time; a field that is optional (`?`) and of this shape may also be ""."""


TIME = Time
Shape = Any


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of one forge's answers: each row has a regular expression for the HTTP verb and the path of a request,
    and the shape of its answer; the first row that matches a request is used."""

    rows: tuple[tuple[re.Pattern[str], Shape], ...]

    @classmethod
    def from_rows(cls, *rows: tuple[str, str, Shape]) -> Shapes:
        """Make a table of the shapes of answers from rows of (HTTP verbs, path, shape of the answer); verbs and path
        are regular expressions for the whole verb and the whole path, since a repository may be named like the end of a
        path."""
        return cls(tuple((re.compile(f"(?:{verbs}) {path}"), shape) for verbs, path, shape in rows))

    def find(self, verb: str, path: str) -> Shape:
        """The shape that the answer to a request must have.  Raises LookupError when the table has no row for the
        request."""
        asked = f"{verb} {path.partition('?')[0]}"
        for pattern, shape in self.rows:
            if pattern.fullmatch(asked):
                return shape
        raise LookupError(f"no shape is known for the answer to {asked}")

    def check(self, verb: str, path: str, data: Any, what: str) -> None:
        """Raise AnswerOdd unless an answer has the shape of its request; `what` names the request in the error."""
        if (wrong := fault_in(data, self.find(verb, path))) is not None:
            raise AnswerOdd(f"{what}: {wrong}", maybe=verb != "GET")

    def items(
        self, path: str, data: Iterable[Any], what: str, odd: Callable[[AnswerOdd], None] | None
    ) -> Iterator[Any]:
        """The items of one page of a list in a forge's answer, without the items of a wrong shape.

        List items of a wrong shape are left out and passed to `odd` as AnswerOdd. If `odd` is None, the first item of a
        wrong shape raises AnswerOdd instead; if all items of the page have a wrong shape, the last one raises AnswerOdd
        as well.
        """
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
    """A description of the first mismatch between a value and its shape; None when the value matches."""
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
    if not isinstance(value, str):
        return False
    try:
        clock.parse(value)
    except (ValueError, OverflowError):
        return False
    return True


def _must(place: str, kind: str, value: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
    return f"{f'the field `{place}`' if place else 'the answer'} must be {kind}, and is {shown}"
