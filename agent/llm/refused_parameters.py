"""Finds the optional part of a request that a refusal names: a parameter, or a keyword in the tools' schemas.

The result names only optional parts of a request; the client decides how to react (`ChatClient.adapt_to_refusal`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from agent.errors import ModelError
    from agent.values import Json

NOT_TAKEN = re.compile(
    r"unsupported|not supported|n[o']t support|cannot find field|unrecogni[sz]ed|unknown"
    r"|not (?:be )?(?:permitted|allowed|accepted|implemented|available)|unexpected|\bextra|extraneous|forbidden|remove"
    r"|invalid (?:parameter|argument|field|property|input)|no such (?:parameter|argument|field)"
    r"|does not (?:accept|take|know)",
    re.IGNORECASE,
)
"""Matches phrases with which a server says that it does not accept a part of the request; if the error body names a
parameter in a field, no phrase is needed."""

STRUCTURE = frozenset({"type", "function", "name", "description", "parameters", "properties", "required", "items"})
"""Keys of a tool and of its schema that are not optional, so they are not removed from a request."""


def refused_name(error: ModelError, optional: Collection[str], keywords: Collection[str] = ()) -> str:
    """The optional parameter or schema keyword (from `optional` or `keywords`) that the server refuses, "" if the
    refusal names none of them."""
    for path in error.params:
        first, *rest = [part for part in re.split(r"[.\[\]/]+", path) if part and not part.isdigit()] or [""]
        if first in optional:
            return first
        named = [part for part in reversed(rest) if part in optional or part in keywords]
        if named and first not in ("messages", "model"):
            return named[0]
    if not NOT_TAKEN.search(error.quote):
        return ""
    return next((name for name in (*optional, *keywords) if _is_named(name, error.quote)), "")


def _is_named(name: str, words: str) -> bool:
    """Whether the text of a refusal contains the name of a parameter; a name that may be an ordinary English word must
    be in quotes."""
    if "_" in name or name != name.lower():
        return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words) is not None
    return re.search(rf"['\"`’‘“\[]{re.escape(name)}['\"`’”\]]", words) is not None


def keywords_of(tools: Sequence[Json]) -> frozenset[str]:
    """The keywords that can be removed from the schemas of the tools: a schema without them is only less precise."""
    return frozenset(_keys(list(tools))) - STRUCTURE


def without_keywords(tools: Sequence[Json], keywords: Collection[str]) -> list[Any]:
    """The tools after `keywords` were removed from their schemas; a property that has the same name as a keyword
    stays."""
    return [_stripped(tool, keywords) for tool in tools] if keywords else list(tools)


def _keys(value: Any, *, are_names: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not are_names:
                yield key
            yield from _keys(inner, are_names=key == "properties" and not are_names)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def _stripped(value: Any, keywords: Collection[str], *, are_names: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: _stripped(inner, keywords, are_names=key == "properties" and not are_names)
            for key, inner in value.items()
            if are_names or key not in keywords
        }
    if isinstance(value, list):
        return [_stripped(inner, keywords) for inner in value]
    return value
