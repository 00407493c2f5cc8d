"""The work tree as a compaction sees it: what differs from the base, and the content of a file (`values.PresentWork`).

git answers the first, the tools' own reader the second: no symlink is followed, declared secrets are masked.  A file
whose name is one that secrets are kept under, or that holds the shape of a key, is not shown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.security.secrets import scan
from agent.work.tree import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.tools import Toolbox
    from agent.values import FileChange

LARGEST = 400_000
"""Bytes of a file that is looked at; a larger one is not carried."""

_SECRET = re.compile(
    r"(?:^|/)(?:\.env(?:\..*)?|\.netrc|\.npmrc|\.pypirc|\.git-credentials|credentials(?:\.\w+)?|secrets?\.\w+|id_[a-z0-9]+"
    r"|[^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx))$",
    re.IGNORECASE,
)
"""Names that programs keep credentials under: ssh-keygen(1), netrc(5), gitcredentials(7), npmrc, openssl-pkcs12(1)."""


class Present:
    """`changes` asks git; `tools` reads."""

    def __init__(self, tools: Toolbox, changes: Callable[[], Iterable[FileChange]]) -> None:
        self._tools = tools
        self._changes = changes

    def changes(self) -> Sequence[FileChange]:
        """As `Workspace.changes_now`, with names that can be shown."""
        return [replace(one, path=shown(one.path), source=shown(one.source)) for one in self._changes()]

    def text(self, path: str) -> str | None:
        """The text of a file, None where it is not to be shown."""
        if _SECRET.search(path):
            return None
        text = self._tools.present(path, LARGEST)
        return None if text is None or scan([text.encode("utf-8", "replace")]) else text
