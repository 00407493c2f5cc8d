"""Path patterns: `*.py`, `src/**/*.ts`, `*.{c,h}`.

`*`, `?` and `[…]` stay within one name, `**` spans folders, `{a,b}` is either.  A pattern without `/` is held against
the name alone, one with `/` against the path.  Linear in the path: names are matched one by one with the standard
library's pattern, which does not backtrack over `*`.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from agent.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX = 500
_BRACES = re.compile(r"\{([^{}]*)\}")


def matcher(pattern: str) -> Callable[[str], bool]:
    """Tells of a path whether the pattern fits it; ToolError for a pattern that is too long."""
    if len(pattern) > _MAX:
        raise ToolError(f"the pattern has {len(pattern)} characters; at most {_MAX} are allowed")
    pattern = pattern.removeprefix("/work/").removeprefix("./").lstrip("/")
    if pattern.endswith("/"):
        pattern += "**"
    options = [_segments(option) for option in _alternatives(pattern)]
    by_name = "/" not in pattern

    def fits(path: str) -> bool:
        parts = [path.rpartition("/")[2]] if by_name else path.split("/")
        return any(_fits(option, parts) for option in options)

    return fits


def _alternatives(pattern: str) -> list[str]:
    """The pattern with its braces multiplied out, at most 64 of them."""
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
    """One compiled pattern per name; None stands for `**`."""
    return [None if part == "**" else re.compile(fnmatch.translate(part)) for part in pattern.split("/")]


def _fits(segments: list[re.Pattern[str] | None], parts: list[str]) -> bool:
    """Walk all readings of `**` at once, so that the work is segments × parts."""
    last = segments[-1]
    if last is not None and not last.match(parts[-1]):
        return False  # most paths of a large tree end here
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
    """`**` may also span nothing."""
    reached = set(states)
    for state in sorted(states):
        position = state
        while position < len(segments) and segments[position] is None:
            position += 1
            reached.add(position)
    return reached
