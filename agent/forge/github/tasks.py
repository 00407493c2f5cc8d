"""Lists the issues and pull requests of GitHub that wait for the agent (see `base.TaskGetter`).

An issue waits for work when it has the bot label or is assigned to the bot, and the account that set the label or
assigned the bot has permission. A poll sends at most two conditional requests for lists per project (by label and by
assignment, see `start`); if the section has `query`, or `owner` without projects, two searches find the issues of all
projects instead. A request for a list that has not changed does not count against GitHub's rate limit, since GitHub
answers 304.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import IssueUnreadable
from agent.forge.github.auth import AppToken
from agent.forge.github.repositories import login
from agent.forge.github.requesting_person import assigned_again, events_of, is_asked, keep_asker, last_actor
from agent.forge.task_getter import NOT_SHOWN, RESERVE, changed_just_now
from agent.forge.timeline_task_getter import TimelineTaskGetter
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.base import Task
    from agent.forge.github.adapter_interface import GitHubAdapter
    from agent.forge.github.repositories import Project
    from agent.forge.timeline_task_getter import RequestState


class GitHubTaskGetter(TimelineTaskGetter):
    """One poll of all projects that the section covers."""

    forge: GitHubAdapter
    login = staticmethod(login)

    def _find_tasks(self) -> dict[Any, Task]:
        found: dict[tuple[str, int], Task] = {}
        with self.forge.wire.hurried(RESERVE):
            for owner, repo, item in self._candidates():
                number = int(item["number"])
                if (f"{owner}/{repo}", number) in found:
                    continue
                with self._items.handling(f"{owner}/{repo}#{number}"):
                    task = self._task(owner, repo, item)
                    if task is not None:
                        found[f"{owner}/{repo}", number] = task
        return found

    # --- listing ----------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(owner, repository name as in task keys, GitHub's object) of each issue or pull request that may be waiting
        for work."""
        if self.forge.searches:
            yield from self._searched()
            return
        projects = self.forge.unanswered.loop(self._skipped)
        for owner, repo in self._due(self.forge.projects, "/".join):
            listed: list[dict[str, Any]] = []
            name = f"{owner}/{repo}"
            with projects.handling(name):
                project = self.forge.places.project(owner, repo)
                if project.archived or not project.has_issues:
                    why = "it is archived" if project.archived else "its issues are switched off"
                    raise IssueUnreadable(f"{project.full_name}: {why}, so nothing can be asked for there")
                for query in self._queries():
                    listed += self.forge.wire.pages(f"{project.path}/issues", query=query, odd=self._odd)
            self.forge.unanswered.note(name, projects.failed.get(name))
            yield from ((owner, repo, item) for item in listed)
        self._end_lists(projects)

    def _queries(self) -> Iterator[dict[str, Any]]:
        common = {"state": "open", "sort": "created", "direction": "asc"}
        yield from (common | {"labels": label} for label in self._labels())
        if self._by_assignment() and not self._left:
            yield common | {"assignee": self.forge.places.own()}

    def _by_assignment(self) -> bool:
        """Whether assignments to the bot ask for work; a GitHub App cannot be assigned."""
        return self.forge.section.start.assignee and not isinstance(self.forge.wire.tokens, AppToken)

    def _searched(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        words = ["state:open", "archived:false", *self.forge.qualifiers]
        asked = [f'label:"{label}"' for label in self._labels()]
        if self._by_assignment() and not self._left:
            asked.append(f"assignee:{self.forge.places.own()}")
        for one in asked:
            query = {"q": " ".join([one, *words]), "sort": "created", "order": "asc"}
            for item in self.forge.wire.pages("/search/issues", query=query, odd=self._odd):
                owner, _, repo = str(item["repository_url"]).rpartition("/repos/")[2].partition("/")
                if self.forge.serves(owner, repo):
                    yield owner, repo, item

    # --- selection --------------------------------------------------------------------------------------------

    def _task(self, owner: str, repo: str, item: dict[str, Any]) -> Task | None:
        """The task of an issue or pull request of GitHub; None when it does not wait for work, when the person who
        asked for the work has no permission, or when this poll cannot find out who asked."""
        kind = "pull_request" if item.get("pull_request") else "issue"
        key = TaskKey(self.forge.source, owner, repo, kind, str(item["number"]), self.forge.instance)
        return self._of_item(key, item, self.forge.items.label_names(item))

    def _newest_assignment(self, project: Project, number: int) -> tuple[str, Any] | None:
        return assigned_again(self.forge, events_of(self.forge, project, number))

    def _asker(self, project: Project, item: dict[str, Any], state: RequestState) -> str:
        """The login of the account that set the label or assigned the bot; the author of the issue if GitHub reports no
        such account.

        Raises IssueUnreadable when no account with permission has asked, or when GitHub does not show yet who asked.
        Whether the text of the issue was edited after the request is not checked in the poll: the worker checks this
        (`Forge.altered`) and reports an edit on the issue.

        The account that asked is looked up during a poll if the issue's author has no permission, otherwise when the
        task is taken; it is looked up again when the issue has changed.
        """
        if state in self.forge.askers:
            actor = self.forge.askers[state]
        else:
            events = events_of(self.forge, project, item["number"])
            is_shown = state.is_left or is_asked(self.forge, events, labelled=state.labelled)
            if not is_shown and changed_just_now(item):
                raise IssueUnreadable(
                    f"{project.full_name}#{item['number']}: GitHub does not show yet who asked for it; the next "
                    f"poll looks again",
                    code=NOT_SHOWN,
                )
            actor = last_actor(self.forge, project, events, labelled=state.labelled)
            if actor is None:
                actor = item.get("user")
            keep_asker(self.forge, project, item["number"], events)
        self._keep(state, item, actor)
        self._check_permission(project, actor, state)
        return login(actor)
