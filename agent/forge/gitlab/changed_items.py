"""Finds the changes on GitLab since the last poll, among the issues and merge requests of tasks (see
`Forge.changed_since`), and among all issues of the listed projects (see `ForgeReports.recent_issues`).

To find changes, two lists (issues and merge requests) are read for each project with tasks; if the last poll searched
whole groups, two lists are read for each of these groups, and for each project with tasks that it searched by itself.
GitLab updates the time of change of an issue or merge request when a note is added to it; the search for changes relies
on this.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment
from agent.forge.changed_issues import ChangeCursor
from agent.forge.gitlab.notes import utc
from agent.forge.gitlab.projects import username
from agent.forge.gitlab.task_items import collection_of
from agent.forge.gitlab.tasks import KINDS
from agent.forge.host_client import QUICK
from agent.forge.markers import hidden_in
from agent.forge.task_getter import RESERVE
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.forge.gitlab.adapter_interface import GitLabAdapter
    from agent.forge.gitlab.projects import Project

Place = tuple[int, str, str]  # (project number, kind, number of the issue or merge request)


def changed_of(
    forge: GitLabAdapter, watched: Mapping[TaskKey, str | None], cursor: str
) -> tuple[dict[TaskKey, str], str]:
    """Implements `Forge.changed_since`."""
    changes, found = ChangeCursor.parse(cursor), dict[Place, str]()
    places = {key: _places(forge, key, url) for key, url in watched.items()}
    for path in _lists(forge, places):
        for kind in KINDS:
            name = f"{path}/{kind}"
            seen = changes.update(name, _changed(forge, name, changes))
            found |= {(int(project), kind, number): when for (project, number), when in _split(seen)}
    stirred = {key: [found[one] for one in ones if one in found] for key, ones in places.items()}
    return {key: max(times) for key, times in stirred.items() if times}, changes.text()


def recent_in(
    forge: GitLabAdapter, served: Mapping[tuple[str, str], Project], owner: str, repo: str, collection: str, since: str
) -> Iterator[tuple[TaskKey, Comment, str]]:
    """(key, title and text as a comment, time of the last change) of each open issue or merge request (`collection`)
    that has changed since `since`; merge requests that the program has opened, and confidential issues, are left out.
    `collection` is "issues" or "merge_requests"; `served`: (owner, repository) as in task keys → project."""
    query = {"scope": "all", "state": "opened", "order_by": "updated_at", "sort": "asc", "updated_after": since}
    kind, path = KINDS[collection], f"{served[owner, repo].path}/{collection}"
    # A project that cannot be read is left out; the poll for waiting issues reports it.
    with suppress(ForgeRefused, ForgeAccessRefused):
        for item in forge.wire.pages(path, query=query, patience=QUICK, reserve=RESERVE, odd=lambda _: None):
            who, made = item.get("author"), utc(item.get("created_at"))
            title, body = str(item.get("title") or ""), str(item.get("description") or "")
            own = kind != "issue" and forge.places.is_own(who) and hidden_in(body)
            if own or item.get("confidential") or item.get("state") != "opened":
                continue
            key = TaskKey(forge.source, owner, repo, kind, str(item["iid"]), forge.instance)
            text = Comment("", username(who), body, made, made, place=title)
            yield key, text, str(item["updated_at"])


def _places(forge: GitLabAdapter, key: TaskKey, url: str | None) -> set[Place]:
    """The places in which people may comment on a task: the issue or merge request of its key, and the merge request
    that was opened for the task."""
    try:
        project = forge.places.project_of(key, patience=QUICK).id
    except (IssueUnreadable, ForgeAccessRefused):
        return set()  # the project is gone or not accessible: its task counts as unchanged
    merge = number_in(url)
    found = {(project, collection_of(key), key.task_id)}
    return found | ({(project, "merge_requests", merge)} if merge else set())


def number_in(url: str | None) -> str | None:
    """The number in the address of a merge request; None if the address is not that of a merge request."""
    found = re.search(r"/merge_requests/([0-9]+)/?$", url or "")
    return found[1] if found else None


def _lists(forge: GitLabAdapter, places: Mapping[TaskKey, set[Place]]) -> list[str]:
    """The API paths of the groups and projects for which the lists of changes are requested: the groups that the last
    poll searched and, of the projects that it searched, those with a task; if it searched no group, each project with a
    task."""
    projects = sorted({f"/projects/{project}" for ones in places.values() for project, _, _ in ones})
    groups = [path for path in forge.lists if path.startswith("/groups/")]
    return groups + [path for path in forge.lists if path in projects] if groups else projects


def _changed(forge: GitLabAdapter, name: str, changes: ChangeCursor) -> Iterator[tuple[str, str]]:
    since = changes.since(name).strftime("%Y-%m-%dT%H:%M:%SZ")
    query: dict[str, Any] = {"scope": "all", "state": "all", "order_by": "updated_at", "sort": "asc"}
    query["updated_after"] = since
    try:
        for item in forge.wire.pages(name, query=query, patience=QUICK, reserve=RESERVE, odd=lambda _: None):
            yield f"{item['project_id']} {item['iid']}", str(item["updated_at"])
    except (ForgeRefused, ForgeAccessRefused) as error:
        if isinstance(error, ForgeRefused) and error.status != 404:
            raise  # 403 and 404 mean no changes: GitLab sends them where issues or merge requests are switched off


def _split(seen: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    for name, when in seen.items():
        yield name.split(" "), when
