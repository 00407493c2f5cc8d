"""CPU time of each pattern on a megabyte of its worst input, made of the pattern itself (tests/worst_inputs.py).

Each pattern is used as the program uses it: searched, split, replaced.  What is known to read less than a megabyte
(`BOUNDED` of tests/unit/test_patterns.py) is measured with as much as it reads, and what reads lines with a megabyte of
the longest.  All that take over the limit are named on stderr, with what their input begins with.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.figures import at_most

sys.path[:0] = ["tests", "tests/unit"]
import test_patterns as rule  # noqa: E402 - it lies among the tests
import worst_inputs  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

ALLOWED = 50.0  # ms
TRIES = 5  # of which the least counts
LIMIT = 2.0  # seconds of CPU that one try may take


def measure() -> dict[str, Any]:
    times = sorted(_times(), reverse=True)
    over = [one for one in times if one[0] > ALLOWED]
    for spent, name, text in over:
        print(f"bench:   {spent:8.1f} ms {name} {text[:24]!r}", file=sys.stderr, flush=True)
    return {
        "patterns.slowest": at_most(times[0][0], ALLOWED, 1.0, "ms", f"slowest on 1 MiB: {times[0][1]}"),
        "patterns.over": at_most(len(over), len(times), 0.0, "patterns", "those that take over 50 ms"),
    }


def _times() -> Iterator[tuple[float, str, Any]]:
    """(milliseconds, least of five, name, worst input) of each pattern."""
    for room in worst_inputs.rooms():
        for met in worst_inputs.patterns("agent", room):
            if rule.fit(met.name, rule.OWN) or rule.fit(met.name, rule.ELSEWHERE):
                continue
            bound = rule.fit(met.name, rule.BOUNDED) or rule.Bound(rule.MEGABYTE, 1, "")
            times = min(bound.times or rule.MEGABYTE, rule.MEGABYTE / bound.size)
            try:
                text = worst_inputs.worst(met, min(rule.SHORT, bound.size // 8), rule.TRIED, rule.MOST, LIMIT)
                with worst_inputs.at_most(3 * LIMIT):
                    spent = worst_inputs.least(met, worst_inputs.grown(text, bound.size), TRIES)
                    yield 1000 * times * spent, met.name, text
            except worst_inputs.TooSlow:
                yield 1000 * LIMIT, met.name, ""
