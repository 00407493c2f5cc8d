"""Replies to a comment with a command or mention that has no effect, and gives the reason; each comment gets one reply.

Only people with permission to give commands get a reply, since the adapters of forges deliver no comments of other
people. The task's row records the ids of comments that have a reply. If the process dies after it has posted a reply
and before the row records it, the marker of the reply prevents a second reply.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from agent.issue.commands import command_in
from agent.issue.comments import post_once, truncate

if TYPE_CHECKING:
    from agent.forge.base import Comment, Forge
    from agent.issue.publish_filter import PublishFilter
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row

Why = Literal["closed", "limit", "ended", "running"]
"""The reason why a command or mention has no effect: the issue is closed; a daily limit is used up; the task has ended;
a worker already works on the task."""


def post_reply(
    ledger: Ledger, forge: Forge, events: Events, door: PublishFilter, row: Row, comment: Comment, why: Why
) -> None:
    """Post the reply to `comment`, unless the comment already has a reply or its command was executed.

    Raises ForgeError or LedgerError.
    """
    if comment.id in row.handled_comments:
        return
    names = forge.own_names()
    text = door.render(
        "answer",
        why=why,
        order=command_in(comment, names) or "",
        status=str(row.status),
        mention=f"@{names[-1]}",
        uuid=row.uuid,
    )
    name = f"answer-{re.sub(r'[^A-Za-z0-9._-]', '-', comment.id)}"
    post_once(forge, row.key, row.uuid, name, lambda: truncate(text, forge, row.uuid), None)
    ledger.mark_answered(row.uuid, comment.id)
    events.emit("effect_done", uuid=row.uuid, effect="answer")
