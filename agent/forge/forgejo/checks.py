"""The checks of one commit on Forgejo: the newest commit status of each context, also those of Forgejo's Actions.

Forgejo's API has no logs of jobs; a commit status names the address at which a browser shows the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge import http
from agent.forge.checks import Check, Checks, CheckState

if TYPE_CHECKING:
    from agent.forge.forgejo.http import ForgejoWire
    from agent.forge.forgejo.repositories import Project

STATES: dict[str, CheckState] = {
    "success": "passed",
    "pending": "pending",
    "failure": "failed",
    "error": "failed",
    **dict.fromkeys(("warning", "skipped"), "neutral"),
}


def read_checks(wire: ForgejoWire, project: Project, commit: str) -> Checks:
    """The commit statuses of a commit; an empty result if Forgejo does not know the commit, and one with `unread` if
    the token may not read them. Raises ForgeError."""
    try:
        found = _statuses(wire, f"{project.path}/commits/{quote(commit, safe='')}/status")
    except ForgeRefused as error:
        if error.status not in (400, 404, 422):
            raise
        return Checks()
    except ForgeAccessRefused as error:
        return Checks(unread=(f"the statuses of commits of {project.full_name} cannot be read: {error}",))
    return Checks(
        tuple(
            Check(
                str(one["context"]),
                STATES.get(str(one["status"]), "neutral"),
                " ".join(str(one[name]) for name in ("description", "target_url") if one.get(name)),
            )
            for one in found
        )
    )


def _statuses(wire: ForgejoWire, path: str) -> list[dict[str, Any]]:
    """The newest commit status of each context.

    Forgejo sends commit statuses by pages and without a `Link` header; `total_count` in the answer counts the statuses
    of the page, and the header `X-Total-Count` all statuses (routers/api/v1/repo/status.go,
    services/convert/status.go).
    """
    found: list[dict[str, Any]] = []
    number, total = 0, "1"
    while total.isdigit() and len(found) < int(total):
        number += 1
        http.a_page_more(number, f"{wire.host}: GET {path}")
        answer = wire.call("GET", path, query=wire.page_size | ({"page": number} if number > 1 else {}))
        page = answer.data.get("statuses") or []
        found += page
        total = answer.headers.get("x-total-count", "") if page else ""
    return found
