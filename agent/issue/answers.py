"""Posts the answers to single comments in the threads or conversations of these comments, each answer only once.

`worker/replies.py` composes the answers to comments at the end of a run; the answers are stored with the end of the
task, so that the process that posts the end (`worker/notify.py`, `daemon/finalize.py`) posts the answers too.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment, ForgeReports
from agent.forge.markers import marker, with_markers
from agent.issue.comments import post_once
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.values import Effects, Json, TaskKey

_REFUSED = (ForgeRefused, ForgeAccessRefused, IssueUnreadable)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is ready to be posted.  `comment` is the comment that is answered, without its text; with
    `settled`, the work that `comment` asks for is done."""

    comment: Comment
    text: Public
    settled: bool = False

    @classmethod
    def to(cls, comment: Comment, text: Public, *, settled: bool) -> Self:
        """Make an answer to `comment`; the answer does not contain the text of the comment."""
        return cls(replace(comment, body="", hunk=""), text, settled)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Make an answer from a result of `to_dict`."""
        return cls(Comment(**record["comment"]), Public(record["text"]), bool(record["settled"]))

    def to_dict(self) -> Json:
        return asdict(self)

    @property
    def name(self) -> str:
        """The name of the effect of posting this answer, and of the answer's marker."""
        return f"reply-{re.sub(r'[^A-Za-z0-9._-]', '-', self.comment.id)}"


def post_replies(
    forge: Forge,
    key: TaskKey,
    uuid: str,
    replies: Iterable[Reply],
    events: Events,
    effects: Effects | None,
    check_held: Callable[[], None] = lambda: None,
) -> None:
    """Post each answer once, and resolve the thread of its comment if the answer is `settled`.  `check_held` is called
    before each post, since the search for the answer takes time.

    An answer that the forge refuses at its place (a thread that is gone, a locked conversation) is posted on the issue.
    Raises ForgeError when the forge does not answer.
    """
    for one in replies:
        try:
            _post(forge, key, uuid, one, effects, check_held)
        except _REFUSED as error:
            events.emit("effect_failed", uuid=uuid, effect=one.name, error=str(error))
            check_held()
            post_once(forge, key, uuid, f"{one.name}-here", lambda text=one.text: text, effects)  # type: ignore[misc]
        events.emit("effect_done", uuid=uuid, effect=one.name)
        if one.settled:
            try:
                ForgeReports(forge).settle_thread(key, one.comment)
            except ForgeError as error:  # if the thread cannot be resolved, the task ends nevertheless
                events.emit("effect_failed", uuid=uuid, effect=f"{one.name}-settled", error=str(error))


def _post(
    forge: Forge, key: TaskKey, uuid: str, one: Reply, effects: Effects | None, check_held: Callable[[], None]
) -> None:
    mark, reports = marker(uuid, one.name), ForgeReports(forge)

    def look_up() -> Json | None:
        found = reports.find_reply(key, one.comment, mark)
        return None if found is None else {"id": found}

    def post() -> Json:
        check_held()
        return {"id": reports.reply(key, one.comment, with_markers(one.text, mark))}

    if effects is None:
        if look_up() is None:
            post()
    else:
        effects.once(one.name, look_up, post)
