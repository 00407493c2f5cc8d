"""Shows and says something at a comment of GitHub: reactions.

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
    """Show 👀 at the comment, or without one at the issue `number`; GitHub has a reaction of an account only once.

    REST has no reaction to the text of a review, so that one is made through GraphQL:
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
