"""Finds out whether a fork's branch has changed after somebody asked for the work on its merge request.

GitLab makes a version of the merge request at each push, with its time and the newest commit (Merge requests API, "Get
merge request diff versions").  A version with the same commit, as after a change of the target branch, changes nothing.
Dates in commits say nothing, since their author chooses them.  `forge.py` calls this module.
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
    # the first version is made shortly after the merge request, perhaps after a label that it was opened with
    asked_for = next((commit for when, commit in reversed(versions) if when < asked), versions[0][1])
    return "" if asked_for == present else said_moved(pull.fork, asked_for, present, asked)
