"""Adds reactions to comments, reviews and issues on GitHub.

`forge.py` calls this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.forge.base import Comment
    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project

EYES = "eyes"


def react(wire: GitHubWire, project: Project, number: str, comment: Comment | None) -> None:
    """Add the reaction 👀 to the comment, or to the issue `number` if `comment` is None.

    GitHub stores the same reaction of an account once.

    The REST API has no reactions to the text of a review, so such a reaction is added through GraphQL:
    https://docs.github.com/en/rest/reactions/reactions, https://docs.github.com/en/graphql/reference/mutations
    ("addReaction").
    """
    if comment is not None and comment.id.startswith("v"):
        node = comment.address.partition("/")[2]
        wire.mutation("addReaction", {"subjectId": node, "content": EYES.upper()}, "reaction { content }")
        return
    if comment is None:
        place = f"issues/{number}"
    elif comment.id.startswith("r"):
        place = f"pulls/comments/{comment.id[1:]}"
    else:
        place = f"issues/comments/{comment.id}"
    wire.call("POST", f"{project.path}/{place}/reactions", body={"content": EYES}, again=False)
