"""Server-sent events: lines → (event, data).  Comments and unknown fields are skipped (WHATWG, section 9.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each event as its name ("" when none was given) and its data; an event without data is skipped.

    An event that the end of the stream cuts off (no empty line after it) is still given: servers leave the last empty
    line out.
    """
    name, data = "", list[bytes]()
    for line in lines:
        if not line:
            if data:
                yield name, b"\n".join(data)
            name, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace").strip()
    if data:
        yield name, b"\n".join(data)
