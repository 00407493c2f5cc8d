"""What a comment asks of the program: a word on its own line at the start, or the account's name.

One place for every forge: adapters deliver comments of people who may speak, this says what they mean.  A word counts
as the first line of a comment and nowhere else, so that a quotation, a code block and a sentence about `/stop` stop
nothing; a mention in code or in a quotation is none.  Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.forge.base import Comment

Order = Literal["stop", "pause", "resume", "retry"]
ORDERS: tuple[Order, ...] = get_args(Order)
"""What a person may write with a slash before it."""

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_QUOTED = re.compile(r"^(?: {0,3}>| {4}|\t).*$", re.MULTILINE)
_WORD = re.compile(rf" {{0,3}}/({'|'.join(ORDERS)})[ \t]*", re.IGNORECASE)


def order_in(comment: Comment, names: Sequence[str]) -> Order | None:
    """The word that a new comment begins with, with or without a mention before it on the line; else None.  An edit
    gives no order: what it said first was obeyed, or was none."""
    if comment.is_bot or comment.is_edit:
        return None
    first, _ = _split(comment.body)
    found = _WORD.fullmatch(_without_mention(first, names))
    return next((order for order in ORDERS if order == found[1].lower()), None) if found else None


def talk_in(comment: Comment, names: Sequence[str]) -> str:
    """What is left for the model when the order is taken out; "" for an order alone."""
    return _split(comment.body)[1].strip() if order_in(comment, names) else comment.body


def mentions(comment: Comment, names: Sequence[str]) -> bool:
    """Whether a new comment of a person calls one of `names`, outside of code and quotations."""
    if comment.is_bot or comment.is_edit:
        return False
    text = _QUOTED.sub("", _INLINE.sub("", _FENCED.sub("", comment.body.replace("\r\n", "\n"))))
    return any(_mention(name).search(text) for name in names)


def _split(body: str) -> tuple[str, str]:
    """(the first line that is not empty, the rest)."""
    first, _, rest = body.replace("\r\n", "\n").lstrip("\n").partition("\n")
    return (first, rest) if first.strip() or not rest else _split(rest)


def _without_mention(line: str, names: Sequence[str]) -> str:
    for name in names:
        if (found := _mention(name).match(line)) is not None:
            return line[found.end() :].lstrip(" \t,:")
    return line


def _mention(name: str) -> re.Pattern[str]:
    """`@name`, and no longer name that begins with it, no address and no path."""
    return re.compile(rf"(?<![\w@/.+-])@{re.escape(name)}(?![\w/@\[]|[-.]\w)", re.IGNORECASE)
