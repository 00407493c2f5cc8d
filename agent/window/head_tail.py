"""Cuts a text to a number of tokens: its beginning and end stay, and a note between them gives the number of characters
that were left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NOTE = "\n[… {} characters left out …]\n"


def head_and_tail(text: str, most: int, count: Callable[[str], int]) -> str:
    """`text` itself if it has at most `most` tokens by `count`; otherwise its beginning and its end, equally long, with
    NOTE between them.

    Each step shortens the remaining text by at least a quarter, down to nothing, so that the loop ends with any
    counter. If not even the note fits, the result is "".
    """
    tokens = count(text)
    if tokens <= most:
        return text
    half = max(1, len(text) * max(0, most) // max(1, tokens) // 2)
    while half:
        shorter = _around(text, half)
        if count(shorter) <= most:
            return shorter
        half = half * 3 // 4
    shorter = NOTE.format(len(text)).strip()
    return shorter if count(shorter) <= most else ""


def _around(text: str, half: int) -> str:
    half = min(half, len(text) // 2)
    return f"{text[:half]}{NOTE.format(len(text) - 2 * half)}{text[-half:] if half else ''}"
