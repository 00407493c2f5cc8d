"""The weights of the estimate, read from fits.json, which `scripts/fit_estimate` made (docs/counting.md)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from agent.tokens.byteclass import Fit

FILE = "fits.json"


@cache
def document() -> dict[str, Any]:
    """The content of fits.json: `signs`, a text of all characters that have a rate, and `fits`, which maps the name of
    a family of vocabularies to its weights."""
    found: dict[str, Any] = orjson.loads((files("agent.tokens") / FILE).read_bytes())
    return found


@cache
def fit_named(name: str) -> Fit:
    """The weights for one family of vocabularies; raises KeyError for a name that is not in fits.json."""
    found = document()
    one = found["fits"][name]
    rates = {sign: rate / 1000 for sign, rate in zip(found["signs"], one["runs"], strict=True)}
    pairs, near, far = (bytes.fromhex("".join(one[part])) for part in ("pairs", "near", "far"))
    return Fit(name, pairs, near, far, rates)
