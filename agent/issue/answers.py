"""Posts the answers to single comments in the threads or conversations of these comments, each answer only once.

`worker/replies.py` composes the answers to comments at the end of a run; the answers are stored with the end of the
task, so that the process that posts the end (`worker/notify.py`, `daemon/finalize.py`) posts the answers too.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment, ForgeReports
from agent.forge.markers import marker, with_markers
from agent.issue.comments import held_text, post_once
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.forge.base import Forge
    from agent.issue.publish_filter import PublishFilter
    from agent.observe.events import Events
    from agent.values import Effects, Json, TaskKey

QUOTED = 120
"""The maximum number of characters that an answer quotes from a comment, if the comment has no thread for the
answer."""
NO_COMMENT = ("ci-", "assigned-", "issue-text")
"""The beginnings of `started_by` in the rows of tasks that no comment has started."""
_REFUSED = (ForgeRefused, ForgeAccessRefused, IssueUnreadable)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is ready to be posted. `comment` is the comment that the reply answers, without its text; with
    `settled`, the work that `comment` asks for is done. `effect` is the name of the effect of posting, if the reply is
    not the only answer to `comment`."""

    comment: Comment
    text: Public
    settled: bool = False
    effect: str = ""

    @classmethod
    def for_comment(cls, comment: Comment, text: Public, *, settled: bool) -> Self:
        """Make a reply to `comment`; the reply does not contain the text of the comment."""
        return cls(replace(comment, body="", hunk=""), text, settled)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Make a reply from a result of `to_dict`."""
        comment, text = Comment(**record["comment"]), Public(record["text"])
        return cls(comment, text, bool(record["settled"]), str(record.get("effect") or ""))

    def to_dict(self) -> Json:
        return asdict(self)

    @property
    def name(self) -> str:
        """The name of the effect of posting this reply, and of the reply's marker."""
        return self.effect or f"reply-{re.sub(r'[^A-Za-z0-9._-]', '-', self.comment.id)}"


def comments_by_id(forge: Forge, key: TaskKey, urls: Iterable[str]) -> dict[str, Comment]:
    """Id → comment of a person, of the issue and of the pull requests with the addresses `urls`.  Raises ForgeError."""
    reports, cursor = ForgeReports(forge), None
    for url in urls:
        cursor = reports.with_pull(cursor, url)
    return {one.id: one for one in forge.comments_since(key, cursor)[0]}


def asking_comment(forge: Forge, key: TaskKey, started_by: str | None, urls: Iterable[str]) -> Comment | None:
    """The comment that has started a task (`started_by` in the task's row), if the comment stands on a pull request (in
    its conversation, a thread or a review); None if it stands on the issue or is gone, or if no comment started the
    task.  `urls` are the addresses of the pull requests on which the comment may stand.  Raises ForgeError."""
    if not started_by or started_by.startswith(NO_COMMENT):
        return None
    found = comments_by_id(forge, key, urls).get(started_by)
    return found if found is not None and found.place else None


def quoted(door: PublishFilter, comment: Comment, words: str) -> Public:
    """`words` as an answer to `comment`; if the comment has no thread, the answer begins with a quotation of the
    comment."""
    quote = "" if comment.has_thread else _quote(comment.body)
    return door.render("reply", words=words, author=comment.author, quote=quote, link=comment.url)


def headed(door: PublishFilter, comment: Comment, text: Public) -> Public:
    """A text of a task as an answer to `comment`; if the comment has no thread, the answer begins with a quotation of
    the comment."""
    heading = "" if comment.has_thread else f"{quoted(door, comment, '').rstrip()}\n\n"
    return Public(f"{heading}{text}")


def _quote(body: str) -> str:
    line = " ".join(body.split())
    return line if len(line) <= QUOTED else f"{line[: QUOTED - 1]}…"


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
    just before each change on the forge, since the search for the answer takes time.

    An answer that the forge refuses next to its comment (a thread that is gone, a locked conversation) is posted on the
    issue. Raises ForgeError when the forge does not answer.
    """
    for one in replies:
        try:
            _post(forge, key, uuid, one, effects, check_held)
        except _REFUSED as error:
            events.emit("effect_failed", uuid=uuid, effect=one.name, error=str(error))
            post_once(forge, key, uuid, f"{one.name}-here", partial(held_text, one.text, check_held), effects)
        events.emit("effect_done", uuid=uuid, effect=one.name)
        if one.settled:
            check_held()
            try:
                ForgeReports(forge).settle_thread(key, one.comment)
            except ForgeError as error:  # if the forge cannot resolve the thread, the task ends nevertheless
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
