"""Removes the findings of a vote that name a place which does not exist: neither a line of the diff nor a known test.

A diff shows added and unchanged lines, which are numbered as in the new file, and removed lines, which are numbered as
in the old file.  A finding cites a file of which the diff shows no line (binary, only renamed, only with another mode)
by line 0.

A name of a file with unusual characters has several forms: the form that git quotes, the form that the reviewers see
(hidden characters are escaped), and the real name. A finding may use each form of a file's name; otherwise nobody could
cite a file with a strange name, and no veto would count for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent.gitcmd import unquoted
from agent.security.hidden_diff_lines import show_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.consensus.votes import Finding, VotePayload

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Citable:
    """The places that a finding may name: `places` maps (a form of the file's name, line) to the name as the reviewers
    see it; `tests` are ids of tests."""

    places: Mapping[tuple[str, int], str] = field(default_factory=dict)
    tests: frozenset[str] = frozenset()

    @classmethod
    def from_diff(cls, diff: str, tests: Iterable[str] = ()) -> Citable:
        """The places in the output of `git diff`."""
        places: dict[tuple[str, int], str] = {}
        for (real, line), (seen, _) in zip(_places(diff), _places(show_hidden(diff).text), strict=True):
            shown = _inner(seen)
            for form in {shown, _name(seen), _name(real)}:
                places[form, line] = shown
        return cls(places, frozenset(tests))

    def resolve_citation(self, finding: Finding) -> Finding | None:
        """The finding with one normalised form of its place: the file's name as reviewers see it, or a test with line
        0; None if the place does not exist."""
        name = self.places.get((_without_dot_prefix(finding.file), finding.line))
        if name is not None:
            return replace(finding, file=name)
        return replace(finding, line=0) if finding.file in self.tests else None


@dataclass(frozen=True, slots=True)
class CheckedVote:
    """A vote without the findings that name a place which does not exist; `struck` is the number of removed
    findings."""

    vote: VotePayload
    struck: int = 0

    @property
    def cited(self) -> frozenset[tuple[str, int]]:
        """The places (file, line) of the remaining findings."""
        return frozenset((one.file, one.line) for one in self.vote.findings)


def check_citations(vote: VotePayload, citable: Citable) -> CheckedVote:
    """Remove the findings that name a place which does not exist; the places of the others get one normalised form."""
    kept = tuple(found for one in vote.findings if (found := citable.resolve_citation(one)) is not None)
    return CheckedVote(replace(vote, findings=kept), len(vote.findings) - len(kept))


def diff_lines(diff: str) -> Iterator[tuple[str, int]]:
    """(file, line) of each line that a diff shows.  The header of a hunk says how many lines follow, and exactly these
    lines are read as content, even if one of them looks like a header of a diff."""
    return ((_name(path), line) for path, line in _places(diff) if line)


def _places(diff: str) -> Iterator[tuple[str, int]]:
    """(file as the diff writes it, with its quotes and prefix; line number, 0 for a file without a line) of each place
    in a diff."""
    old_path = new_path = bare = ""
    old = new = old_left = new_left = 0
    for line in diff.split("\n"):
        if old_left > 0 or new_left > 0:
            sign = line[:1]
            if line.startswith("\\ "):  # the line "\ No newline at end of file", which git writes, is no content
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
        if line.startswith("diff --git "):
            if bare:
                yield bare, 0
            bare = _second(line[len("diff --git ") :].rstrip("\r"))
        elif line.startswith("rename to "):
            bare = _prefixed(line[len("rename to ") :].rstrip("\r"))
        elif line.startswith("--- "):
            old_path = _written(line[4:])
        elif line.startswith("+++ "):
            new_path, bare = _written(line[4:]), ""
            old_path = new_path if old_path == "/dev/null" else old_path
            new_path = old_path if new_path == "/dev/null" else new_path
        elif (hunk := _HUNK.match(line)) is not None:
            old, new = int(hunk[1]), int(hunk[3])
            old_left = int(hunk[2]) if hunk[2] is not None else 1
            new_left = int(hunk[4]) if hunk[4] is not None else 1
    if bare:
        yield bare, 0


def _second(names: str) -> str:
    """The name of the file in a line `diff --git a/path b/path` with two equal names; for a renamed file, a line
    `rename to` gives the name."""
    return names[(len(names) + 1) // 2 :]


def _prefixed(name: str) -> str:
    """The file name in a line `rename to` of a diff, with the prefix `b/` that the names in other lines have."""
    return f'"b/{name[1:]}' if name.startswith('"') else f"b/{name}"


def _written(text: str) -> str:
    """The file name in a line `--- a/path` or `+++ b/path` of a diff, without the tab that git writes after a name with
    blanks."""
    return text.rstrip("\r").removesuffix("\t")


def _name(written: str) -> str:
    """The file's real name, without git's quotes, escapes and prefix."""
    return _without_prefix(unquoted(written))


def _inner(written: str) -> str:
    """The file name with git's escapes, without prefix and quotes."""
    return _without_prefix(written[1:-1] if len(written) > 1 and written[0] == written[-1] == '"' else written)


def _without_prefix(path: str) -> str:
    return path[2:] if path.startswith(("a/", "b/")) else path


def _without_dot_prefix(path: str) -> str:
    """The path without a leading `./`, which reviewers sometimes write; no other prefix is removed."""
    return path.removeprefix("./")
