"""Merges the provider-specific fields of an answer from the chunks of its stream, and leaves out fields that cannot be
stored.

Provider-specific fields are, for example, reasoning with a signature, or the signature of a tool call: fields that the
server expects back with the message in later requests (docs/wire.md).  `opaque_fields.py` does not interpret these
fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.store.storable_text import fit_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.values import Json

DEEPEST = 100  # maximum depth of nested objects and lists; orjson allows 254 levels, and the stored record adds some
NAMES = frozenset(("type", "id", "index", "format", "name", "role", "object"))
"""Keys that identify an item inside a provider-specific field; each chunk of the item repeats the values of these keys,
so the values are replaced and not joined."""
REPEATED = 16  # minimum length of a fragment of a stream that counts as a repetition if it equals all text before it


def merge(whole: Json, piece: Mapping[str, Any]) -> None:
    """Add one chunk to `whole`: texts are joined (not those of NAMES, and not repetitions), list items with the same
    `index` are merged and others appended, objects are merged, other values are replaced; a null adds nothing."""
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
    """Whether two list items are fragments of one item: they are if they have the same `index` and no different values
    of `type`."""
    kinds = [kind for one in (known, item) if (kind := one.get("type")) is not None]
    return bool(known.get("index") == item.get("index") and (len(kinds) < 2 or kinds[0] == kinds[1]))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items() if inner is not None}
    return value


def recordable(fields: Mapping[str, Any]) -> Json:
    """The entries of `fields` that can be stored and sent back: those that are not nested too deeply, with surrogates
    replaced."""
    return {str(key): fit_json(value) for key, value in fields.items() if is_shallow(value)}


def shallow(fields: Mapping[str, Any]) -> Json:
    """The entries of `fields` that are not nested too deeply; deeper ones must not be merged, since `merge` is
    recursive."""
    return {key: value for key, value in fields.items() if is_shallow(value)}


def is_shallow(value: Any) -> bool:
    """Whether objects and lists in `value` are nested at most DEEPEST levels."""
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
