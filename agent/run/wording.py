"""The words of every comment, pull request and commit: a template, filled with values that can do nothing.

The one border for what goes out.  What the template itself says is ours; every value that is filled in loses secrets
first and then whatever closes, calls or commands (`security/inert.py`), whoever wrote it: model, issue, command or
host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import prompts
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
