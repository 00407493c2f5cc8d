"""Determines the class of a line of a command's output: the name of a failing test, an error, a place in a file, or
none of these.

The form of an output line decides its class: a mark of failure before or after a name, in the forms that test runners
print; a place (`src/a.py:12`); or a word for an error. A line about a test that passed is never selected for an
excerpt.
"""

from __future__ import annotations

import re

NAME, FAULT, PLACE, REST = range(4)
"""The classes of an output line, the most important first."""

LONGEST = 400
"""The number of characters of an output line that are examined."""

_WORDS = ("exception", "fatal", "panic", "assert", "undefined", "not ok", "*** ")
_SIGNS = frozenset("✕✗✘×✖●❌")

_BEGINS_PASSED = re.compile(
    r"""
      ok\b | PASS(?:ED)?\b | [✓✔√☑]\s | ---\s(?:PASS|SKIP) | ===\s(?:RUN|CONT|PAUSE|NAME)\b
    | \[\s*(?:OK|PASSED|RUN|INFO|DEBUG)\s*\] | not\ ok\b.*\#\s*(?:TODO|SKIP)\b
    | \S+\.\w+\s[.sxX]+\s*+(?:\[\s*+\d+%\])?\s*+$
    """,
    re.VERBOSE,
)
_ENDS_PASSED = re.compile(
    r"""
      \.\.\.(?!\.)\s*+(?i:ok|passed|skipped|ignored|expected\ failure)\b
    | P(?<=\bP)(?:ASSED|assed)\b (?:\s*+(?:\[\s*+\d+%\]|[\d.]+\s*+sec)?\s*+$)
    | S(?<=\bS)KIPPED\b (?:\s*+(?:\[\s*+\d+%\]|[\d.]+\s*+sec)?\s*+$)
    | X(?<=\bX)(?:FAIL|PASS)\b (?:\s*+(?:\[\s*+\d+%\]|[\d.]+\s*+sec)?\s*+$)
    """,
    re.VERBOSE,
)
_ARE_NONE = r"\w*\s*[:=]\s*0\b"
_NONE = re.compile(
    rf"0(?<=\b0)\s++(?:\w+\s)?(?i:fail|error)\w*|f(?<=\bf)(?i:ail){_ARE_NONE}|F(?<=\bF)(?i:ail){_ARE_NONE}"
    rf"|e(?<=\be)(?i:rror){_ARE_NONE}|E(?<=\bE)(?i:rror){_ARE_NONE}"
)
"""Matches counts in the output that show that nothing failed."""

_NAMED = re.compile(
    r"""
    (?:
        FAIL(?:ED|URE)?(?::\s*|\s+)(?P<fail>[^\s(:].*)             # pytest, unittest, go (a package), jest, vitest
      | ERROR:?\s+(?P<error>\S+::\S.*|\S+\s\([\w.]+\).*|[\w./-]+\.py\b.*)  # pytest, unittest: no test was run
      | \[\s*FAILED\s*\]\s(?P<gtest>[\w/.]+)                       # GoogleTest
      | ---\sFAIL:\s(?P<go>\S+)                                    # go test
      | not\ ok\b\s*+\d*\s*+(?:-\s*+)?(?P<tap>\S.*)                # TAP
      | [✕✗✘×✖●❌]\s+(?P<sign>\S.*)                                # jest, vitest, mocha, node
      | \d+\)\s(?P<number>\S.*)                                    # mocha, rspec, PHPUnit
      | rspec\s(?P<rspec>\./\S+)                                   # rspec: failed examples
      | ----\s(?P<cargo>\S+)\sstd(?:out|err)\s----                 # cargo test
      | \d+\s-\s(?P<ctest>\S.*?)\s\([A-Z][\w ]*\)\s*$              # CTest
      | \[ERROR\]\s+(?P<maven>[\w$]+(?:\.[\w$]+)+(?:\[.*?\])?):\d  # Maven Surefire
      | (?P<before>\S.*?)(?:\.|(?<!\s)\s)\s*+(?:-\s|\*{3})?(?:FAILED|FAIL|ERROR|Failed|<<<\s(?:FAILURE|ERROR)!)
        \s*+(?:\[\s*+\d+%\]|[\d.]+\s*+sec)?\s*+$                   # cargo, gradle, unittest -v, pytest -v, CTest, Maven
    )
    """,
    re.VERBOSE,
)
_BEHIND = re.compile(r"(?<!\s)\s*+[(\[]\s*+[\d.]++\s*+(?:m?s|sec|%)?\s*+[)\]]\s*+$|(?<![\s.])[\s.]++$")
"""Matches the text that may follow the name of a test: a time, or a share of all tests."""
_MESSAGE = re.compile(
    r"""^( \S+\.py
         | \S[^\s:]*+(?>(?::(?!:)[^\s:]*+)*)::[^\s\[]*+(?>(?:\s(?!--?\s)[^\s\[]*+)*)
           (?:\[[^\]]*+(?>(?:\](?!\s--?\s)[^\]]*+)*)\])?
         | \S(?:[^\s\[]*+\[)+?[^\s:\[]*+(?>(?::(?!:)[^\s:\[]*+)*)::[^\s\[]*+(?>(?:\s(?!--?\s)[^\s\[]*+)*)
       )\s--?\s.*$""",
    re.VERBOSE,
)
"""Matches the name of a test in pytest's form with a message after it; in other forms ` - ` may be part of a name.

Parameters in brackets in the name of a test are searched for only at the first bracket after the first `::`: if no
match begins there, none begins at a later bracket."""

_PLACE = re.compile(r"\.\w{1,8}[:(]\d")
_LINE = re.compile(r"\bline \d")
_ALONE = re.compile(r"\d+:\d+\s|[\w/\\.-]+\.[A-Za-z]{1,5}:?$")
"""Matches a place in a file that an earlier heading names, or a heading that is the name of a file."""
_FAULT = re.compile(
    r"\*\*\*\s|(?:errors?|exception)\b|\b(?:(?:fail(?:s|ed|ing|ure|ures)?|fatal|panic(?:ked)?|undefined)\b|assert)",
    re.IGNORECASE,
)
_MILD = re.compile(r"\b(?:warning|note|info)\b\s*(?:[:\[(]|TS\d)|^\d+:\d+\s+(?:warning|info)\b", re.IGNORECASE)
"""Matches a line that a compiler or linter marks as a warning or note; it does not count as an error."""


def parse_line(line: str) -> tuple[int, str]:
    """Returns (the class of a line, the name of the test in it or "")."""
    start = line.lstrip()
    may_fail = _may_fail(start)
    if may_fail or _may_name(start):
        if _passed(start):
            return REST, ""
        if found := _NAMED.match(start):
            return NAME, name_in(found.group(found.lastgroup or 0))
    if start.startswith("E  ") or (may_fail and not _MILD.search(start) and _FAULT.search(_NONE.sub("", start))):
        return FAULT, ""
    return (PLACE if _has_place(start) else REST), ""


def names_test(text: str) -> bool:
    """Whether a text contains the name of a failing test.

    The last lines are tried first, because test runners print a summary there.
    """
    for line in reversed(text.split("\n")):
        start = line[:LONGEST].lstrip()
        if (_may_fail(start) or _may_name(start)) and _NAMED.match(start) and not _passed(start):
            return True
    return False


def _may_fail(start: str) -> bool:
    """Whether a line may be about a failure: a fast search that excludes most lines of a long output before their class
    is determined."""
    low = start.lower()
    return "fail" in low or "error" in low or any(word in low for word in _WORDS)


def _may_name(start: str) -> bool:
    first = start[:1]
    if first.isdigit():
        return ") " in start[:6] or " - " in start[:12]
    return first in _SIGNS or start.startswith(("---- ", "rspec "))


def _has_place(start: str) -> bool:
    found = "::" in start or _PLACE.search(start) or _LINE.search(start) or _ALONE.match(start)
    return bool(found) and not _passed(start)


def _passed(start: str) -> bool:
    return bool(_BEGINS_PASSED.match(start) or _ENDS_PASSED.search(start))


def name_in(text: str) -> str:
    """The name of a test without a message or time, so that all lines about one test give the same name."""
    text = _MESSAGE.sub(r"\1", text)
    return _BEHIND.sub("", _BEHIND.sub("", text)) or text
