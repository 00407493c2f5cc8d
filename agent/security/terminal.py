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
    bad = _unsafe(text)
    return characters.replaced(text, bad)[0] if bad else text


def plain_json(text: str) -> str:
    r"""JSON that says the same and may be printed: each such character is written as `\u009b` or a pair of those.

    `text` is valid JSON, so they stand inside strings only.
    """
    bad = _unsafe(text)
    return characters.replaced(text, bad, _escape)[0] if bad else text


def _unsafe(text: str) -> str:
    return "".join(bad for rule, bad in characters.removable(text).items() if rule in _UNSAFE)


def _escape(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))
