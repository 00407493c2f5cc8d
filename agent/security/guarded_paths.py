"""Decides which paths of a change stop its publication, and which are listed for the reviewer.

`guarded_paths.py` checks names of paths only, never the file system. A person may change files at the paths that stop a
publication; this program does not publish its own change of such a file. The rules are in `path_rules.py`; the operator
adds to them by `policy.refuse` and `policy.look`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from agent.globs import alternatives, first_of, matcher
from agent.security.path_rules import LOOKED_AT, REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.security.path_rules import PathRule

    Match = Callable[[str], str]

# Matches `.git` and names that Windows or macOS treat as `.git`: 8.3 names, streams, trailing dots and spaces.
_GIT = re.compile(r"(?:\.git|git~[0-9]+)(?:[. ]*|:.*)", re.IGNORECASE)

_NAME = re.compile(r"(?:\*\*/[^*?\[/]+/)?[^*?\[/]+")
_FOLDER = re.compile(r"\*\*/([^*?\[/]+)/\*\*")
"""Patterns of paths in the forms `name`, `**/folder/name` and `**/folder/**` are matched by a lookup in a dict instead
of a search."""

BARE = ("head", "objects", "refs")
"""Git recognises a folder with the entries HEAD, objects and refs as a repository; a file `commondir` replaces the last
two entries (gitrepository-layout(5))."""
PARTS = frozenset({*BARE, "commondir", "config", "config.worktree", "hooks", "info", "packed-refs"})
"""The first path components, inside a repository folder, that git reads."""


def guarded(
    paths: Iterable[str], bare: Iterable[str] = (), *, refuse: tuple[str, ...] = (), look: tuple[str, ...] = ()
) -> list[str]:
    """Findings that refuse a publication, in the order of `paths`, then of `bare`: `PA-02 .github/workflows/ci.yml is a
    pipeline file …`. Paths are relative with `/` between parts, as `git diff --name-only -z` lists them.

    `bare` are folders that git treats as a repository (`is_bare`).  `refuse` and `look` are the patterns in the
    operator's `policy.refuse` and `policy.look`.  A path that matches `look` is published and listed, unless it also
    matches `refuse`, is unsafe, or belongs to git.
    """
    found = []
    refused, looked_at, ours = _of_operator(refuse), _of_operator(look), _of_groups(REFUSED)
    for path in paths:
        plain = _folded(path)
        if not plain or plain.startswith("/") or ".." in plain.split("/") or _has_controls(path):
            found.append(f"PA-07 {path!r} is not a safe path")
        elif any(_GIT.fullmatch(part) for part in plain.split("/")):
            found.append(f"PA-01 {path} is taken for a git directory")
        elif pattern := refused(plain):
            found.append(f"PA-11 {path} fits {pattern!r} of `policy.refuse`")
        elif not looked_at(plain) and (said := ours(plain)):
            found.append(_sentence(path, said))
    return found + [
        f"PA-10 {folder} is taken for a repository by git, which runs what its config names"
        for folder in bare
        if not looked_at(f"{_folded(folder)}/head")
    ]


def notable(paths: Iterable[str], *, look: tuple[str, ...] = ()) -> list[str]:
    """Findings about `paths` for the reviewer of the change; these findings do not refuse a publication."""
    found = []
    looked_at, ours, others = _of_operator(look), _of_groups(REFUSED), _of_groups(LOOKED_AT)
    for path in paths:
        plain = _folded(path)
        said = ours(plain) or others(plain)
        if pattern := looked_at(plain):
            more = f"; it {said.partition(' ')[2]}" if said else ""
            found.append(f"PA-12 {path} fits {pattern!r} of `policy.look`{more}")
        elif said:
            found.append(_sentence(path, said))
    return found


def may_be_bare(paths: Iterable[str]) -> list[str]:
    """The folders below the root, sorted, in which one of `paths` has an entry with a name from PARTS, so that git may
    treat the folder as a repository."""
    found = set()
    for path in paths:
        parts = path.split("/")
        found |= {"/".join(parts[:at]) for at in range(1, len(parts)) if _folded(parts[at]) in PARTS}
    return sorted(found)


def is_bare(names: Iterable[str]) -> bool:
    """Whether git treats a folder with entries of these names as a repository, on any file system."""
    folded = {_folded(name) for name in names}
    return folded.issuperset(BARE) or folded.issuperset(("head", "commondir"))


def _sentence(path: str, said: str) -> str:
    rule, _, why = said.partition(" ")
    return f"{rule} {path} {why}"


@cache
def _of_groups(groups: tuple[PathRule, ...]) -> Match:
    """Return a function that maps a path to the rule and reason of a group that matches it, or to "". A pattern of a
    name has precedence over a pattern of a folder, and both over any other pattern.

    Most patterns of paths have no wildcard except for the folders around a name; a lookup in a dict replaces the search
    for these patterns."""
    names: dict[str, str] = {}
    folders: dict[str, str] = {}
    wild: dict[str, str] = {}
    for group in groups:
        said = f"{group.rule} {group.why}"
        for pattern in chain.from_iterable(alternatives(one.casefold()) for one in group.patterns):
            name, folder = _NAME.fullmatch(pattern), _FOLDER.fullmatch(pattern)
            if name is not None:
                names.setdefault(pattern, said)
            elif folder is not None:
                folders.setdefault(folder[1], said)
            else:
                wild.setdefault(pattern, said)
    first = first_of(wild)

    def match(path: str) -> str:
        *above, name = parts = path.split("/")
        said = names.get(name) or (names.get(f"**/{above[-1]}/{name}") if above else "")
        said = said or next((folders[part] for part in parts if part in folders), "")
        return said or wild.get(first(path), "")

    return match


@cache
def _of_operator(patterns: tuple[str, ...]) -> Match:
    """Return a function that maps a path to the first pattern that matches it or a folder above it, or to ""."""
    all_of_them = [(matcher(_folded(pattern)), _is_of_root(pattern), pattern) for pattern in patterns]

    def match(path: str) -> str:
        above = list(accumulate(path.split("/"), "{}/{}".format))
        for fits, of_root, pattern in all_of_them:
            if any(fits(one) for one in (above[:1] if of_root else above)):
                return pattern
        return ""

    return match


def _is_of_root(pattern: str) -> bool:
    """Whether the pattern names an entry of the root only: `/Makefile`."""
    return pattern.startswith("/") and "/" not in pattern.strip("/")


def _folded(path: str) -> str:
    """A path in the form in which the most lenient file system interprets it: without ignorable characters, composed,
    with one kind of slash and one case."""
    text = "".join(letter for letter in path if unicodedata.category(letter) not in ("Cf", "Cc", "Cn"))
    return unicodedata.normalize("NFKC", text).replace("\\", "/").casefold()


def _has_controls(path: str) -> bool:
    return any(unicodedata.category(letter) == "Cc" for letter in path)
