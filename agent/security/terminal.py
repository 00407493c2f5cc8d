"""Makes text safe for a terminal: without sequences that move the cursor, hide text or set the title."""

from __future__ import annotations

from agent.security import invisible_characters

_UNSAFE = frozenset(
    (invisible_characters.TAG, invisible_characters.BIDI, invisible_characters.CONTROL, invisible_characters.SENSELESS)
)


def strip_terminal_controls(text: str) -> str:
    """`text` without terminal sequences and without the characters of the rules PI-05, PI-07, PI-10 and PI-14 (tags,
    bidirectional controls, control characters, code points without meaning).

    Newlines, tabs and emoji are preserved.  A carriage return before a newline is removed; any other becomes a newline.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    while invisible_characters.STARTS.search(text):
        text, count = invisible_characters.ESCAPES.subn("", text)
        if not count:
            break
    bad = _unsafe(text)
    return invisible_characters.replaced(text, bad)[0] if bad else text


def mark_terminal_controls(text: str) -> str:
    """`text` with U+FFFD in place of each character that `strip_terminal_controls` removes by a rule, so that the text
    before and after the character stays apart. Newlines, tabs and emoji are preserved."""
    bad = _unsafe(text)
    return invisible_characters.replaced(text, bad, lambda _bad: "\ufffd")[0] if bad else text


def plain_json(text: str) -> str:
    r"""JSON equal to the JSON `text`, but safe to print: each character that `strip_terminal_controls` removes by a
    rule is escaped, as `\u009b` or as a surrogate pair.

    In valid JSON, the characters that are escaped can be only inside strings.
    """
    bad = _unsafe(text)
    return invisible_characters.replaced(text, bad, _escape)[0] if bad else text


def _unsafe(text: str) -> str:
    return "".join(bad for rule, bad in invisible_characters.removable(text).items() if rule in _UNSAFE)


def _escape(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))
