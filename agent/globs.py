"""Matches path patterns such as `*.py`, `src/**/*.ts`, `*.{c,h}`.

In a path pattern `*`, `?` and `[…]` match within one name, `**` matches any number of folders, `{a,b}` matches `a` or
`b`. A path pattern without `/` is matched against the last name of a path, a pattern with `/` against the whole path.
The time of a match is linear in the length of the path: each name of the path is matched separately with the pattern of
the standard library (`fnmatch`), which does not backtrack over `*`.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from agent.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MAX = 500
_BRACES = re.compile(r"\{([^{}]*)\}")


def matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that matches a path against the path pattern. `/work/`, `./` and `/` at the beginning of the
    pattern are ignored; a pattern with `/` at its end matches everything below the folder. Raises ToolError if the
    pattern is too long or has too many alternatives in braces."""
    if len(pattern) > _MAX:
        raise ToolError(f"the pattern has {len(pattern)} characters; at most {_MAX} are allowed")
    pattern = pattern.removeprefix("/work/").removeprefix("./").lstrip("/")
    if pattern.endswith("/"):
        pattern += "**"
    options = [_segments(option) for option in alternatives(pattern)]
    by_name = "/" not in pattern

    def fits(path: str) -> bool:
        parts = [path.rpartition("/")[2]] if by_name else path.split("/")
        return any(_fits(option, parts) for option in options)

    return fits


def first_of(patterns: Iterable[str]) -> Callable[[str], str]:
    """Return a function that maps a path to the first of many path patterns (without braces) that matches the path,
    else to "".

    For most paths one match of the last name of the path with a combined regular expression is enough."""
    options = [(_segments(pattern), "/" not in pattern, pattern) for pattern in patterns]
    last = [segments[-1] for segments, _, _ in options]
    names = re.compile("|".join(one.pattern for one in last if one is not None) or r"(?!)")
    open_ended = [option for option, one in zip(options, last, strict=True) if one is None]

    def first(path: str) -> str:
        parts = path.split("/")
        for segments, by_name, pattern in options if names.match(parts[-1]) else open_ended:
            if _fits(segments, parts[-1:] if by_name else parts):
                return pattern
        return ""

    return first


def alternatives(pattern: str) -> list[str]:
    """The path patterns that result when the braces of a pattern are expanded (braces without a comma stay); raises
    ToolError if there are more than 64."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        found = _BRACES.search(one)
        if found is None or "," not in found.group(1):
            done.append(one)
            continue
        todo += [one[: found.start()] + word + one[found.end() :] for word in found.group(1).split(",")]
        if len(done) + len(todo) > 64:
            raise ToolError("the pattern has too many alternatives in braces; at most 64 are allowed")
    return done


def _segments(pattern: str) -> list[re.Pattern[str] | None]:
    """The parts of a path pattern between its `/`, as compiled regular expressions; None for the part `**`."""
    return [None if part == "**" else re.compile(fnmatch.translate(part)) for part in pattern.split("/")]


def _fits(segments: list[re.Pattern[str] | None], parts: list[str]) -> bool:
    """Whether the segments of a path pattern match the parts of a path; all interpretations of `**` are matched at the
    same time, so that the work is proportional to segments × parts."""
    last = segments[-1]
    if last is not None and not last.match(parts[-1]):
        return False  # in a large tree most paths fail already at the match of the last name
    states = _through({0}, segments)
    for part in parts:
        after = set()
        for state in states:
            if state == len(segments):
                continue
            segment = segments[state]
            if segment is None:
                after.add(state)
            elif segment.match(part):
                after.add(state + 1)
        states = _through(after, segments)
    return len(segments) in states


def _through(states: set[int], segments: list[re.Pattern[str] | None]) -> set[int]:
    """`states` (positions in a path pattern), and the states that are reached from them if `**` matches no folder."""
    reached = set(states)
    for state in sorted(states):
        position = state
        while position < len(segments) and segments[position] is None:
            position += 1
            reached.add(position)
    return reached
