"""Sends a POST that creates something on a forge (a comment, a label), and repeats the POST at most once, without
creating the thing twice.

If the answer to the first attempt is lost, the forge may have executed the request, so before the second attempt the
module searches for what the first attempt may have created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable


def post_once(post: Callable[[], str], find: Callable[[], str | None] | None) -> str:
    """The id of the comment (or other object) that `post` has created, or that `find` has found after the answer to
    `post` was lost.

    If `find` is None, the POST is not sent a second time. Raises the errors of `post` and `find`; ForgeUnreachable
    means that nothing was created, or that it is unknown whether something was created.
    """
    for attempt in (1, 2):
        try:
            return post()
        except ForgeUnreachable as error:
            if not error.maybe or find is None:
                raise
            if (there := find()) is not None:
                return there
            if attempt == 2:
                raise
    raise AssertionError  # Not reached, since the second attempt of the POST returns or raises.
