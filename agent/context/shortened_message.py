"""Shortens a message for a compaction of kind "trim": its head, a statement with a pointer to the whole text, its tail.

The function `shorten` is pure: the shortened text depends only on the record and on the size in a line of
compactions.jsonl, so the view remains a function of the files. `projection.py` shows the shortened message,
`window/trimming.py` computes the size. Sizes of shortened messages are in UTF-8 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.values import Json

LEAST = {"tool": 240, "user": 480}
"""Minimum bytes of a shortened message, by role; the statement takes about 120 of them.

A user's message may contain a text of people or commands between two fence lines, which must both stay.
"""

ROLES = frozenset(LEAST)
"""Roles of messages that a trim can shorten."""


def output_name(record: Json) -> str:
    """The name under which the tool `read_output` finds the whole text: a stored output, a recorded tool call, or the
    message itself."""
    if record.get("output"):
        return str(record["output"])
    if record["role"] == "tool" and record.get("tool_seq"):
        return f"tools:{record['tool_seq']}"
    return f"messages:{record['seq']}"


def shorten(record: Json, largest: int | None) -> str | None:
    """The content of a message, shortened to at most `largest` bytes, or to LEAST if that is more.

    Returns None if the content has at most `largest` (or LEAST) bytes, if `largest` is None, or if trims do not apply
    to the message.
    """
    least = LEAST.get(record["role"])
    content = record.get("content")
    if largest is None or least is None or not isinstance(content, str) or record.get("kind") == "task":
        return None
    room = max(least, largest)
    if len(content) <= room // 4:  # a character has at most four bytes, so the text cannot be longer than `room`
        return None
    data = content.encode("utf-8", "backslashreplace")
    if len(data) <= room:
        return None
    statement = _statement(len(data), len(data), output_name(record))
    half = max(0, (room - len(statement.encode()) - 2) // 2)
    head = _head(data, half)
    tail = _tail(data, half)
    left = len(data) - len(head) - len(tail)
    parts = (head.decode(), _statement(left, len(data), output_name(record)), tail.decode())
    return "\n".join(part for part in parts if part)


def _statement(left: int, size: int, name: str) -> str:
    return f'[… {left:,} of {size:,} bytes left out here to make room; read_output("{name}") shows the whole …]'


def _head(data: bytes, room: int) -> bytes:
    """The first `room` bytes of a text, cut at a line end in their second half if there is one, else after a whole
    character."""
    part = data[:room]
    newline = part.rfind(b"\n")
    if newline >= room // 2:
        return part[:newline]
    return part.decode("utf-8", "ignore").encode()


def _tail(data: bytes, room: int) -> bytes:
    """The last `room` bytes of a text, cut at a line start in their first half if there is one, else before a whole
    character."""
    part = data[len(data) - room :]
    newline = part.find(b"\n", 0, room // 2)
    if newline >= 0:
        return part[newline + 1 :]
    return part.decode("utf-8", "ignore").encode()
