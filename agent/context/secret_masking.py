"""Masks declared secrets in JSON values, for stores that record what a model reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agent.security.redact import MASK
from agent.store.storable_text import dumps

if TYPE_CHECKING:
    from agent.values import Redact


def masked(value: Any, redact: Redact) -> Any:
    """`value` with all its texts masked, keys included; a number that is a secret becomes the mask."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key) if isinstance(key, str) else key: masked(inner, redact) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner, redact) for inner in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if redact(str(value)) == str(value) else MASK
    return value


def masked_text(text: str, redact: Redact) -> str:
    """`text` with secrets masked; if it is JSON, the result is valid JSON."""
    plain = redact(text)
    if plain == text:
        return text
    try:
        value = orjson.loads(text)
    except ValueError:
        return plain
    return dumps(masked(value, redact)).decode()


def unmasked(text: str) -> str:
    """The masker of a store without a configuration, which returns the text unchanged."""
    return text
