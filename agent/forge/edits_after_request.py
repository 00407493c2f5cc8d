"""Detects edits of an issue's text that were made after the request for work; shared by the forges.

The person who sets the label approves the text of the issue as it is at that time. Nobody has approved a later edit of
the text by an account without permission: the agent would act on a stranger's text in the name of the person who set
the label. An edit of the issue in the same second as the label counts as later than the label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

TIME = "%Y-%m-%d at %H:%M:%S"


def said_altered(edits: Iterable[tuple[datetime, str]], asked: datetime) -> str:
    """The reason why a person must ask for the work again, "" when nobody has to.  `edits` are (time, login) of edits
    by accounts without permission; the reason names the newest edit that is not before the request (`asked`)."""
    late = [edit for edit in edits if edit[0] >= asked]
    if not late:
        return ""
    when, who = max(late)
    by = f"@{who}" if who else "a deleted account"
    return (
        f"its title or text was edited by {by}, whose word does not count here, on {when:{TIME}} UTC, after it "
        f"was asked for ({asked:{TIME}} UTC); read it again, then ask for it again"
    )


def said_unasked(edits: Iterable[tuple[datetime, str]]) -> str:
    """The reason why a person must ask for the work again if the forge reports edits by accounts without permission,
    and no request by an account with permission: the request was made in another project, or its label was deleted."""
    when, who = max(edits)
    by = f"@{who}" if who else "a deleted account"
    return (
        f"its title or text was edited by {by}, whose word does not count here, on {when:{TIME}} UTC, and it is not "
        f"known here when it was asked for (it came from another project, or its label was deleted meanwhile); read it "
        f"again, then ask for it again"
    )


def said_maybe_altered(asked: datetime, changed: datetime, who: str) -> str:
    """The reason why a person must ask for the work again on a forge that does not report who edited a text.  `changed`
    is the time of a change of the issue that may be an edit by `who` (an account without permission)."""
    by = f"@{who}" if who else "a deleted account"
    return (
        f"its text may have been edited by {by}, whose word does not count here, until {changed:{TIME}} UTC, after it "
        f"was asked for ({asked:{TIME}} UTC), and this forge does not report edits; read it again, then ask for it "
        f"again"
    )
