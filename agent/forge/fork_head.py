"""Texts for people about a fork's branch that changed after the request for work; shared by the forges.

The person who sets the label approves the commits that the pull request has at that time.  The author of the pull
request can push other commits later, and nobody has approved the later commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

TIME = "%Y-%m-%d at %H:%M:%S"
SHOWN = 12
"""The number of characters of a commit's hash that a text for people shows."""


def said_moved(fork: str, asked_for: str, present: str, asked: datetime | None = None) -> str:
    """The text that the fork's branch has changed after the request, so that a person must ask for the work again.

    `asked_for` is the newest commit of the branch at the time `asked` of the request, "" if it is unknown; `present` is
    the newest commit now.
    """
    when = f" ({asked:{TIME}} UTC)" if asked is not None else ""
    known = f"asked for was the commit {asked_for[:SHOWN]}" if asked_for else "which commit was asked for is not known"
    return (
        f"its branch in {fork} has changed after it was asked for{when}: {known}, and the branch is at "
        f"{present[:SHOWN]} now. Nothing of it was run; {remedy(present)}"
    )


def said_unknown(fork: str, present: str, why: str, first: str = "") -> str:
    """The text that a person must ask for the work again, because the forge does not report when the fork's branch
    changed.

    `first`: a sentence part that names what the person has to do before asking again.
    """
    return (
        f"whether its branch in {fork} has changed after it was asked for cannot be found out ({why}), and the branch "
        f"is at {present[:SHOWN]} now. Nothing of it was run; {first}{remedy(present)}"
    )


def remedy(present: str) -> str:
    """The end of a sentence that tells a person how to ask for work on the changed branch of a fork."""
    return f"look at {present[:SHOWN]} and ask for it again, and that commit is worked on"
