"""Finds out whether the branch of a pull request from a fork has changed since somebody asked for work on it.

Each push to the branch of a pull request adds a row `pull_push` to its timeline, with the time of Forgejo's clock and,
as JSON in the row's text, the hashes of the commits.  The dates in commits are not used, since the author of a commit
chooses them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.forge.forgejo.requesting_person import events_of, times_of_requests
from agent.forge.fork_head import said_moved

if TYPE_CHECKING:
    from agent.forge.base import PullRef
    from agent.forge.forgejo.adapter_interface import ForgejoAdapter
    from agent.forge.forgejo.repositories import Project


def head_moved(forge: ForgejoAdapter, project: Project, number: str, pull: PullRef, since: str = "") -> str:
    """Implements `ForgeReports.head_moved`."""
    item = forge.wire.get(f"{project.path}/pulls/{number}")
    present = str(item["head"].get("sha") or "")
    events = events_of(forge, project, number)
    times = times_of_requests(forge, project, events, since)
    asked = max(times or [clock.parse(str(item["created_at"]))])
    if not present or present != pull.commit:
        return said_moved(pull.fork, pull.commit, present or "another commit", asked)
    pushes = [event for event in events if event["type"] == "pull_push"]
    later = [event for event in pushes if clock.parse(str(event["created_at"])) >= asked]
    if not later:
        return ""
    before = [event for event in pushes if event not in later]
    known = _commits(before[-1])[-1:] if before else _commits(later[0])[:1] if _is_forced(later[0]) else []
    # the pull request was read before its timeline, so a push between the two reads is in the timeline only
    newest = _commits(later[-1])[-1:] or [present]
    return said_moved(pull.fork, known[0] if known else "", newest[0], asked)


def _content(event: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(str(event.get("body") or ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_forced(event: dict[str, Any]) -> bool:
    return bool(_content(event).get("is_force_push"))


def _commits(event: dict[str, Any]) -> list[str]:
    """The hashes of the commits of a push, oldest first; for a forced push the newest commit before the push and the
    newest commit after it."""
    found = _content(event).get("commit_ids")
    return [str(one) for one in found] if isinstance(found, list) else []
