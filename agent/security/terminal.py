"""Text that may be printed on a terminal: no sequence of it can move the cursor, hide or retitle anything."""

from __future__ import annotations

from agent.security import characters

_UNSAFE = frozenset((characters.TAG, characters.BIDI, characters.CONTROL, characters.SENSELESS))


def plain(text: str) -> str:
    """`text` without terminal sequences, controls, and characters that reorder or hide; newlines, tabs and emoji stay.

    A carriage return before a newline goes, any other becomes a newline.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    while characters.STARTS.search(text):
        text, count = characters.ESCAPES.subn("", text)
        if not count:
            break
    for rule, bad in characters.removable(text).items():
        if rule in _UNSAFE:
            text, _ = characters.replaced(text, bad)
    return text
