"""Replies to a command or mention that has no effect, and gives the reason: one reply per comment.

Only people with permission to give commands get a reply, since the adapters deliver no other comments.  The row records
the id of the comment.  If the process died before that, the marker of the reply prevents a second reply.
`intake/comment_poller.py` replies for the daemon, `worker/session.py` for a running task.
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
"""The reasons are: the issue is closed; a daily limit is used up; the task has ended; a worker has the task already."""


def post_reply(
    ledger: Ledger, forge: Forge, events: Events, door: PublishFilter, row: Row, comment: Comment, why: Why
) -> None:
    """Post the reply to the comment, unless the comment has a reply or took effect before.

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
