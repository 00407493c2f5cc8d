"""Adds reactions (award emoji) and answers to notes of GitLab, and resolves their discussions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, ForgeRefused
from agent.forge.gitlab.http import is_missing
from agent.forge.gitlab.merge_requests import LOOK_UP_WAIT
from agent.forge.gitlab.notes import COMMENTS
from agent.forge.host_client import QUICK
from agent.forge.markers import all_in, hidden_in
from agent.forge.post_once import post_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agent.forge.base import Comment
    from agent.forge.gitlab.http import GitLabWire

EYES = "eyes"
_ADDRESS = re.compile(r"((?:issues|merge_requests)/[1-9][0-9]{0,9})(?:/([0-9a-f]+))?")


def react(wire: GitLabWire, project: str, item: str, comment: Comment | None) -> None:
    """Add the reaction 👀 to the note, or, if there is no note, to `item`, the API path of the issue or merge request.
    `project` is the API path of the project.

    A review that requests changes is a system note, which takes no emoji, so the merge request gets it:
    https://gitlab.com/gitlab-org/gitlab/-/blob/master/app/models/note.rb (`emoji_awardable?`).

    If the account has given the note this emoji already, GitLab answers 404 and "has already been taken", which does
    not count as an error: https://docs.gitlab.com/api/emoji_reactions/ and
    https://gitlab.com/gitlab-org/gitlab/-/issues/26060.
    """
    path = item if comment is None else f"{project}/{place_of(comment)}"
    if comment is not None and not comment.requests_changes:
        path += f"/notes/{comment.id}"
    try:
        wire.call("POST", f"{path}/award_emoji", body={"name": EYES}, again=False, patience=QUICK)
    except ForgeRefused as error:
        if "already been taken" not in " ".join((*error.reasons, str(error))):
            raise


def place_of(comment: Comment) -> str:
    """The issue or merge request where the note stands, as a part of an API path."""
    return _place(comment)[0]


def _place(comment: Comment) -> tuple[str, str]:
    """Reads the parts of `Comment.address`: (issue or merge request as a part of an API path, id of the discussion or
    "")."""
    found = _ADDRESS.fullmatch(comment.address)
    if found is None:
        raise ForgeError(f"comment {comment.id!r} has no place that this program knows")
    return found[1], found[2] or ""


def reply(wire: GitLabWire, project: str, comment: Comment, text: str, is_own: Callable[[Any], bool]) -> str:
    """Answer a note in its discussion; a note without a discussion becomes the first note of a new discussion. If the
    discussion is gone, or `comment` is a review that requests changes, the answer is posted as a separate note:
    https://docs.gitlab.com/api/discussions/."""
    item = f"{project}/{place_of(comment)}"
    thread = "" if comment.requests_changes else discussion_of(wire, project, comment)
    marker = hidden_in(text)

    def find() -> str | None:
        clock.sleep(LOOK_UP_WAIT)
        return None if marker is None else find_reply(wire, project, comment, marker, is_own)

    def send(path: str) -> str:
        return post_once(lambda: str(wire.call("POST", path, body={"body": text}, again=False).data["id"]), find)

    if thread:
        try:
            return send(f"{item}/discussions/{thread}/notes")
        except ForgeRefused as error:
            if not is_missing(error):
                raise
    return send(f"{item}/notes")


def find_reply(
    wire: GitLabWire, project: str, comment: Comment, marker: str, is_own: Callable[[Any], bool]
) -> str | None:
    """The id of the own account's note with the marker on the issue or merge request of the comment; None if there is
    no such note."""
    for note in wire.pages(f"{project}/{place_of(comment)}/notes", query=COMMENTS):
        if marker in all_in(str(note.get("body") or "")) and is_own(note.get("author")):
            return str(note["id"])
    return None


def resolve_discussion(wire: GitLabWire, project: str, comment: Comment) -> None:
    """Resolve the whole discussion of a note on a merge request; if the discussion is gone, nothing is done. Nothing is
    done for a note on an issue either, since GitLab cannot resolve a discussion of an issue:
    https://docs.gitlab.com/api/discussions/ ("Resolve a merge request thread")."""
    place = place_of(comment)
    if place.startswith("merge_requests/") and (thread := discussion_of(wire, project, comment)):
        wire.call("PUT", f"{project}/{place}/discussions/{thread}", body={"resolved": True})


def discussion_of(wire: GitLabWire, project: str, comment: Comment) -> str:
    """The id of the discussion of a note, "" if the discussion is gone; the discussions are requested only if the note
    had no thread when it was read."""
    place, thread = _place(comment)
    if thread:
        return thread
    for one in wire.pages(f"{project}/{place}/discussions"):
        if any(str(note["id"]) == comment.id for note in one.get("notes") or ()):
            return str(one["id"])
    return ""
