"""Makes the text that a compaction puts into the view, after the summary if there is one: the state that is carried
over from the omitted messages, and the instruction to continue.

The text of the carry-over is derived from the record of a compaction; only the view (current.jsonl) contains it. The
carried state in the record has one of two forms. The current form of the carried state is a mapping with `comments`, a
list of references (`comments.py`). A carried state in any other form is from an earlier version or from the library
interface; the newest message of a person is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.store.storable_text import dumps, replace_surrogates

GO_ON = "Go on with the task from where it stands."
LEFT_OUT = "(Earlier messages were left out here to make room.)"

NEXT = "(That was carried over. The next message follows.)"

COMMENTS = "comments"
"""The key of the references to comments; a mapping with this key has the current form."""

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
"""The headings of the carry-over in the current form, in their order in the text."""

_TEXT_KEYS = ("text", "step", "title", "content", "item", "task", "description")
_STATE_KEYS = ("status", "state", "done")


def has_references(carried: Any) -> bool:
    """Whether the carried state of a compaction refers to comments."""
    return isinstance(carried, Mapping) and isinstance(carried.get(COMMENTS), list)


def note_line(note: Mapping[str, Any]) -> str:
    """A sentence that the model wrote (`{"seq", "text"}`), with the number of its message."""
    return f"[message {note.get('seq')}] {replace_surrogates(str(note.get('text') or ''))}"


def notes_until(notes: Any, end_seq: int) -> list[str]:
    """Those of `notes` that are from messages up to `end_seq`, as lines; the view still shows the later messages."""
    found = [note for note in notes if isinstance(note, Mapping)] if isinstance(notes, Sequence) else []
    return [note_line(note) for note in found if isinstance(note.get("seq"), int) and note["seq"] <= end_seq]


def carried_text(carried: Any, words: str | None = None) -> str:
    """The carried state of a compaction as Markdown; "" when there is none.

    A carried state that is already a text is used unchanged. Each entry of a carried state that is a mapping becomes a
    heading with its lines, known keys first; an entry without lines is left out. `words`, the newest message of a
    person, is added under a heading of its own, unless the mapping has the key `words`.
    """
    entries: dict[str, Any] = {}
    headings = _HEADINGS
    parts: list[str] = []
    if isinstance(carried, Mapping):
        headings = _ORDER if COMMENTS in carried else _HEADINGS
        known = [key for key in headings if carried.get(key)]
        entries = {key: carried[key] for key in [*known, *(key for key in carried if key not in headings)]}
    elif carried:
        parts.append(replace_surrogates(str(carried)).strip())
    if words and "words" not in entries:
        entries["words"] = words
    for key, value in entries.items():
        lines = lines_of(value)
        if lines:
            heading = headings.get(key) or str(key).replace("_", " ").capitalize()
            parts.append(f"{heading}:\n{lines}")
    return "\n\n".join(part for part in parts if part)


def lines_of(value: Any) -> str:
    """The lines of one entry of the carried state, without its heading; "" for None and False."""
    if isinstance(value, str):
        return replace_surrogates(value).strip()
    if isinstance(value, Mapping):
        return "\n".join(f"- {key}: {_line(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence):
        return "\n".join(f"- {_line(inner)}" for inner in value)
    return "" if value is None or value is False else str(value)


def _line(value: Any) -> str:
    """One entry of a list in the carried state; an item of a plan begins with its state."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        text = next((value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
        state = next((value[key] for key in _STATE_KEYS if key in value), None)
        if text is not None:
            shown = {True: "done", False: "open"}.get(state, state) if isinstance(state, bool) else state
            return f"[{shown}] {replace_surrogates(text)}" if shown is not None else replace_surrogates(text)
    return dumps(value).decode()
