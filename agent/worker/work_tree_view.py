"""Gives a compaction access to the work tree: its difference from the base commit, and the content of files
(`values.PresentWork`).

git determines the difference between the work tree and the base commit, and the tools' own reader gets the content of
files: the reader follows no symlink and masks declared secrets.  The content of a file with a name that is usual for
secrets, or with text that looks like a key, is not shown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.security.secrets import scan
from agent.work.untrusted_tree import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.tools import Toolbox
    from agent.values import FileChange

LARGEST = 400_000
"""The maximum size in bytes of a file that is read."""

_SECRET = re.compile(
    r"\.env(?:\..*)?|\.netrc|\.npmrc|\.pypirc|\.git-credentials|credentials(?:\.\w+)?|secrets?\.\w+|id_[a-z0-9]+"
    r"|.*\.(?:pem|key|p12|pfx|jks|keystore|kdbx)",
    re.IGNORECASE,
)
"""Matches names of files or folders in which programs store credentials: ssh-keygen(1), netrc(5), gitcredentials(7),
npmrc, openssl-pkcs12(1)."""


class WorkTreeView:
    """`changes` is a function that gets the changes from git; `tools` reads the files."""

    def __init__(self, tools: Toolbox, changes: Callable[[], Iterable[FileChange]]) -> None:
        self._tools = tools
        self._changes = changes

    def changes(self) -> Sequence[FileChange]:
        """The changed files by `Workspace.changes_now`, with printable names."""
        return [replace(one, path=shown(one.path), source=shown(one.source)) for one in self._changes()]

    def text(self, path: str) -> str | None:
        """The text of a file, None if the tools cannot read it or the model may not see it."""
        if any(map(_SECRET.fullmatch, path.split("/"))):
            return None
        text = self._tools.current_text(path, LARGEST)
        return None if text is None or scan([text.encode("utf-8", "replace")]) else text
