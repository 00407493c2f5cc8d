"""A person whose order, or mention, changes nothing is told why: one comment, once for each of theirs.

Used for people who may give orders only: the adapters deliver no others.  The row remembers the comment, and a marker
finds the answer of one who died before that.  Called by `attention.py`, and for a running task by `task_run.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from agent.run.comments import fit, post_once
from agent.run.words import order_in

if TYPE_CHECKING:
    from agent.forge.base import Comment, Forge
    from agent.observe.events import Events
    from agent.run.publishable import Door
    from agent.taskqueue import Ledger, Row

Why = Literal["closed", "limit", "ended", "running"]
"""The issue is closed; a daily limit is used up; the task has ended; it is being worked on."""


def answer(ledger: Ledger, forge: Forge, events: Events, door: Door, row: Row, comment: Comment, why: Why) -> None:
    """Post the answer to the comment, unless it was answered or obeyed before.  ForgeError, LedgerError."""
    if comment.id in row.orders:
        return
    names = forge.names()
    text = door.render(
        "answer",
        why=why,
        order=order_in(comment, names) or "",
        status=str(row.status),
        mention=f"@{names[-1]}",
        uuid=row.uuid,
    )
    name = f"answer-{re.sub(r'[^A-Za-z0-9._-]', '-', comment.id)}"
    post_once(forge, row.key, row.uuid, name, lambda: fit(text, forge, row.uuid), None)
    ledger.answered(row.uuid, comment.id)
    events.emit("effect_done", uuid=row.uuid, effect="answer")
