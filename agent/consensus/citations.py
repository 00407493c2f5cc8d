"""Removes the findings of a vote that name a place which does not exist: neither a line of the diff nor a known test.

A diff shows added and unchanged lines, which are numbered as in the new file, and removed lines, which are numbered as
in the old file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.consensus.votes import Finding, VotePayload

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Citable:
    """The places that a finding may name: lines of the diff as (file, line), and ids of tests."""

    lines: frozenset[tuple[str, int]] = frozenset()
    tests: frozenset[str] = frozenset()

    @classmethod
    def of(cls, diff: str, tests: Iterable[str] = ()) -> Citable:
        """The places in the output of `git diff`."""
        return cls(frozenset(diff_lines(diff)), frozenset(tests))

    def has(self, finding: Finding) -> bool:
        """Whether the place of a finding exists."""
        return (_plain(finding.file), finding.line) in self.lines or finding.file in self.tests


@dataclass(frozen=True, slots=True)
class CheckedVote:
    """A vote without the findings that name a place which does not exist; `struck` is the number of removed
    findings."""

    vote: VotePayload
    struck: int = 0

    @property
    def cited(self) -> frozenset[tuple[str, int]]:
        """The places (file, line) of the remaining findings."""
        return frozenset((_plain(one.file), one.line) for one in self.vote.findings)


def check_citations(vote: VotePayload, citable: Citable) -> CheckedVote:
    """Remove the findings that name a place which does not exist."""
    kept = tuple(one for one in vote.findings if citable.has(one))
    return CheckedVote(replace(vote, findings=kept), len(vote.findings) - len(kept))


def diff_lines(diff: str) -> Iterator[tuple[str, int]]:
    """(file, line) of each line that a diff shows.  The header of a hunk says how many lines follow, and so many are
    read as content, even if one of them looks like a header of a diff."""
    old_path = new_path = ""
    old = new = old_left = new_left = 0
    for line in diff.split("\n"):
        if old_left > 0 or new_left > 0:
            sign = line[:1]
            if sign == "\\":
                continue
            if sign == "+":
                yield new_path, new
                new, new_left = new + 1, new_left - 1
            elif sign == "-":
                yield old_path, old
                old, old_left = old + 1, old_left - 1
            else:
                yield new_path, new
                old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
            continue
        if line.startswith("--- "):
            old_path = _path(line[4:], "a/")
        elif line.startswith("+++ "):
            new_path = _path(line[4:], "b/")
            old_path = new_path if old_path == "/dev/null" else old_path
            new_path = old_path if new_path == "/dev/null" else new_path
        elif (hunk := _HUNK.match(line)) is not None:
            old, new = int(hunk[1]), int(hunk[3])
            old_left = int(hunk[2]) if hunk[2] is not None else 1
            new_left = int(hunk[4]) if hunk[4] is not None else 1


def _path(text: str, prefix: str) -> str:
    """The path in a line `--- a/path` or `+++ b/path`, without the prefix, the quotes, and the tab that git writes
    after a name with blanks."""
    path = text.rstrip("\r").removesuffix("\t")
    if path.startswith('"') and path.endswith('"'):
        path = path[1:-1]
    return path.removeprefix(prefix)


def _plain(path: str) -> str:
    """The path without a leading `./`, which reviewers sometimes write; no other prefix is removed."""
    return path.removeprefix("./")
