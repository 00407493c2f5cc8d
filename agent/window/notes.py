"""The model's own sentences, newest first up to a budget, so that conclusions survive where no summary holds them.

Text beside calls and plain answers; one line each, so that none can look like a heading or a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.context.carried import note_line
from agent.store.text import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.context.comments import Note
    from agent.values import Json

WIDTH = 600
"""Characters of one note."""

LEAST_READ, TOKENS_READ = 16, 8
"""So many answers are looked at, and one more for each so many tokens of the budget: what that costs does not grow with
the conversation."""


def notes(
    places: Sequence[Note],
    end_seq: int,
    room: int,
    count: Callable[[str], int],
    read: Callable[[int], Mapping[str, Any]],
) -> list[Json]:
    """The newest notes up to message `end_seq` that fit into `room` tokens of `count`, oldest first: `{"seq", "text"}`.

    `places` are those of answers with text, where of answers that differ in numbers alone only the newest is.
    """
    found: list[Json] = []
    old = [note for note in places if note.seq <= end_seq]
    for seq, at, _ in reversed(old[-max(LEAST_READ, room // TOKENS_READ) :]):
        text = " ".join(fit(str(read(at).get("content") or ""))[: 4 * WIDTH].split())
        if not text:
            continue
        note = {"seq": seq, "text": text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"}
        room -= count(note_line(note)) + 2
        if room < 0:
            break
        found.append(note)
    return found[::-1]
