"""What people say on an issue and on the merge requests that belong to it: notes, and the discussions they stand in.

Only notes of people count: system notes ("assigned to @x") and internal notes, which must not reach a public merge
request, are left out.  Notes come newest change first, so that a look with nothing new is one request; the
discussions are read only when a new note stands in a thread.  A note's number is unique in all of GitLab.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.forge.base import Comment, Marked
from agent.forge.gitlab_places import username
from agent.forge.gitlab_wire import PATIENT
from agent.forge.marks import all_in
from agent.forge.talk import REMEMBERED, Cursor, digest, odd_comment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.gitlab_places import Places, Project
    from agent.forge.gitlab_wire import GitLabWire

OVERLAP = timedelta(seconds=30)  # the clocks of several Rails processes, and writes that end in another order
EDITS = ("changed the description", "changed title")
"""How the system note begins that GitLab writes when somebody edits the text of an issue or merge request."""
THREADED = ("DiffNote", "DiscussionNote")


@dataclass(frozen=True, slots=True)
class Thing:
    """An issue or merge request by its number in the project."""

    kind: str  # "issues" or "merge_requests"
    number: int


class Talk:
    """Reads what was said on `thing`; writes nothing.  `patience` is for limits (see `gitlab_wire`)."""

    def __init__(
        self, wire: GitLabWire, places: Places, project: Project, thing: Thing, patience: float = PATIENT
    ) -> None:
        self.wire = wire
        self.places = places
        self.project = project
        self.thing = thing
        self.patience = patience
        self.editor: dict[str, Any] | None = None  # who edited the thing's own text since the cursor of `since`

    def since(self, cursor: Cursor) -> tuple[tuple[Comment, ...], Cursor, int]:
        """(new and edited comments of people whose word counts, the next cursor, how many others were left out)."""
        newest, digests, left_out = cursor.since, dict(cursor.digests), 0
        news: list[tuple[Thing, dict[str, Any]]] = []
        edited: set[str] = set()
        for thing, note in self._changed(cursor):
            newest = max(newest, _utc(note.get("updated_at")))
            key, now = str(note["id"]), digest(str(note.get("body") or ""))
            known = digests.pop(key, None)
            digests[key] = now
            if known == now:
                continue
            if self.places.is_ours(note.get("author")):
                continue
            if self.places.may_ask(self.project, note.get("author"), patience=self.patience):
                news.append((thing, note))
                edited |= {key} if known is not None else set()
            else:
                left_out += 1
        written = (replace(comment, is_edit=comment.id in edited) for comment in self._comments(news))
        comments = sorted(written, key=lambda comment: (comment.created_at, int(comment.id)))
        kept = dict(sorted(digests.items(), key=lambda item: int(item[0]) if item[0].isdigit() else 0)[-REMEMBERED:])
        if newest == cursor.since and kept == cursor.digests:
            return tuple(comments), cursor, left_out
        return tuple(comments), replace(cursor, since=newest, digests=kept), left_out

    def find(self, marker: str) -> str | None:
        """The oldest own note with the marker."""
        return next((one.id for one in self.marked() if marker in one.markers), None)

    def marked(self) -> list[Marked]:
        """Own notes with markers by their numbers: their times are those of several machines' clocks."""
        found = [
            Marked(str(note["id"]), markers, _utc(note.get("updated_at")))
            for note in self.own()
            if (markers := all_in(str(note.get("body") or "")))
        ]
        return sorted(found, key=lambda one: int(one.id))

    def own(self) -> Iterator[dict[str, Any]]:
        """Every note of the own account, oldest first."""
        query = {"sort": "asc", "order_by": "created_at", "activity_filter": "only_comments"}
        for note in self.wire.pages(self.notes(self.thing), query=query, patience=self.patience):
            if not note.get("system") and self.places.is_own(note.get("author")):
                yield note

    def notes(self, thing: Thing) -> str:
        """The path of a thing's notes."""
        return f"{self.project.path}/{thing.kind}/{thing.number}/notes"

    def _changed(self, cursor: Cursor) -> Iterator[tuple[Thing, dict[str, Any]]]:
        after = clock.parse(cursor.since) - OVERLAP if cursor.since else None
        query = {"sort": "desc", "order_by": "updated_at"}
        pulls = (Thing("merge_requests", number) for number in cursor.pulls)
        for thing in dict.fromkeys((self.thing, *pulls)):
            for note in self.wire.pages(self.notes(thing), query=query, patience=self.patience, odd=odd_comment):
                updated = _utc(note.get("updated_at"))
                # A merge request whose first look this is has older notes than the newest of the issue.
                if after is not None and updated and clock.parse(updated) < after and str(note["id"]) in cursor.digests:
                    break
                is_edit = note.get("system") and str(note.get("body") or "").startswith(EDITS)
                if is_edit and thing == self.thing and updated >= cursor.since and self.editor is None:
                    self.editor = note.get("author") or {}
                if not (note.get("system") or note.get("internal") or note.get("confidential")):
                    yield thing, note

    def _comments(self, news: list[tuple[Thing, dict[str, Any]]]) -> Iterator[Comment]:
        for thing in dict.fromkeys(thing for thing, _ in news):
            notes = [note for where, note in news if where == thing]
            threads = self._threads(thing, {int(note["id"]) for note in notes if note.get("type") in THREADED})
            for note in notes:
                yield self._comment(thing, note, threads.get(int(note["id"])))

    def _threads(self, thing: Thing, wanted: set[int]) -> dict[int, dict[str, Any]]:
        """Note → the discussion it stands in, for the wanted ones."""
        found: dict[int, dict[str, Any]] = {}
        if not wanted:
            return found
        path = f"{self.project.path}/{thing.kind}/{thing.number}/discussions"
        for discussion in self.wire.pages(path, patience=self.patience, odd=odd_comment):
            for note in discussion.get("notes") or ():
                if int(note["id"]) in wanted:
                    found[int(note["id"])] = discussion
            if len(found) == len(wanted):
                break
        return found

    def _comment(self, thing: Thing, note: dict[str, Any], thread: dict[str, Any] | None) -> Comment:
        heading = []
        if thing != self.thing:
            heading.append(f"Merge request !{thing.number}")
        if where := _place(note.get("position") or {}):
            heading.append(f"On {where}")
        if thread is not None:
            heading.append(f"{'review ' if note.get('position') else ''}thread {str(thread['id'])[:8]}")
            first = (thread.get("notes") or [note])[0]
            if first["id"] != note["id"]:
                heading.append(f"answer to {username(first.get('author')) or 'ghost'}")
        if note.get("resolved"):
            heading.append("resolved")
        created = _utc(note.get("created_at"))
        return Comment(
            str(note["id"]),
            username(note.get("author")) or "ghost",
            str(note.get("body") or ""),
            created,
            _utc(note.get("updated_at")) or created,
            self.places.is_machine(note.get("author"), patience=self.patience),
            place=", ".join(heading),
        )


def _utc(text: Any) -> str:
    """A time as it is compared: GitLab writes its own zone, which changes twice a year."""
    return clock.stamp(clock.parse(str(text))) if text else ""


def _place(position: dict[str, Any]) -> str:
    """File and line of a note on a change; a line that only the old side has says so."""
    path = position.get("new_path") or position.get("old_path")
    if not path:
        return ""
    if line := position.get("new_line"):
        start = ((position.get("line_range") or {}).get("start") or {}).get("new_line")
        return f"{path}:{start}-{line}" if start and start != line else f"{path}:{line}"
    if line := position.get("old_line"):
        return f"{position.get('old_path') or path}:{line} (before the change)"
    return str(path)
