"""One figure: a ratio, its limit, and the two numbers that it was made of."""

from __future__ import annotations

from statistics import median
from typing import Any

Figure = dict[str, Any]


def at_most(ours: float, other: float, limit: float, unit: str, what: str, **more: Any) -> Figure:
    """`ours / other` must not be over `limit`."""
    return _figure(ours / other, limit, ours / other <= limit, "at most", ours, other, unit, what, more)


def at_least(ours: float, other: float, limit: float, unit: str, what: str, **more: Any) -> Figure:
    """`other / ours` (how many times faster we are) must not be below `limit`."""
    return _figure(other / ours, limit, other / ours >= limit, "at least", ours, other, unit, what, more)


def share(ours: float, whole: float, limit: float, unit: str, what: str, **more: Any) -> Figure:
    """`ours / whole` (how much of it we keep) must not be below `limit`."""
    return _figure(ours / whole, limit, ours / whole >= limit, "at least", ours, whole, unit, what, more)


def _figure(
    ratio: float,
    limit: float,
    ok: bool,
    sense: str,
    ours: float,
    other: float,
    unit: str,
    what: str,
    more: dict[str, Any],
) -> Figure:
    return {
        "what": what,
        "ratio": short(ratio),
        "sense": sense,
        "limit": limit,
        "ok": ok,
        "ours": short(ours),
        "other": short(other),
        "unit": unit,
        **more,
    }


def short(number: float) -> float:
    """Four figures."""
    return float(f"{number:.4g}")


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of them are at or below."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


__all__ = ["Figure", "at_least", "at_most", "median", "percentile", "share", "short"]
