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
    """The whole of fits.json: `signs`, and `fits` by name."""
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
