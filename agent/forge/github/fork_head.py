"""Finds out whether the branch of a pull request from a fork has changed since somebody asked for work on it.

GitHub does not report which commit of a branch was the newest one when a label or a comment was added.  The dates in
commits are not used, since the author of a commit chooses them.  To find changes of a fork's branch, this module uses
data that GitHub records itself:

- `head.repo.pushed_at` of the pull request: the last push to any branch of the fork (REST, "Get a pull request");
- the pushes to one branch, each with its time and the commits before and after (REST, "List repository activities");
- the commit that a review was written on (REST, "List reviews for a pull request").

If the last push to the fork (`pushed_at`) is older than the request for work, the branch has not changed since the
request, and no further request to GitHub is needed; this is the usual case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.fork_head import said_moved, said_unknown
from agent.forge.github.requesting_person import events_of, times_of_requests

if TYPE_CHECKING:
    from datetime import datetime

    from agent.forge.base import PullRef
    from agent.forge.github.adapter_interface import GitHubAdapter
    from agent.forge.github.repositories import Project

REVIEW = "write a review of it, "


def head_moved(forge: GitHubAdapter, project: Project, number: str, pull: PullRef, since: str = "") -> str:
    """Implements `ForgeReports.head_moved`."""
    item = forge.wire.get(f"{project.path}/pulls/{number}")
    present, repo = str(item["head"].get("sha") or ""), item["head"].get("repo") or {}
    times = times_of_requests(forge, project, events_of(forge, project, number), since)
    asked = max(times or [clock.parse(str(item["created_at"]))])
    if not present or present != pull.commit:
        return said_moved(pull.fork, pull.commit, present or "another commit", asked)
    pushed = repo.get("pushed_at")
    if pushed and clock.parse(str(pushed)) < asked:
        return ""
    try:
        asked_for = _commit_at(forge, str(repo.get("full_name") or ""), pull.head, asked)
    except (ForgeRefused, ForgeAccessRefused) as error:
        asked_for, why = None, f"the pushes to it cannot be read: {error}"
    else:
        why = "GitHub does not list the push that brought this commit" if repo else "the fork is gone or not visible"
    if asked_for is None:
        return "" if _is_reviewed(forge, project, number, present) else said_unknown(pull.fork, present, why, REVIEW)
    return "" if asked_for == present else said_moved(pull.fork, asked_for, present, asked)


def _commit_at(forge: GitHubAdapter, fork: str, branch: str, when: datetime) -> str | None:
    """The newest commit of a fork's branch just before the time `when`; "" if the branch did not exist yet; None if
    the fork is gone or GitHub lists no push from which that commit is known."""
    if not fork:
        return None
    ref, later = f"refs/heads/{branch}", None
    query = {"ref": ref, "direction": "desc"}
    for push in forge.wire.pages(f"/repos/{fork}/activity", query=query):
        if push.get("ref") != ref:
            continue
        if clock.parse(str(push["timestamp"])) < when:
            return str(push.get("after") or "")
        # the hash before the push is all zeros if the push created the branch
        later = str(push.get("before") or "").strip("0") and str(push["before"])
    return later


def _is_reviewed(forge: GitHubAdapter, project: Project, number: str, commit: str) -> bool:
    """Whether a person with permission has written a review of the pull request at the commit `commit`."""
    reviews: Any = forge.wire.pages(f"{project.path}/pulls/{number}/reviews", odd=lambda _error: None)
    return any(one.get("commit_id") == commit and forge.places.may_ask(project, one.get("user")) for one in reviews)
