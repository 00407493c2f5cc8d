"""Finds the notes that the own account has written on GitLab, and prepares the text of a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.forge.gitlab import outgoing_text
from agent.forge.markers import hidden_in, signed

if TYPE_CHECKING:
    from agent.forge.gitlab.notes import NoteReader
    from agent.forge.gitlab.task_items import TaskItems
    from agent.values import TaskKey


class OwnNotes:
    """The notes that this program has written with the own account; `known` has the ids of those that this process has
    written or read."""

    def __init__(self, items: TaskItems) -> None:
        self.items = items
        self.places = items.places
        self.known: set[str] = set()

    def path(self, key: TaskKey, comment_id: str) -> str:
        """The API path of a note that this program has written; raises ForgeError for any other note."""
        if not comment_id.isascii() or not comment_id.isdigit():
            raise ForgeError(f"{comment_id!r} is not the number of a note")
        path = f"{self.items.path(key, self.places.project_of(key))}/notes/{comment_id}"
        if comment_id not in self.known:
            found = self.items.wire.get(path)
            if not self.places.is_written_by_us(found.get("author"), str(found.get("body") or "")):
                raise ForgeError(f"note {comment_id} of {key} belongs to somebody else and is left as it is")
        return path

    def written(self, talk: NoteReader, note: str) -> str | None:
        """The id of the note that a POST without an answer has written, None if it has written none; the note is found
        by its marker or, if it has none, by its text."""
        marker = hidden_in(note)
        if marker is not None:
            return talk.find(marker)
        return next((str(one["id"]) for one in talk.own() if str(one.get("body")).strip() == note.strip()), None)

    def fit(self, body: str) -> str:
        """The text of a note as it is sent: quick actions are escaped and, if the account may be a person's and the
        text stays short enough, the program's sign is added. Raises ForgeError if `body` is too long."""
        if len(body) > outgoing_text.MAX_NOTE:
            raise ForgeError(f"a comment has {len(body)} characters; GitLab takes {outgoing_text.MAX_NOTE}, shorten it")
        text = signed(body, outgoing_text.MAX_NOTE) if self.places.is_person() else body
        return outgoing_text.truncate(text, outgoing_text.MAX_NOTE)
