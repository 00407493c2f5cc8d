"""Reads a change out of a repository for the reviewers: the diff, the code around it, and the repository's rules.

The repository's rules are read from the commit before the change, since the change could have rewritten them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.consensus.citations import diff_lines
from agent.consensus.errors import BudgetExceeded
from agent.gitcmd import git
from agent.work import changes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md")
AROUND = 30
"""Number of lines before and after each line of the diff that the reviewer `upkeep` sees of the new file."""
MOST = 1 << 20
"""Maximum size of a diff, or of a file that is read, in bytes."""


def diff_of(git_dir: Path, old: str, new: str) -> str:
    """The diff between two commits as text.

    Raises BudgetExceeded if the diff is longer than MOST bytes: reviewers do not vote on a change of which they would
    see only a part.
    """
    data = bytearray()
    for chunk in changes.diff(git_dir, old, new, most=MOST + 1):
        data += chunk
        if len(data) > MOST:
            raise BudgetExceeded(f"the change is longer than {MOST >> 20} MiB, and reviewers see a change whole or not")
    return data.decode("utf-8", "replace")


def rules_of(git_dir: Path, commit: str) -> str:
    """The repository's rule files (RULES) at a commit, each below a heading with its name."""
    found = ((name, _file(git_dir, commit, name)) for name in RULES)
    return "\n\n".join(f"# {name}\n\n{text.strip()}" for name, text in found if text.strip())


def code_around(git_dir: Path, commit: str, diff: str) -> str:
    """The lines of the new files that are at most AROUND lines away from a line that the diff shows, with their
    numbers."""
    places: dict[str, set[int]] = {}
    for path, line in diff_lines(diff):
        places.setdefault(path, set()).update(range(max(1, line - AROUND), line + AROUND + 1))
    return "\n\n".join(
        part for path, wanted in places.items() if (part := _numbered(path, _file(git_dir, commit, path), wanted))
    )


def _numbered(path: str, text: str, wanted: set[int]) -> str:
    lines = list(_selected_parts(text, wanted))
    return f"# {path}\n" + "\n".join(lines) if lines else ""


def _selected_parts(text: str, wanted: set[int]) -> Iterator[str]:
    last = 0
    for number, line in enumerate(text.split("\n"), 1):  # git, too, counts lines by "\n" alone
        if number in wanted:
            if last and number > last + 1:
                yield "…"
            yield f"{number}: {line}"
            last = number


def _file(git_dir: Path, commit: str, path: str) -> str:
    """The text of a file at a commit; "" if the file is missing, is binary, is larger than MOST, or has a line break in
    its name."""
    if "\n" in path:
        return ""
    done = git("cat-file", "--batch", git_dir=git_dir, stdin=f"{commit}:{path}\n".encode("utf-8", "surrogateescape"))
    head, _, rest = done.output.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[1] != b"blob":
        return ""
    data = rest[: int(words[2])]
    return "" if len(data) > MOST or b"\0" in data else data.decode("utf-8", "replace")
