"""Where a reader of comments left off, for the forges that have a "changed since": one cursor for all of them.

A cursor is JSON text: `t` the newest change seen, `d` id → digest of what was seen, `p` the pull (merge) requests that
are listened to beside the issue, `i` the digest of the issue's own title and text.  So an adapter keeps nothing between
calls, and the caller's row does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson

from agent import clock
from agent.forge.base import Comment
from agent.observe.items import Items

if TYPE_CHECKING:
    from agent.errors import AnswerOdd

REMEMBERED = 1000  # digests in a cursor; an edit of an older comment is news even when it changed nothing


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a reader left off.  `since` is "" before the first comment, `text_seen` "" where the issue was not read."""

    since: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    pulls: tuple[int, ...] = ()
    text_seen: str = ""

    @classmethod
    def of(cls, text: str | None) -> Cursor:
        """From what `text()` wrote; anything else counts as the beginning."""
        try:
            found = orjson.loads(text or "")
            since, digests, pulls = str(found["t"]), dict(found["d"]), tuple(int(number) for number in found["p"])
            if since:
                clock.parse(since)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()
        text_seen = str(found.get("i") or "")
        return cls(since, {str(key): str(value) for key, value in digests.items()}, pulls, text_seen)

    def text(self) -> str:
        """One line of JSON."""
        more = {"i": self.text_seen} if self.text_seen else {}
        return orjson.dumps({"t": self.since, "d": self.digests, "p": list(self.pulls), **more}).decode()


def odd_comment(error: AnswerOdd) -> None:
    """A comment that cannot be read is left out, and logged once."""
    with _ODD.one(str(error)):
        raise error


_ODD = Items.logged("comments")


def digest_of(title: str, body: str) -> str:
    """Twelve hexadecimal digits for an issue's title and text."""
    return digest(f"{title}\0{body}")


def edited(title: str, body: str, seen: str, author: str, when: str, *, is_bot: bool = False) -> Comment:
    """An edit of the issue's own title or text, as a comment: heard like one, and no order (`is_edit`)."""
    said = f"# {title}\n\n{body}"
    return Comment(f"text-{seen}", author, said, when, when, is_bot, is_edit=True, place="The issue itself was edited")


def digest(text: str) -> str:
    """Twelve hexadecimal digits for a comment's text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
