"""The words of every comment, pull request and commit: a template, filled with values that can do nothing.

The one border for what goes out.  What the template itself says is ours; every value that is filled in loses secrets
first and then whatever closes, calls or commands (`security/inert.py`), whoever wrote it: model, issue, command or
host.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent import prompts
from agent.prompts import Live
from agent.security import inert

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Redact

WORDS: dict[str, Callable[[str], str]] = {
    "answer": inert.markdown,
    "commit": inert.plain,
    "final": inert.markdown,
    "progress": inert.markdown,
    "pull_request": inert.description,
}
"""Template of what others read → how its values are made inert."""


def render(name: str, redact: Redact, /, **values: object) -> str:
    """The text of a template for others to read."""
    return prompts.publish(name, WORDS[name], redact, **values)


def title(text: str, redact: Redact) -> str:
    """The title of a pull request; a merge makes it the subject of a commit."""
    return inert.plain(redact(text))


def commit_message(template: str, redact: Redact, /, **values: object) -> str:
    """The operator's own template of a commit message, filled."""
    return prompts.publish_text(template, inert.plain, redact, **values)


def signed_off(message: str, author: tuple[str, str]) -> str:
    """`message` with the trailer of the Developer Certificate of Origin, among the trailers that stand there."""
    last = message.rstrip().rpartition("\n\n")[2].splitlines()
    among = len(message.split("\n\n")) > 1 and all(_TRAILER.match(line) for line in last)
    return f"{message.rstrip()}{chr(10) if among else chr(10) * 2}Signed-off-by: {author[0]} <{author[1]}>\n"


_TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S")
__all__ = ["WORDS", "Live", "commit_message", "render", "signed_off", "title"]
