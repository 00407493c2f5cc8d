"""Finds out whether the branch of a merge request from a fork has changed since somebody asked for work on it.

At each push GitLab creates a version of the merge request, with the time and the newest commit (Merge requests API,
"Get merge request diff versions").  GitLab also creates a version with the same commit, for example after a change of
the target branch; such a version does not count as a change.  The dates in commits are not used, since the author of a
commit chooses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.fork_head import said_moved, said_unknown
from agent.forge.gitlab.requesting_person import times_of_requests

if TYPE_CHECKING:
    from agent.forge.base import PullRef
    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project, Projects


def head_moved(
    wire: GitLabWire, places: Projects, project: Project, number: str, pull: PullRef, label: str, since: str = ""
) -> str:
    """Implements `ForgeReports.head_moved`."""
    path = f"{project.path}/merge_requests/{number}"
    item = wire.get(path)
    present = str(item.get("sha") or "")
    times = times_of_requests(wire, places, project, path, item, label, since=since)
    asked = max(times or [clock.parse(str(item["created_at"]))])
    if not present or present != pull.commit:
        return said_moved(pull.fork, pull.commit, present or "another commit", asked)
    try:
        versions = sorted(
            (clock.parse(str(one["created_at"])), str(one["head_commit_sha"])) for one in wire.pages(f"{path}/versions")
        )
    except (ForgeRefused, ForgeAccessRefused) as error:
        return said_unknown(pull.fork, present, f"its versions cannot be read: {error}")
    if not versions:
        return said_unknown(pull.fork, present, "GitLab lists no version of it")
    # If no version is older than the newest request for work, the first version counts: GitLab creates it shortly after
    # the merge request, perhaps later than a label that was set when the merge request was opened.
    asked_for = next((commit for when, commit in reversed(versions) if when < asked), versions[0][1])
    return "" if asked_for == present else said_moved(pull.fork, asked_for, present, asked)
