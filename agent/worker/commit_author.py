"""Finds the author of a task's commits: the account of the token, as the host of the repository knows it.

A host assigns a commit to an account by the commit's mail address, and the host's rules may refuse commits with other
addresses. The account of the token is the author if `commit.author` is empty.
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
    """(name, mail address) of the account at the host; None if the host does not give a name and a valid address, or
    does not answer."""
    try:
        found = ForgeReports(forge).commit_identity()
    except ForgeError:  # if the host does not answer, the caller uses the default author
        return None
    if found is None:
        return None
    name, mail = _UNFIT.sub(" ", found[0]).strip(), found[1].strip()
    return (name, mail) if name and _MAIL.fullmatch(mail) else None
