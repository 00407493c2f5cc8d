"""What a line of a command's output says: the name of a failing test, a fault, a place in a file, or nothing of these.

Structure decides: a mark of failure in front of a name or behind it, as test runners print it, a place (`src/a.py:12`),
a word for a fault.  What passed never tells, whatever its name is.  `excerpt.py` asks.
"""

from __future__ import annotations

import re

NAME, FAULT, PLACE, REST = range(4)
"""What a line says, the most telling first."""

LONGEST = 400
"""Characters of a line that are looked at."""

_WORDS = ("exception", "fatal", "panic", "assert", "undefined", "not ok", "*** ")
_SIGNS = frozenset("✕✗✘×✖●❌")

_PASSED = re.compile(
    r"""
    ^(?: ok\b | PASS(?:ED)?\b | [✓✔√☑]\s | ---\s(?:PASS|SKIP) | ===\s(?:RUN|CONT|PAUSE|NAME)\b
          | \[\s*(?:OK|PASSED|RUN|INFO|DEBUG)\s*\] | not\ ok\b.*\#\s*(?:TODO|SKIP)\b )
    | \.{3}\s*+(?i:ok|passed|skipped|ignored|expected\ failure)\b
    | \b(?:PASSED|SKIPPED|XFAIL|XPASS|Passed)\b\s*+(?:\[\s*+\d+%\]|[\d.]+\s*+sec)?\s*+$
    | ^\S+\.\w+\s[.sxX]+\s*+(?:\[\s*+\d+%\])?\s*+$
    """,
    re.VERBOSE,
)
_NONE = re.compile(r"\b0\s+(?:\w+\s)?(?:fail|error)\w*|\b(?:fail|error)\w*\s*[:=]\s*0\b", re.IGNORECASE)
"""Counts that say that nothing failed."""

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
"""What stands behind a name: a time, a share of all tests."""
_MESSAGE = re.compile(r"^(\S+\.py|\S+?::[^\[]*?(?:\[.*?\])?)\s--?\s.*$")
"""A test in pytest's form with a message behind it; elsewhere ` - ` may be part of a name."""

_PLACE = re.compile(r"\.\w{1,8}[:(]\d")
_LINE = re.compile(r"\bline \d")
_ALONE = re.compile(r"\d+:\d+\s|[\w/\\.-]+\.[A-Za-z]{1,5}:?$")
"""A place in the file of a heading before, and a heading that is a file."""
_FAULT = re.compile(
    r"\*\*\*\s|\b(?:\w*errors?|\w*exception|fail(?:s|ed|ing|ure|ures)?|fatal|panic(?:ked)?|assert\w*|undefined)\b",
    re.IGNORECASE,
)
_MILD = re.compile(r"\b(?:warning|note|info)\b\s*(?:[:\[(]|TS\d)|^\d+:\d+\s+(?:warning|info)\b", re.IGNORECASE)
"""A compiler or linter says so itself: no fault."""


def told(line: str) -> tuple[int, str]:
    """(what a line says, the name of the test that it names, or "")."""
    start = line.lstrip()
    may_fail = _may_fail(start)
    if may_fail or _may_name(start):
        if _PASSED.search(start):
            return REST, ""
        if found := _NAMED.match(start):
            return NAME, name_in(found.group(found.lastgroup or 0))
    if start.startswith("E  ") or (may_fail and not _MILD.search(start) and _FAULT.search(_NONE.sub("", start))):
        return FAULT, ""
    return (PLACE if _has_place(start) else REST), ""


def names_test(text: str) -> bool:
    """Whether a text names a failing test; its last lines are asked first, where runners sum up."""
    for line in reversed(text.split("\n")):
        start = line[:LONGEST].lstrip()
        if (_may_fail(start) or _may_name(start)) and _NAMED.match(start) and not _PASSED.search(start):
            return True
    return False


def _may_fail(start: str) -> bool:
    """A plain search: most lines of a long output say nothing, and are passed over by it."""
    low = start.lower()
    return "fail" in low or "error" in low or any(word in low for word in _WORDS)


def _may_name(start: str) -> bool:
    first = start[:1]
    if first.isdigit():
        return ") " in start[:6] or " - " in start[:12]
    return first in _SIGNS or start.startswith(("---- ", "rspec "))


def _has_place(start: str) -> bool:
    found = "::" in start or _PLACE.search(start) or _LINE.search(start) or _ALONE.match(start)
    return bool(found) and not _PASSED.search(start)


def name_in(text: str) -> str:
    """The name alone, so that two lines about one test are known as that."""
    text = _MESSAGE.sub(r"\1", text)
    return _BEHIND.sub("", _BEHIND.sub("", text)) or text
