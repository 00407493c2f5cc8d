"""What a check's output says, without what differs from run to run, so that two runs can be compared.

Called by `verify`: a check that is red on a commit and was red in the same way on its base is no failure of the change.

"In the same way" means: both runs ended by themselves with the same exit code, and what failed after is contained in
what failed before:

1. where both outputs name failing tests (`FAILING`, the formats of the usual runners), no test fails that did not;
2. where neither does, no line stands in the output after that is not there before at least as often, once that is taken
   out which means nothing (colours, times, addresses, numbers of lines, scratch paths);
3. and no number of failures or errors is larger than before.

What cannot be compared (one output names tests and the other does not, or a part of a long output is missing) counts as
another way: a regression must not pass for an old fault.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 1000
"""Signs of a line that are looked at, so that no pattern takes long."""

MOST = 5000
"""Failing tests, and different lines, that an outline keeps; it is incomplete beyond."""

FAILING = re.compile(
    r"""^(?:
        (?:FAILED|ERROR)\ (?P<pytest>\S+?::[^\[]+?(?:\[.*?\])?)(?:\ -\ .*)?         # pytest: short test summary
      | (?:FAIL|ERROR):\ (?P<unittest>[\w.]+\ \([\w.]+\).*)                           # unittest, Django
      | \s*---\ FAIL:\ (?P<go>\S+)\ \(.*                                            # go test
      | test\ (?P<cargo>.+?)\ \.\.\.\ FAILED                                        # cargo test
      | \s*(?:●|✕|✗|✘|×|✖)\ (?P<jest>.+?)(?:\ \(?[\d.]+\ ?m?s\)?)?                  # jest, vitest, ava
      | \s*not\ ok\ \d+\ (?:-\ )?(?P<tap>.+?)(?:\ \#\ time=.*)?                     # TAP: node, prove, bats, tap
      | rspec\ (?P<rspec>\./\S+).*                                                  # rspec: failed examples
      | \[ERROR\]\s+(?P<maven>[\w$.]+\.[\w$]+(?:\[.*?\])?):\d+.*                    # Maven Surefire
      | (?P<gradle>\S.*?\ >\ .+?)\ FAILED                                           # Gradle
      | \s*Failed\ (?P<dotnet>\S+)\ \[.*                                            # dotnet test
      | \d+\)\ (?P<phpunit>[\w\\]+::\w+.*)                                          # PHPUnit
      | \s*\d+\ -\ (?P<ctest>.+?)\ \((?:Failed|Timeout|SEGFAULT|Not\ Run).*\).*     # CTest
    )\s*$""",
    re.VERBOSE,
)

_COUNTS = re.compile(r"(\d+)\s+(fail|error)|\b(fail|error)(?:ure)?s\s*[=:]\s*(\d+)", re.IGNORECASE)
_PASSING = (
    (re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]"), ""),
    (re.compile(r"(?:/tmp|/var/tmp|/dev/shm)/[^\s'\":]+"), "~"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{7,64}\b"), "~"),
    (re.compile(r"\d+"), "#"),
    (re.compile(r"#(?:[.:,/ -]#)*"), "#"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Outline:
    """`failing` are the tests that are named as failed, `lines` what the output says and how often, `counts` how many
    failures and errors are told of; `whole` is False when a part of the output is missing."""

    failing: frozenset[str] = frozenset()
    lines: Mapping[str, int] | None = None
    counts: Mapping[str, int] | None = None
    whole: bool = True

    def to_dict(self) -> dict[str, Any]:
        return {
            "failing": sorted(self.failing),
            "lines": dict(self.lines or {}),
            "counts": dict(self.counts or {}),
            "whole": self.whole,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Outline:
        """From what `to_dict` wrote."""
        return cls(frozenset(record["failing"]), record["lines"], record["counts"], record["whole"])


def outline(text: str, *, whole: bool = True) -> Outline:
    """The outline of an output; with `whole` False a part of it is missing."""
    failing: set[str] = set()
    lines: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        plain = _PASSING[0][0].sub("", line[: 4 * LONGEST])[:LONGEST]
        if found := FAILING.match(plain):
            failing.add(_passing(next(name for name in found.groups() if name), keep_numbers=True))
        for number, before, after, other in _COUNTS.findall(plain):
            counts[(before or after).lower()] += int(number or other)
        lines[_passing(plain).strip()] += 1
        if len(lines) > MOST or len(failing) > MOST:
            whole = False
            break
    del lines[""]
    return Outline(frozenset(failing), dict(lines), dict(counts), whole)


def is_contained(after: Outline, before: Outline) -> bool:
    """Whether all that failed after had failed before; see the top of this page."""
    if any(number > (before.counts or {}).get(word, 0) for word, number in (after.counts or {}).items()):
        return False
    if after.failing or before.failing:
        return bool(after.failing) and after.failing <= before.failing
    if not (after.whole and before.whole):
        return False
    return all((before.lines or {}).get(line, 0) >= times for line, times in (after.lines or {}).items())


def _passing(line: str, *, keep_numbers: bool = False) -> str:
    """`line` without what differs from run to run."""
    for pattern, put in _PASSING[:3] if keep_numbers else _PASSING:
        line = pattern.sub(put, line)
    return line
