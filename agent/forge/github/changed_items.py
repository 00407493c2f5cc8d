"""Lists the issues and pull requests of a repository of GitHub that have changed since the last poll (see
`Forge.changed_since` and `ForgeReports.recent_issues`)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment
from agent.forge.github.repositories import is_bot, login
from agent.forge.markers import hidden_in
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.changed_issues import ChangeCursor
    from agent.forge.github.adapter_interface import GitHubAdapter


def changed_in(forge: GitHubAdapter, owner: str, repo: str, changes: ChangeCursor) -> dict[str, str]:
    """Number → time of the last change, for the changed issues and pull requests of a repository; {} if the repository
    is gone, hidden from the token, or has its issues switched off."""
    name = f"{owner}/{repo}"
    since = changes.since(name).strftime("%Y-%m-%dT%H:%M:%SZ")
    query = {"state": "all", "sort": "updated", "direction": "asc", "since": since}
    try:
        path = f"{forge.places.project(owner, repo).path}/issues"
        # an invalid item of the list is left out here, and reported by the poll for tasks
        listed = forge.wire.pages(path, query=query, odd=lambda _error: None)
        items = [(str(item["number"]), str(item["updated_at"])) for item in listed]
    except IssueUnreadable:
        return {}  # the repository is gone or hidden from the token: its tasks count as unchanged
    except ForgeRefused as error:
        if error.status not in (404, 410):
            raise
        return {}  # issues are switched off there, or the repository is gone or hidden: no task counts as changed
    return changes.update(name, items)


def recent_in(forge: GitHubAdapter, owner: str, repo: str, since: str) -> Iterator[tuple[TaskKey, Comment, str]]:
    """(key, title and text as a comment, time of the last change) of each open issue or pull request that has changed
    since `since`; pull requests that the program has opened are left out."""
    query = {"state": "open", "sort": "updated", "direction": "asc", "since": since}
    # An unreadable repository ends this list, and is reported by the poll for waiting issues.
    with suppress(IssueUnreadable, ForgeRefused, ForgeAccessRefused):
        path = f"{forge.places.project(owner, repo).path}/issues"
        for item in forge.wire.pages(path, query=query, odd=lambda _error: None):
            who, made = item.get("user"), str(item.get("created_at") or "")
            title, body = str(item.get("title") or ""), str(item.get("body") or "")
            kind = "pull_request" if item.get("pull_request") else "issue"
            if item["state"] != "open" or (kind != "issue" and forge.places.is_own(who) and hidden_in(body)):
                continue
            key = TaskKey(forge.source, owner, repo, kind, str(item["number"]), forge.instance)
            yield key, Comment("", login(who), body, made, made, is_bot(who), place=title), str(item["updated_at"])
