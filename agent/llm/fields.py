"""Fields of an answer that only its server understands: put together from chunks, and made fit to be kept.

Reasoning with a signature, a signature beside a call, and whatever else a server will want back with the message
(docs/wire.md).  Nothing here knows what a field means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.store.text import fit_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.values import Json

DEEPEST = 100  # objects and lists inside each other; orjson writes 254, and a record has some of its own
NAMES = frozenset(("type", "id", "index", "format", "name", "role", "object"))
"""Inside a field these say what it is; each chunk repeats them."""
REPEATED = 16  # characters of a piece that is taken for a repetition when it is all there is so far


def merge(whole: Json, piece: Mapping[str, Any]) -> None:
    """Add what one chunk has: texts are joined, lists go by the `index` of their items, objects are merged.  A null
    adds nothing."""
    for key, value in piece.items():
        if value is None:
            continue
        before = whole.get(key)
        if isinstance(before, str) and isinstance(value, str):
            again = value == before and len(value) >= REPEATED
            whole[key] = value if key in NAMES else before if again else before + value
        elif isinstance(before, list) and isinstance(value, list):
            _extend(before, value)
        elif isinstance(before, dict) and isinstance(value, dict):
            merge(before, value)
        elif isinstance(value, list):
            whole[key] = []
            _extend(whole[key], value)
        else:
            whole[key] = _copy(value)


def _extend(items: list[Any], more: list[Any]) -> None:
    for item in more:
        index = item.get("index") if isinstance(item, dict) else None
        known = next((one for one in items if index is not None and isinstance(one, dict) and _is_one(one, item)), None)
        if known is not None:
            merge(known, item)
        else:
            items.append(_copy(item))


def _is_one(known: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether two items are pieces of one: the same index, and no other type."""
    kinds = {one.get("type") for one in (known, item)} - {None}
    return bool(known.get("index") == item.get("index") and len(kinds) < 2)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items() if inner is not None}
    return value


def sound(fields: Mapping[str, Any]) -> Json:
    """The fields that can be recorded and sent: plain JSON, not nested beyond measure."""
    return {str(key): fit_json(value) for key, value in fields.items() if is_shallow(value)}


def is_shallow(value: Any) -> bool:
    """Whether at most DEEPEST objects and lists stand inside each other."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False
