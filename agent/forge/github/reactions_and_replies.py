"""Adds reactions and answers to comments on GitHub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import ForgeError, ForgeRefused
from agent.forge.markers import all_in, hidden_in
from agent.forge.post_once import post_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agent.forge.base import Comment
    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project

EYES = "eyes"


def react(wire: GitHubWire, project: Project, number: str, comment: Comment | None) -> None:
    """Add the reaction 👀 to the comment, or to the issue `number` if `comment` is None.

    If an account adds the same reaction twice, GitHub stores it once.

    GitHub's REST API has no reactions to the text of a review, so a reaction to a review is added through GraphQL:
    https://docs.github.com/en/rest/reactions/reactions, https://docs.github.com/en/graphql/reference/mutations
    ("addReaction").
    """
    if comment is not None and comment.id.startswith("v"):
        node = comment.address.partition("/")[2]
        wire.mutations([("addReaction", {"subjectId": node, "content": EYES.upper()}, "reaction { content }")])
        return
    if comment is None:
        place = f"issues/{number}"
    elif comment.id.startswith("r"):
        place = f"pulls/comments/{comment.id[1:]}"
    else:
        place = f"issues/comments/{comment.id}"
    wire.call("POST", f"{project.path}/{place}/reactions", body={"content": EYES}, again=False)


def reply(wire: GitHubWire, project: Project, comment: Comment, text: str, is_own: Callable[[Any], bool]) -> str:
    """Answer a comment on a line in the comment's thread, and any other comment in the conversation of its issue or
    pull request.

    GitHub accepts an answer only to the first comment of a thread; if GitHub answers 404 for the thread, the answer is
    posted in the conversation: https://docs.github.com/en/rest/pulls/comments ("Create a reply for a review comment").
    """
    number, thread = _place(comment)
    marker = hidden_in(text)

    def find() -> str | None:
        return None if marker is None else find_reply(wire, project, comment, marker, is_own)

    def send(path: str, kind: str) -> str:
        def post() -> str:
            return f"{kind}{wire.call('POST', f'{project.path}/{path}', body={'body': text}, again=False).data['id']}"

        return post_once(post, find)

    if thread:
        try:
            return send(f"pulls/{number}/comments/{thread}/replies", "r")
        except ForgeRefused as error:
            if error.status != 404:
                raise
    return send(f"issues/{number}/comments", "")


def find_reply(
    wire: GitHubWire, project: Project, comment: Comment, marker: str, is_own: Callable[[Any], bool]
) -> str | None:
    """The id of the own account's answer with the marker, in the conversation or, for a comment on a line, among the
    comments on lines of the pull request; None if there is no such answer."""
    number, thread = _place(comment)
    places = [(f"issues/{number}/comments", ""), *([(f"pulls/{number}/comments", "r")] if thread else [])]
    for path, kind in places:
        for item in wire.pages(f"{project.path}/{path}"):
            if marker in all_in(str(item.get("body") or "")) and is_own(item.get("user")):
                return f"{kind}{item['id']}"
    return None


def _place(comment: Comment) -> tuple[str, str]:
    """Reads the parts of `Comment.address`: (number of the issue or pull request, id of the first comment of the thread
    or "")."""
    number, _, rest = comment.address.partition("/")
    if re.fullmatch(r"[1-9][0-9]{0,9}", number) is None:
        raise ForgeError(f"comment {comment.id!r} has no place that this program knows")
    return number, rest if comment.id.startswith("r") else ""
