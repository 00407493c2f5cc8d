"""Adds reactions (award emoji) to notes, issues and merge requests on GitLab.

`forge.py` calls this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import ForgeError, ForgeRefused
from agent.forge.gitlab.http import QUICK

if TYPE_CHECKING:
    from agent.forge.base import Comment
    from agent.forge.gitlab.http import GitLabWire

EYES = "eyes"
_ADDRESS = re.compile(r"(?:issues|merge_requests)/[1-9][0-9]{0,9}")


def react(wire: GitLabWire, project: str, item: str, comment: Comment | None) -> None:
    """Add the reaction 👀 to the note, or, if there is no note, to `item`, the API path of the issue or merge request.
    `project` is the path of the project.

    GitLab refuses a second award of one name with 404 and "has already been taken": https://docs.gitlab.com/api/emoji_reactions/
    and https://gitlab.com/gitlab-org/gitlab/-/issues/26060.
    """
    path = item if comment is None else f"{project}/{place_of(comment)}/notes/{comment.id}"
    try:
        wire.call("POST", f"{path}/award_emoji", body={"name": EYES}, again=False, patience=QUICK)
    except ForgeRefused as error:
        if "already been taken" not in " ".join((*error.reasons, str(error))):
            raise


def place_of(comment: Comment) -> str:
    """The issue or merge request to which the note belongs, as a part of an API path."""
    found = _ADDRESS.match(comment.address)
    if found is None:
        raise ForgeError(f"comment {comment.id!r} has no place that this program knows")
    return found[0]
