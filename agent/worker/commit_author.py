"""The author of a task's commits, as the host of the task knows the account of the token.

A host shows a commit under an account by its mail address, and its rules may refuse commits of other addresses.
`session.py` uses this module where `commit.author` is empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.forge.base import ForgeReports

if TYPE_CHECKING:
    from agent.forge.base import Forge

_UNFIT = re.compile(r"[<>\x00-\x1f\x7f]+")
_MAIL = re.compile(r"[^<>@\s\x00-\x1f\x7f]+@[^<>@\s\x00-\x1f\x7f]+")


def author_at(forge: Forge) -> tuple[str, str] | None:
    """(name, mail address) of the account at the host; None where the host names none, or does not answer."""
    try:
        found = ForgeReports(forge).commit_identity()
    except ForgeError:  # the commit matters more than its author; a rule of the host that refuses it says why
        return None
    if found is None:
        return None
    name, mail = _UNFIT.sub(" ", found[0]).strip(), found[1].strip()
    return (name, mail) if name and _MAIL.fullmatch(mail) else None
