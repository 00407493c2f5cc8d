"""Replaces paths of this machine by names in published texts.

An error message names files, and their paths reveal who runs this program and how the machine is set up. In a replaced
path, the part below a known folder is preserved, so that the operator can find the file: `base_dir/running/…`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST = 4
"""A path of this machine with fewer characters than this number (`/`, `/a`) is not replaced, since it occurs in
ordinary text."""

_COMMON = (
    "bin boot dev etc home lib lib64 media mnt opt proc run sbin srv sys tmp usr var usr/bin usr/local var/tmp "
    "work git home/agent"
)
EVERYWHERE = frozenset(f"/{name}" for name in _COMMON.split())
"""Paths that exist on every machine or in the sandbox, and reveal nothing."""


class HostPaths:
    """`HostPaths(places)(text)` returns (`text` with names for paths, number of replacements).

    `places` are (absolute path, name); the first entry for a path counts, and a path is left unchanged if its name is
    the path itself.  Thread-safe."""

    def __init__(self, places: Iterable[tuple[str, str]]) -> None:
        self._names: dict[str, str] = {}
        for place, name in places:
            path = place.rstrip("/")
            if path.startswith("/") and len(path) >= SHORTEST and path not in EVERYWHERE:
                self._names.setdefault(path, name)
        longest_first = sorted(self._names, key=lambda path: (-len(path), path))
        either = "|".join(rf"{path}(?<![\w.-]{path})" for path in map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?:{either})(?![\w-]|\.\w)")

    def __call__(self, text: str) -> tuple[str, int]:
        count = 0

        def name(match: re.Match[str]) -> str:
            nonlocal count
            count += self._names[match[0]] != match[0]
            return self._names[match[0]]

        if any(path in text for path in self._names):
            text = self._pattern.sub(name, text)
        return text, count
