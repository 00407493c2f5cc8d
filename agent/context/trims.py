"""A message made shorter by a compaction of kind "trim": head, a statement with a pointer to the whole, tail.

Pure: the text follows from the record and from the size that a line of compactions.jsonl names, so that the view stays
a function of the files.  `projection.py` shows it, `window/trimming.py` finds the size.  Sizes are UTF-8 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.values import Json

LEAST = {"tool": 240, "user": 480}
"""Bytes of the smallest form by role: the statement has about 120 of them.  A user's message holds what people or
commands said between two fences; both lines must stay."""

ROLES = frozenset(LEAST)
"""Which messages a trim can shorten."""


def place(record: Json) -> str:
    """The name by which `read_output` shows the whole: a stored output, a recorded tool call, or the message itself."""
    if record.get("output"):
        return str(record["output"])
    if record["role"] == "tool" and record.get("tool_seq"):
        return f"tools:{record['tool_seq']}"
    return f"messages:{record['seq']}"


def trimmed(record: Json, largest: int | None) -> str | None:
    """The content in at most `largest` bytes, never fewer than LEAST; None where it is no longer than that anyway, or
    is nothing that a trim shortens."""
    least = LEAST.get(record["role"])
    content = record.get("content")
    if largest is None or least is None or not isinstance(content, str) or record.get("kind") == "task":
        return None
    room = max(least, largest)
    if len(content) <= room // 4:  # no sign has more than four bytes
        return None
    data = content.encode("utf-8", "backslashreplace")
    if len(data) <= room:
        return None
    statement = _statement(len(data), len(data), place(record))
    half = max(0, (room - len(statement.encode()) - 2) // 2)
    head = _head(data, half)
    tail = _tail(data, half)
    left = len(data) - len(head) - len(tail)
    parts = (head.decode(), _statement(left, len(data), place(record)), tail.decode())
    return "\n".join(part for part in parts if part)


def _statement(left: int, size: int, name: str) -> str:
    return f'[… {left:,} of {size:,} bytes left out here to make room; read_output("{name}") shows the whole …]'


def _head(data: bytes, room: int) -> bytes:
    """The first bytes, to the end of a line where one ends in their second half, else of a whole sign."""
    part = data[:room]
    newline = part.rfind(b"\n")
    if newline >= room // 2:
        return part[:newline]
    return part.decode("utf-8", "ignore").encode()


def _tail(data: bytes, room: int) -> bytes:
    """The last bytes, from the start of a line where one starts in their first half, else of a whole sign."""
    part = data[len(data) - room :]
    newline = part.find(b"\n", 0, room // 2)
    if newline >= 0:
        return part[newline + 1 :]
    return part.decode("utf-8", "ignore").encode()
