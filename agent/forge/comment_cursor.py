"""The cursor that records which comments of an issue were read, for the forges that can list the comments changed since
a time.

A cursor is JSON text: `t` is the time of the newest change that was read, `d` maps comment id → digest of the text that
was read, `p` has the numbers of the pull (merge) requests that are read together with the issue, `n` has the ones of
`p` that were never read, `i` is the digest of the issue's own title and text.  The caller stores the cursor in the
task's row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.forge.base import Comment
from agent.observe.error_tolerant_loop import ItemLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from agent.errors import AnswerOdd

OVERLAP = timedelta(seconds=30)
"""Each request for new comments or changed issues begins this much time before the newest change that was read. The
clocks of a host's processes differ, their writes may end in another order, and the times of GitHub and Forgejo are
whole seconds; the cursors tell what was read already."""

REMEMBERED = 1000
"""The maximum number of digests of comments in a cursor; an edit of a comment without a digest is reported as a new
comment."""


@dataclass(frozen=True, slots=True)
class CommentCursor:
    """Which comments of an issue and of its pull requests were read.

    `since` is the time of the newest change that was read, "" if no comment was read. `text_seen` is the digest of the
    issue's title and text, "" if the issue was not read. `new` are those of `pulls` that were never read, so that
    `since` does not hold for them.
    """

    since: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    pulls: tuple[int, ...] = ()
    text_seen: str = ""
    new: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> CommentCursor:
        """Make a cursor from a result of `text()`; None or any other text gives an empty cursor, so that all comments
        are read."""
        try:
            found = orjson.loads(text or "")
            since, digests, pulls = str(found["t"]), dict(found["d"]), tuple(int(number) for number in found["p"])
            if since:
                clock.parse(since)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()
        text_seen = str(found.get("i") or "")
        new = tuple(number for number in pulls if number in (found.get("n") or ()))
        return cls(since, {str(key): str(value) for key, value in digests.items()}, pulls, text_seen, new)

    def with_pull(self, number: int) -> CommentCursor:
        """A cursor with which the comments of pull request `number` are read too, from the first comment on; the
        unchanged cursor if it includes that pull request already."""
        if number in self.pulls:
            return self
        return replace(self, pulls=(*self.pulls, number), new=(*self.new, number))

    def begin(self) -> datetime | None:
        """The time from which the next request has to ask for changed comments: OVERLAP before `since`; None for all
        comments."""
        return clock.parse(self.since) - OVERLAP if self.since else None

    def query(self) -> dict[str, str]:
        """The query parameter `since` of GitHub and Forgejo for the time `begin`, in whole seconds; {} for all
        comments."""
        begin = self.begin()
        return {} if begin is None else {"since": begin.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def text(self) -> str:
        """The cursor of comments as one line of JSON."""
        more: dict[str, object] = {"i": self.text_seen} if self.text_seen else {}
        more |= {"n": list(self.new)} if self.new else {}
        return orjson.dumps({"t": self.since, "d": self.digests, "p": list(self.pulls), **more}).decode()


def odd_comment(error: AnswerOdd) -> None:
    """Log an unreadable comment, once for each error text; the caller leaves the comment out."""
    with _ODD.handling(str(error)):
        raise error


def with_pull(cursor: str | None, number: str | None) -> str | None:
    """A stored cursor, extended so that the comments of pull request `number` are read too (`ForgeReports.with_pull`).

    The text of the cursor is returned unchanged if `number` is None, or the cursor includes that pull request
    already."""
    known = CommentCursor.parse(cursor)
    if number is None or (more := known.with_pull(int(number))) is known:
        return cursor
    return more.text()


_ODD = ItemLoop.logging("comments")


def news_of(
    cursor: CommentCursor,
    found: Iterable[tuple[Comment, Any]],
    is_ours: Callable[[Any, str], bool],
    may_ask: Callable[[Any], bool],
) -> tuple[tuple[Comment, ...], CommentCursor, int]:
    """Select from the comments that a forge lists since a cursor (`found`, each with its author): (new and edited
    comments of people with permission, the next cursor, the number of new and edited comments of people without
    permission). `is_ours` gets the author and the text of a comment, and returns whether this program has written the
    comment.

    The times of the comments must be in UTC and in one format, so that they sort as text. If the time of the newest
    change and the digests are the same as in `cursor`, and no pull request of the cursor is `new`, the next cursor is
    the object `cursor` itself.
    """
    newest, digests, left_out = cursor.since, dict(cursor.digests), 0
    news: list[Comment] = []
    for comment, user in found:
        newest = max(newest, comment.updated_at)
        known = digests.pop(comment.id, None)
        digests[comment.id] = digest(comment.body)
        if known == digests[comment.id] or is_ours(user, comment.body):
            continue
        if may_ask(user):
            news.append(replace(comment, is_edit=known is not None))
        else:
            left_out += 1
    kept = dict(list(digests.items())[-REMEMBERED:])
    news.sort(key=lambda comment: (comment.created_at, len(comment.id), comment.id))
    if newest == cursor.since and kept == cursor.digests and not cursor.new:
        return tuple(news), cursor, left_out
    return tuple(news), replace(cursor, since=newest, digests=kept, new=()), left_out


def digest_of(title: str, body: str) -> str:
    """A digest of twelve hexadecimal digits of an issue's title and text."""
    return digest(f"{title}\0{body}")


def edited(title: str, body: str, seen: str, author: str, when: str, *, is_bot: bool = False) -> Comment:
    """A `Comment` that represents an edit of the issue's title or text.

    An edit is delivered like a comment, but cannot be a command (`is_edit`).
    """
    said = f"# {title}\n\n{body}"
    return Comment(f"text-{seen}", author, said, when, when, is_bot, is_edit=True, place="The issue itself was edited")


def digest(text: str) -> str:
    """A digest of twelve hexadecimal digits of a comment's text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
