"""Selects sentences that the model wrote, the newest first, within a budget, so that its conclusions survive a
compaction without a summary.

The sentences of the model are the texts of its answers, with or without calls. Each sentence is put on one line, so
that none can look like a heading or a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.context.carry_over_text import note_line
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.context.comments import Note
    from agent.values import Json

WIDTH = 600
"""The maximum number of characters of one note (a sentence of the model)."""

LEAST_READ, TOKENS_READ = 16, 8
"""At most LEAST_READ answers of the model are read, or one answer for each TOKENS_READ tokens of the budget if that is
more, so that the cost does not grow with the conversation."""


def notes(
    places: Sequence[Note],
    end_seq: int,
    room: int,
    count: Callable[[str], int],
    read: Callable[[int], Mapping[str, Any]],
) -> list[Json]:
    """The newest notes (sentences of the model) in messages up to `end_seq` that fit into `room` tokens as `count`
    counts, oldest first: `{"seq", "text"}`.

    `places` are the positions of the model's answers with text; of several answers that differ only in numbers, only
    the newest is there.
    """
    found: list[Json] = []
    old = [note for note in places if note.seq <= end_seq]
    for seq, at, _ in reversed(old[-max(LEAST_READ, room // TOKENS_READ) :]):
        text = " ".join(replace_surrogates(str(read(at).get("content") or ""))[: 4 * WIDTH].split())
        if not text:
            continue
        note = {"seq": seq, "text": text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"}
        room -= count(note_line(note)) + 2
        if room < 0:
            break
        found.append(note)
    return found[::-1]
