"""What changed on GitLab since the last look, among the issues and merge requests of tasks (see `Forge.stirred`).

Two lists per listed project; without a list of projects two per group that the last look looked at.  A note changes the
time of what it stands on, in GitLab as in `changes.py`'s sense.  Called by `gitlab.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.changes import Changes
from agent.forge.getter import RESERVE
from agent.forge.gitlab_getter import KINDS
from agent.forge.gitlab_items import is_merge
from agent.forge.gitlab_wire import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.forge.gitlab import GitLabForge
    from agent.values import TaskKey

Place = tuple[int, str, str]  # project, kind, number


def changed_of(
    forge: GitLabForge, watched: Mapping[TaskKey, str | None], cursor: str
) -> tuple[dict[TaskKey, str], str]:
    """The contract's `stirred`."""
    changes, found = Changes.of(cursor), dict[Place, str]()
    places = {key: _places(forge, key, url) for key, url in watched.items()}
    for path in _lists(forge, places):
        for kind in KINDS:
            name = f"{path}/{kind}"
            seen = changes.see(name, _changed(forge, name, changes))
            found |= {(int(project), kind, number): when for (project, number), when in _split(seen)}
    stirred = {key: [found[one] for one in ones if one in found] for key, ones in places.items()}
    return {key: max(times) for key, times in stirred.items() if times}, changes.text()


def _places(forge: GitLabForge, key: TaskKey, url: str | None) -> set[Place]:
    """Where something may be said to a key: on it, and on the merge request that was opened for it."""
    try:
        project = forge.places.of(key, patience=QUICK).id
    except IssueUnreadable:
        return set()  # the project is gone; the look at what waits says so
    merge = re.search(r"/merge_requests/([0-9]+)/?$", url or "")
    found = {(project, "merge_requests" if is_merge(key) else "issues", key.task_id)}
    return found | ({(project, "merge_requests", merge[1])} if merge else set())


def _lists(forge: GitLabForge, places: Mapping[TaskKey, set[Place]]) -> list[str]:
    """The projects that are asked about, or the groups that hold them where that is less."""
    projects = sorted({f"/projects/{project}" for ones in places.values() for project, _, _ in ones})
    groups = [path for path in forge.lists if path.startswith("/groups/")]
    return groups + [path for path in forge.lists if path in projects] if groups else projects


def _changed(forge: GitLabForge, name: str, changes: Changes) -> Iterator[tuple[str, str]]:
    since = changes.since(name).strftime("%Y-%m-%dT%H:%M:%SZ")
    query: dict[str, Any] = {"scope": "all", "state": "all", "order_by": "updated_at", "sort": "asc"}
    query["updated_after"] = since
    try:
        for item in forge.wire.pages(name, query=query, patience=QUICK, reserve=RESERVE, odd=lambda _: None):
            yield f"{item['project_id']} {item['iid']}", str(item["updated_at"])
    except (ForgeRefused, ForgeAccessRefused) as error:
        if isinstance(error, ForgeRefused) and error.status != 404:
            raise  # 403, 404: this kind is switched off there


def _split(seen: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    for name, when in seen.items():
        yield name.split(" "), when
