"""Parses a text that must be exactly one JSON object, and repairs nothing.

Texts that a library for the repair of JSON would accept are refused: two objects, prose or reasoning around an object,
duplicate keys, NaN, an object that is cut off.  The text of a change may contain an object that looks like a vote; a
tolerant reader could take it for the reviewer's vote.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from agent.consensus.errors import NoVote

if TYPE_CHECKING:
    from agent.values import Json

LONGEST = 32 * 1024
"""The maximum size of the whole text in bytes of UTF-8."""
DEEPEST = 8
"""The maximum number of objects and lists inside each other."""

_FENCED = re.compile(r"\A```(?:json)?[ \t]*\n(?P<body>.*)\n```\Z", re.DOTALL)
_STRUCTURE = re.compile(r'"(?>(?:[^"\\]|\\.)*)(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""Matches a JSON string or a bracket.  A string without a closing quote matches up to the end of the text, so that no
part of the text is scanned twice.
"""


def read_object(text: str) -> Json:
    """The JSON object that makes up the whole text, apart from white space and one code fence around it.

    Raises NoVote with one error of the form `$: keyword` if the text is not exactly one object.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise NoVote((f"$: maxBytes {LONGEST}",))
    body = text.strip()
    if (fenced := _FENCED.match(body)) is not None:
        body = fenced["body"].strip()
    if not body:
        raise NoVote(("$: empty",))
    if _depth(body) > DEEPEST:
        raise NoVote((f"$: maxDepth {DEEPEST}",))
    try:
        found = json.loads(body, object_pairs_hook=_unique, parse_constant=_no_constant)
    except _DuplicateKey:
        raise NoVote(("$: duplicateKey",)) from None
    except (ValueError, RecursionError):
        raise NoVote(("$: json",)) from None
    if not isinstance(found, dict):
        raise NoVote(("$: type",))
    return found


class _DuplicateKey(Exception):
    """An object of the text has the same key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DuplicateKey
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(text: str) -> int:
    """The maximum nesting depth of brackets; brackets in strings do not count."""
    depth = deepest = 0
    for found in _STRUCTURE.finditer(text):
        sign = found[0]
        if sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest
