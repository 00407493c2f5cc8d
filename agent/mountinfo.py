r"""Parses the list of the mounts that a process sees, /proc/{pid}/mountinfo (proc_pid_mountinfo(5)).

The kernel writes the bytes of a path unchanged, except a space, tab, newline or backslash, which it writes as `\ooo`,
three octal digits.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")
_FIELDS = 6  # number of fields of a line before " - ", without the optional fields


@dataclass(frozen=True, slots=True)
class Mount:
    """`device` of a mount is major:minor, `root` the mounted folder of the file system, `place` the mount point, `kind`
    the type of the file system; `options` are those of the file system. Invalid UTF-8 in the paths of a mount is
    represented by surrogates, as by `os.fsdecode`."""

    device: str
    root: str
    place: str
    kind: str
    options: str


def mounts(process: Path) -> Iterator[Mount]:
    """The mounts that a process sees; `process` is the folder of the process in /proc.

    `mounts` yields nothing if the list of mounts cannot be read.
    """
    try:
        lines = (process / "mountinfo").read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        front, _, behind = line.partition(b" - ")
        fields, (kind, _, rest) = front.split(b" "), behind.partition(b" ")
        if len(fields) >= _FIELDS and kind:
            options = rest.rpartition(b" ")[2]
            yield Mount(
                os.fsdecode(fields[2]), _path(fields[3]), _path(fields[4]), os.fsdecode(kind), os.fsdecode(options)
            )


def _path(written: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes((int(found[1], 8),)), written))
