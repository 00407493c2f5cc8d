"""Sends a request that creates something (a comment) at most twice, so that the thing is created only once.

If the answer of the first attempt is lost, the forge may have executed it, so the module searches for what it may have
created before the second attempt.  The adapters call this module for comments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable


def post_once(post: Callable[[], str], find: Callable[[], str | None] | None) -> str:
    """The id of what `post` has created, or of what `find` has found after the answer to `post` was lost.

    Without `find` there is no second attempt.  Raises the errors of `post` and `find`; ForgeUnreachable means that
    nothing was created, or that this is unknown.
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
    raise AssertionError  # not reached, since the second attempt returns or raises
