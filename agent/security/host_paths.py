"""Paths of this machine in a text that others read: each known place is written as its name.

An error message names files; where they lie tells who runs this program, and how its machine is set up.  What stands
behind a known place stays, so that its owner still finds the file: `base_dir/running/…`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST = 4
"""A shorter path (`/`, `/a`) would be found in honest text."""

_COMMON = (
    "bin boot dev etc home lib lib64 media mnt opt proc run sbin srv sys tmp usr var usr/bin usr/local var/tmp "
    "work git home/agent"
)
EVERYWHERE = frozenset(f"/{name}" for name in _COMMON.split())
"""Places of every machine, and those of the sandbox: they say nothing of this one."""


class HostPaths:
    """`HostPaths(places)(text)` is (`text` with names for paths, how many).  `places` are (absolute path, name); of
    two for one path the first counts, and one with its own path as the name stays.  Safe to share."""

    def __init__(self, places: Iterable[tuple[str, str]]) -> None:
        self._names: dict[str, str] = {}
        for place, name in places:
            path = place.rstrip("/")
            if path.startswith("/") and len(path) >= SHORTEST and path not in EVERYWHERE:
                self._names.setdefault(path, name)
        longest_first = sorted(self._names, key=lambda path: (-len(path), path))
        self._pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)")

    def __call__(self, text: str) -> tuple[str, int]:
        count = 0

        def name(match: re.Match[str]) -> str:
            nonlocal count
            count += self._names[match[0]] != match[0]
            return self._names[match[0]]

        if any(path in text for path in self._names):
            text = self._pattern.sub(name, text)
        return text, count
