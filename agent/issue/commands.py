"""Finds commands and mentions in a comment, for every forge.

Adapters deliver only comments of people who have permission to give commands.  A command counts only if it is alone on
the first line of a comment (a mention may precede it), so that a quotation, a code block or a sentence about `/stop`
stops nothing.  A mention in code, in a quotation or in hidden text does not count.  A Markdown parser recognises code,
quotations and hidden text in a comment (`security/unquoted_text.py`).

`/makimono` at the beginning of a comment calls the program as a mention of its account does. A person calls the program
by `/makimono` where the account belongs to a person, since a mention may then be meant for that person.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from agent.security.unquoted_text import own_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.forge.base import Comment

Command = Literal["stop", "pause", "resume", "retry"]
COMMANDS: tuple[Command, ...] = get_args(Command)
"""The commands that a person may write, without the slash."""

_CALL = re.compile(r" {0,3}/makimono(?![\w/.-])[ \t]*[,:]?[ \t]*", re.IGNORECASE)
_CALLED_WORD = re.compile(rf"/?({'|'.join(COMMANDS)})[ \t]*", re.IGNORECASE)
_WORD = re.compile(rf" {{0,3}}/({'|'.join(COMMANDS)})[ \t]*", re.IGNORECASE)


def command_in(comment: Comment, names: Sequence[str]) -> Command | None:
    """The command on the first line of a new comment of a person, with or without a mention before it; None if the
    comment has no command.

    An edited comment never counts as a command, since its first version was already processed.
    """
    if comment.is_bot or comment.is_edit:
        return None
    found = _order(_split(comment.body)[0], names)
    if found is not None and _order(own_text(comment.body).partition("\n")[0], names) is None:
        return None
    return next((order for order in COMMANDS if order == found[1].lower()), None) if found else None


def message_in(comment: Comment, names: Sequence[str]) -> str:
    """The text of the comment without its command, for the model; "" if the comment has only a command."""
    return _split(comment.body)[1].strip() if command_in(comment, names) else comment.body


def mentions(comment: Comment, names: Sequence[str]) -> bool:
    """Whether a new comment of a person mentions one of `names` outside of code and quotations."""
    if comment.is_bot or comment.is_edit:
        return False
    called = [_mention(name) for name in names]
    if not any(one.search(comment.body) for one in called):
        return False  # a fast check of the text, so that most comments need not be parsed as Markdown
    text = own_text(comment.body)
    return any(one.search(text) for one in called)


def calls(comment: Comment, names: Sequence[str]) -> bool:
    """Whether a new comment of a person calls the program: by a mention of one of `names`, or by `/makimono` at the
    beginning of its first line."""
    if mentions(comment, names):
        return True
    if comment.is_bot or comment.is_edit or _CALL.match(_split(comment.body)[0]) is None:
        return False
    return _CALL.match(own_text(comment.body).partition("\n")[0]) is not None


def _order(line: str, names: Sequence[str]) -> re.Match[str] | None:
    if (call := _CALL.match(line)) is not None:
        return _CALLED_WORD.fullmatch(line, call.end())
    return _WORD.fullmatch(_without_mention(line, names))


def _split(body: str) -> tuple[str, str]:
    """Split a comment: (its first line that is not empty, the text after that line)."""
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
    """A pattern that matches `@name`, but not a longer name that begins with it, an e-mail address or a path."""
    return re.compile(rf"(?<![\w@/.+-])@{re.escape(name)}(?![\w/@\[]|[-.]\w)", re.IGNORECASE)
