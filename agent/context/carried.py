"""The text behind a summary: what is carried over from the messages that are left out, and the word to go on.

Made from what a compaction recorded, never recorded itself.  Two forms of that: a mapping with `comments`, a list of
references (`comments.py`), which every compaction of the program writes; and any other, which is older or of the
library interface, and gets the newest words of a person beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.store.text import dumps, fit

GO_ON = "Go on with the task from where it stands."
LEFT_OUT = "(Earlier messages were left out here to make room.)"

NEXT = "(That was carried over. The next message follows.)"

COMMENTS = "comments"
"""The key of the references, by which the newer form is known."""

_HEADINGS = {
    "plan": "Plan",
    "read": "Files read",
    "changed": "Files changed",
    "question": "Open question",
    "words": "What the person said last, word for word",
}
_ORDER = {
    "comments": "Comments of people since the task began, word for word, oldest first",
    "plan": "Plan",
    "question": "Open question",
    "changed": "Files changed, the newest last",
    "read": "Files read, the newest last",
    "failures": "Commands and errors, the newest of each kind",
    "notes": "Your own notes",
    "files": "Present content of the files worked on last",
}
"""Headings of the newer form, in the order in which they stand."""

_TEXT_KEYS = ("text", "step", "title", "content", "item", "task", "description")
_STATE_KEYS = ("status", "state", "done")


def has_references(carried: Any) -> bool:
    """Whether a compaction names the comments that it carries."""
    return isinstance(carried, Mapping) and isinstance(carried.get(COMMENTS), list)


def note_line(note: Mapping[str, Any]) -> str:
    """A sentence of the model, `{"seq", "text"}`, with the message where it stood."""
    return f"[message {note.get('seq')}] {fit(str(note.get('text') or ''))}"


def notes_until(notes: Any, end_seq: int) -> list[str]:
    """Those of `notes` that stood in messages up to `end_seq`; later ones are in the view themselves."""
    found = [note for note in notes if isinstance(note, Mapping)] if isinstance(notes, Sequence) else []
    return [note_line(note) for note in found if isinstance(note.get("seq"), int) and note["seq"] <= end_seq]


def carried_text(carried: Any, words: str | None = None) -> str:
    """What a compaction carries, as Markdown; "" when it is nothing.

    Text is taken as it is.  Of a mapping each entry becomes a heading with its lines, known keys first; `words` are
    added under theirs unless the mapping has its own.
    """
    entries: dict[str, Any] = {}
    headings = _HEADINGS
    parts: list[str] = []
    if isinstance(carried, Mapping):
        headings = _ORDER if COMMENTS in carried else _HEADINGS
        known = [key for key in headings if carried.get(key)]
        entries = {key: carried[key] for key in [*known, *(key for key in carried if key not in headings)]}
    elif carried:
        parts.append(fit(str(carried)).strip())
    if words and "words" not in entries:
        entries["words"] = words
    for key, value in entries.items():
        lines = lines_of(value)
        if lines:
            heading = headings.get(key) or str(key).replace("_", " ").capitalize()
            parts.append(f"{heading}:\n{lines}")
    return "\n\n".join(part for part in parts if part)


def lines_of(value: Any) -> str:
    """One entry as it stands under its heading."""
    if isinstance(value, str):
        return fit(value).strip()
    if isinstance(value, Mapping):
        return "\n".join(f"- {key}: {_line(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence):
        return "\n".join(f"- {_line(inner)}" for inner in value)
    return "" if value is None or value is False else str(value)


def _line(value: Any) -> str:
    """One entry of a list; an item of a plan shows its state before its text."""
    if isinstance(value, str):
        return fit(value)
    if isinstance(value, Mapping):
        text = next((value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
        state = next((value[key] for key in _STATE_KEYS if key in value), None)
        if text is not None:
            shown = {True: "done", False: "open"}.get(state, state) if isinstance(state, bool) else state
            return f"[{shown}] {fit(text)}" if shown is not None else fit(text)
    return dumps(value).decode()
