"""What a comment asks of the program: a word on its own line at the start, or the account's name.

One place for every forge: adapters deliver comments of people who may speak, this says what they mean.  A word counts
as the first line of a comment and nowhere else, so that a quotation, a code block and a sentence about `/stop` stop
nothing; a mention in code, in a quotation or in what is not shown is none.  What is which, a Markdown parser decides
(`security/spoken.py`).  Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from agent.security.spoken import spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.forge.base import Comment

Order = Literal["stop", "pause", "resume", "retry"]
ORDERS: tuple[Order, ...] = get_args(Order)
"""What a person may write with a slash before it."""

_WORD = re.compile(rf" {{0,3}}/({'|'.join(ORDERS)})[ \t]*", re.IGNORECASE)


def order_in(comment: Comment, names: Sequence[str]) -> Order | None:
    """The word that a new comment begins with, with or without a mention before it on the line; else None.  An edit
    gives no order: what it said first was obeyed, or was none."""
    if comment.is_bot or comment.is_edit:
        return None
    found = _order(_split(comment.body)[0], names)
    if found is not None and _order(spoken(comment.body).partition("\n")[0], names) is None:
        return None
    return next((order for order in ORDERS if order == found[1].lower()), None) if found else None


def talk_in(comment: Comment, names: Sequence[str]) -> str:
    """What is left for the model when the order is taken out; "" for an order alone."""
    return _split(comment.body)[1].strip() if order_in(comment, names) else comment.body


def mentions(comment: Comment, names: Sequence[str]) -> bool:
    """Whether a new comment of a person calls one of `names`, outside of code and quotations."""
    if comment.is_bot or comment.is_edit:
        return False
    called = [_mention(name) for name in names]
    if not any(one.search(comment.body) for one in called):
        return False  # most comments are not parsed
    text = spoken(comment.body)
    return any(one.search(text) for one in called)


def _order(line: str, names: Sequence[str]) -> re.Match[str] | None:
    return _WORD.fullmatch(_without_mention(line, names))


def _split(body: str) -> tuple[str, str]:
    """(the first line that is not empty, the rest)."""
    text = body.replace("\r\n", "\n")
    start = text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1
    first, _, rest = text[start:].partition("\n")
    return first, rest


def _without_mention(line: str, names: Sequence[str]) -> str:
    for name in names:
        if (found := _mention(name).match(line)) is not None:
            return line[found.end() :].lstrip(" \t,:")
    return line


def _mention(name: str) -> re.Pattern[str]:
    """`@name`, and no longer name that begins with it, no address and no path."""
    return re.compile(rf"(?<![\w@/.+-])@{re.escape(name)}(?![\w/@\[]|[-.]\w)", re.IGNORECASE)
