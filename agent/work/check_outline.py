"""Extracts the part of a check's output that can be compared with that of another run, without details that vary
between runs.

A check that fails on a commit, and failed in the same way on its base commit, is not a failure of the change.

A failure counts as the same if both runs ended by themselves with the same exit code, and the failures after the change
are contained in the failures before it:

1. if both outputs name failing tests (`FAILING`, the formats of common runners): every test that fails after the change
   also failed before it;
2. if neither output names failing tests: every line of the output after the change occurs at least as often in the
   output before it, once meaningless parts are removed (colours, times, addresses, line numbers, scratch paths);
3. whether the outputs name failing tests or not: no reported number of failures or errors is larger than before the
   change.

Outputs that cannot be compared (only one of them names tests, or neither does and a part of one is missing) count as
different: a new failure must not pass as an old one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 1000
"""Number of characters of an output line that are examined, so that the time of a pattern is bounded."""

MOST = 5000
"""The maximum number of failing tests, and of different lines, in an outline; if an output has more, its outline is
incomplete."""

FAILING = re.compile(
    r"""^(?:
        (?:FAILED|ERROR)\ (?P<pytest>                                                 # pytest: short test summary
            \S[^\s:]*+(?>(?::(?!:[^\[])[^\s:]*+)*)::[^\[] (?: (?=\s*+$)
                | [^\s\[]*+(?>(?:(?!\ -\ |(?<!\s)\s*+$)\s[^\s\[]*+)*)
                  (?:\[[^\]]*+(?>(?:\](?!\ -\ |\s*+$)[^\]]*+)*)\])? (?=\ -\ |\s*+$) )
          | \S(?:[^\s\[]*+\[)+?[^\s:\[]*+(?>(?::(?!:[^\[])[^\s:\[]*+)*)::[^\[] (?: (?=\s*+$)
                | [^\s\[]*+(?>(?:(?!\ -\ |(?<!\s)\s*+$)\s[^\s\[]*+)*) (?=\ -\ |\s*+$) ) )(?:\ -\ .*)?
      | (?:FAIL|ERROR):\ (?P<unittest>[\w.]+\ \([\w.]+\).*)                           # unittest, Django
      | \s*---\ FAIL:\ (?P<go>\S+)\ \(.*                                            # go test
      | test\ (?P<cargo>.+?)\ \.\.\.\ FAILED                                        # cargo test
      | \s*(?:●|✕|✗|✘|×|✖)\ (?P<jest>. (?: (?=\s*+$)                             # jest, vitest, ava
                | .*?(?=(?:\ \(?[\d.]++\ ?m?s\)?|(?<!\s))\s*+$) ) ).*
      | \s*not\ ok\ \d+\ (?:-\ )?(?P<tap>. (?: (?=\s*+$)                     # TAP: node, prove, bats, tap
                | .*?(?=\ \#\ time=|(?<!\s)\s*+$) ) ).*
      | rspec\ (?P<rspec>\./\S++).*                                                 # rspec: failed examples
      | \[ERROR\]\s+(?P<maven>[\w$.]+\.[\w$]+(?:\[.*?\])?):\d+.*                    # Maven Surefire
      | (?P<gradle>\S(?>.*?\ >\ ).+?)\ FAILED                                         # Gradle
      | \s*Failed\ (?P<dotnet>\S+)\ \[.*                                            # dotnet test
      | \d+\)\ (?P<phpunit>[\w\\]+::\w+.*)                                          # PHPUnit
      | \s*\d+\ -\ (?P<ctest>(?>.+?(?=\ \((?:Failed|Timeout|SEGFAULT|Not\ Run))))\ \([^)]*+\).*  # CTest
    )\s*$""",
    re.VERBOSE,
)
"""In the pattern FAILING, the text before or after a name is matched at few positions: at the first of several
equivalent ones, and at the first character of a run of spaces. If the pattern were tried at every position of a line, a
line full of spaces could take quadratic time."""

_COUNTS = re.compile(r"(?<!\d)(\d++)\s++(fail|error)|\b(fail|error)(?:ure)?s\s*+[=:]\s*+(\d++)", re.IGNORECASE)
_PASSING = (
    (re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]"), ""),
    (re.compile(r"(?:/tmp|/var/tmp|/dev/shm)/[^\s'\":]+"), "~"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{7,64}\b"), "~"),
    (re.compile(r"\d+"), "#"),
    (re.compile(r"#(?>(?:[.:,/ -]#)+)"), "#"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Outline:
    """`failing` are the tests reported as failed, `lines` maps each line of the output to its number of occurrences,
    and `counts` maps "fail" and "error" to the reported numbers; `whole` is False if a part of the output is missing.
    """

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
    def from_dict(cls, record: Mapping[str, Any]) -> Outline:
        """Make an outline of a check's output from a result of `to_dict`."""
        return cls(frozenset(record["failing"]), record["lines"], record["counts"], record["whole"])


def outline(text: str, *, whole: bool = True) -> Outline:
    """The outline of a check's output; `whole` is False if a part of the output is missing."""
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
    """Whether all failures in the outline `after` are also in the outline `before`, by the rules in the docstring of
    this module."""
    if any(number > (before.counts or {}).get(word, 0) for word, number in (after.counts or {}).items()):
        return False
    if after.failing or before.failing:
        return bool(after.failing) and after.failing <= before.failing
    if not (after.whole and before.whole):
        return False
    return all((before.lines or {}).get(line, 0) >= times for line, times in (after.lines or {}).items())


def _passing(line: str, *, keep_numbers: bool = False) -> str:
    """An output line without the parts that vary between runs."""
    for pattern, put in _PASSING[:3] if keep_numbers else _PASSING:
        line = pattern.sub(put, line)
    return line
