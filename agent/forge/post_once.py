"""Sends a request that creates something, at most twice, so that it is created once.

If the answer of the first attempt is lost, the forge may have carried it out, so the result is searched for before the
second attempt.  The adapters call this module for comments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable


def post_once(post: Callable[[], str], find: Callable[[], str | None] | None) -> str:
    """The id of what `post` has created, or `find` has found after a lost answer.

    Without `find` there is no second attempt.  Raises the errors of both, and ForgeUnreachable when nothing was created
    or that stays unknown.
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
    raise AssertionError  # the second attempt returns or raises
