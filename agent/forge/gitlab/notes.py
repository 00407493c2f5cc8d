"""Reads the comments of an issue and of its merge requests: notes, and the discussions that contain them.

System notes of GitLab ("assigned to @x") are left out, except a reviewer's request for changes; internal notes are left
out too, because the text of an internal note must not reach a public merge request. Notes are requested by newest
change, so if there is no new note, one request for each issue or merge request is enough. The discussions on GitLab are
read only when a new or edited note belongs to a thread. The number of a note is unique on the GitLab host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.forge.base import Comment, MarkedComment
from agent.forge.comment_cursor import REMEMBERED, CommentCursor, digest, odd_comment
from agent.forge.gitlab.projects import username
from agent.forge.host_client import PATIENT
from agent.forge.lines_of_comment import Side, lines_in_words, suggestions_in_words
from agent.forge.markers import all_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project, Projects

EDITS = ("changed the description", "changed title", "marked the checklist item", "marked the task")
"""Beginnings of the system notes that GitLab writes when somebody edits the title or text of an issue or merge request.

For an edit that also ticks an item of a task list GitLab writes only a system note about the item ("marked the task"
before GitLab 15), so such a note may also mean an edit of the whole text:
https://gitlab.com/gitlab-org/gitlab/-/blob/master/app/services/issuable/common_system_notes_service.rb
"""
REQUESTED = "requested changes"
"""The text of the system note that GitLab writes when a reviewer requests changes:
https://gitlab.com/gitlab-org/gitlab/-/blob/master/app/services/merge_requests/update_reviewer_state_service.rb
"""
THREADED = ("DiffNote", "DiscussionNote")
BY_CHANGE = {"sort": "desc", "order_by": "updated_at"}
COMMENTS = {"sort": "asc", "order_by": "created_at", "activity_filter": "only_comments"}
ACTIVITY = {"sort": "desc", "order_by": "created_at", "activity_filter": "only_activity"}
"""Query parameters for a list of notes: all notes, the last changed first (`BY_CHANGE`), the notes that are comments,
oldest first (`COMMENTS`), and system notes, newest first (`ACTIVITY`)."""


@dataclass(frozen=True, slots=True)
class ItemNumber:
    """An issue or merge request by its number in the project."""

    kind: str  # as in the API path: "issues" or "merge_requests"
    number: int


class NoteReader:
    """Reads the comments of one issue or merge request (`thing`), and of the merge requests that a cursor names.

    `patience` is the maximum number of seconds to wait for a rate limit.
    """

    def __init__(
        self, wire: GitLabWire, places: Projects, project: Project, thing: ItemNumber, patience: float = PATIENT
    ) -> None:
        self.wire = wire
        self.places = places
        self.project = project
        self.thing = thing
        self.patience = patience
        # the account that last edited the title or text of `thing` ({} if GitLab does not name the account); None if
        # `since` found no edit after its cursor
        self.editor: dict[str, Any] | None = None

    def since(
        self, cursor: CommentCursor, *, with_edits: bool = True
    ) -> tuple[tuple[Comment, ...], CommentCursor, int]:
        """The comments since a cursor: (new and edited comments of people with permission, the next cursor, the number
        of new and edited comments of people without permission). With `with_edits` False, which needs a cursor without
        digests, `since` does not determine `editor`, and requests the same list of notes as `own`."""
        newest, digests, left_out = cursor.since, dict(cursor.digests), 0
        news: list[tuple[ItemNumber, dict[str, Any]]] = []
        edited: set[str] = set()
        for thing, note in self._changed(cursor, BY_CHANGE if with_edits else COMMENTS):
            newest = max(newest, utc(note.get("updated_at")))
            key, now = str(note["id"]), digest(str(note.get("body") or ""))
            known = digests.pop(key, None)
            digests[key] = now
            if known == now:
                continue
            if self.places.is_ours(note.get("author"), str(note.get("body") or "")):
                continue
            if self.places.may_ask(self.project, note.get("author"), patience=self.patience):
                news.append((thing, note))
                edited |= {key} if known is not None else set()
            else:
                left_out += 1
        written = (replace(comment, is_edit=comment.id in edited) for comment in self._comments(news))
        comments = sorted(written, key=lambda comment: (comment.created_at, int(comment.id)))
        kept = dict(sorted(digests.items(), key=lambda item: int(item[0]) if item[0].isdigit() else 0)[-REMEMBERED:])
        if newest == cursor.since and kept == cursor.digests and not cursor.new:
            return tuple(comments), cursor, left_out
        return tuple(comments), replace(cursor, since=newest, digests=kept, new=()), left_out

    def find(self, marker: str) -> str | None:
        """The id of the first note of the own account with the marker; None if there is none."""
        return next((one.id for one in self.marked() if marker in one.markers), None)

    def marked(self) -> list[MarkedComment]:
        """Notes of the own account with markers, ordered by number and not by time, since the times of notes come from
        the clocks of several machines."""
        found = [
            MarkedComment(str(note["id"]), markers, utc(note.get("updated_at")))
            for note in self.own()
            if (markers := all_in(str(note.get("body") or "")))
        ]
        return sorted(found, key=lambda one: int(one.id))

    def own(self) -> Iterator[dict[str, Any]]:
        """Every note of the own account that is no system note, oldest first."""
        for note in self.wire.pages(self.notes(self.thing), query=COMMENTS, patience=self.patience):
            if not note.get("system") and self.places.is_own(note.get("author")):
                yield note

    def notes(self, thing: ItemNumber) -> str:
        """The API path of the notes of an issue or merge request."""
        return f"{self.project.path}/{thing.kind}/{thing.number}/notes"

    def _changed(self, cursor: CommentCursor, query: Mapping[str, str]) -> Iterator[tuple[ItemNumber, dict[str, Any]]]:
        after = cursor.begin()
        pulls = (ItemNumber("merge_requests", number) for number in cursor.pulls)
        for thing in dict.fromkeys((self.thing, *pulls)):
            for note in self.wire.pages(self.notes(thing), query=query, patience=self.patience, odd=odd_comment):
                updated = utc(note.get("updated_at"))
                # The first old note with a digest ends the loop, since all notes after it were read. An old note
                # without a digest does not end it: a merge request that is read for the first time may have unread old
                # notes.
                if after is not None and updated and clock.parse(updated) < after and str(note["id"]) in cursor.digests:
                    break
                is_edit = note.get("system") and str(note.get("body") or "").startswith(EDITS)
                if is_edit and thing == self.thing and updated >= cursor.since and self.editor is None:
                    self.editor = note.get("author") or {}
                if (
                    thing.kind == "merge_requests"
                    and _requests_changes(note)
                    and (thing.number in cursor.new or after is None or clock.parse(updated) >= after)
                ):
                    yield thing, note
                if not (note.get("system") or note.get("internal") or note.get("confidential")):
                    yield thing, note

    def _comments(self, news: list[tuple[ItemNumber, dict[str, Any]]]) -> Iterator[Comment]:
        for thing in dict.fromkeys(thing for thing, _ in news):
            notes = [note for where, note in news if where == thing]
            threads = self._threads(thing, {int(note["id"]) for note in notes if note.get("type") in THREADED})
            for note in notes:
                yield self._comment(thing, note, threads.get(int(note["id"])))

    def _threads(self, thing: ItemNumber, wanted: set[int]) -> dict[int, dict[str, Any]]:
        """Number of a note → the discussion that contains it, for the notes with the numbers `wanted`."""
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

    def _comment(self, thing: ItemNumber, note: dict[str, Any], thread: dict[str, Any] | None) -> Comment:
        heading = []
        if thing != self.thing:
            heading.append(f"Merge request !{thing.number}")
        if where := _place(note.get("position") or {}, str(note.get("body") or "")):
            heading.append(f"On {where}")
        if thread is not None:
            heading.append(f"{'review ' if note.get('position') else ''}thread {str(thread['id'])[:8]}")
            first = (thread.get("notes") or [note])[0]
            if first["id"] != note["id"]:
                heading.append(f"answer to {username(first.get('author')) or 'ghost'}")
        if note.get("resolved"):
            heading.append("resolved")
        created = utc(note.get("created_at"))
        if asks := _requests_changes(note):
            heading = [f"Review of merge request !{thing.number}: changes requested"]
        return Comment(
            str(note["id"]),
            username(note.get("author")) or "ghost",
            "" if asks else str(note.get("body") or ""),
            created,
            utc(note.get("updated_at")) or created,
            self.places.is_machine(note.get("author"), patience=self.patience),
            place=", ".join(heading),
            address="/".join([thing.kind, str(thing.number), *([str(thread["id"])] if thread is not None else [])]),
            has_thread=not asks,
            requests_changes=asks,
        )


def _requests_changes(note: dict[str, Any]) -> bool:
    """Whether a system note says that a reviewer requests changes."""
    return bool(note.get("system")) and str(note.get("body") or "").strip() == REQUESTED


def utc(text: Any) -> str:
    """A time of GitLab in UTC, so that times can be compared as text: GitLab writes times in its own time zone, and the
    offset of that time zone from UTC may change in summer. The result is "" for a missing time (None or "")."""
    return clock.stamp(clock.parse(str(text))) if text else ""


def _place(position: dict[str, Any], body: str) -> str:
    """The file and lines on which a review note stands, and the lines that its suggestions replace.

    A note's line without a number in the new file is a removed line; `line_range` has the first and the last line of a
    note on several lines: https://docs.gitlab.com/api/discussions/ ("Parameters for multiline comments"). The result is
    "" if the note is not about a file.
    """
    path = position.get("new_path") or position.get("old_path")
    if not path:
        return ""
    last = _side(position)
    if last is not None and last.removed:
        path = position.get("old_path") or path
    ends = position.get("line_range") or {}
    first, end = _side(ends.get("start") or {}), _side(ends.get("end") or {})
    last = end or last
    suggested = suggestions_in_words(body, None, last)
    return ", ".join(filter(None, [lines_in_words(str(path), first, last), suggested]))


def _side(position: dict[str, Any]) -> Side | None:
    if line := position.get("new_line"):
        return Side(int(line))
    return Side(int(line), removed=True) if (line := position.get("old_line")) else None
