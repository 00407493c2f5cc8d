"""Lists the issues and pull requests of Forgejo that wait for the agent (see `base.TaskGetter`).

An issue waits for work when it has the bot label or is assigned to the bot, and the account that set the label or
assigned the bot has permission.  One search per owner finds the label in all repositories of that owner, also if it is
a label of an organisation, and one search finds the assignments in all repositories.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.forgejo.labels import label_names
from agent.forge.forgejo.repositories import login
from agent.forge.forgejo.requesting_person import altered, assigned_again, events_of, keep_asker, last_actor
from agent.forge.task_getter import RESERVE
from agent.forge.timeline_task_getter import TimelineTaskGetter
from agent.observe.error_tolerant_loop import ItemLoop
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.forge.base import Task
    from agent.forge.forgejo.adapter_interface import ForgejoAdapter
    from agent.forge.forgejo.repositories import Project
    from agent.forge.timeline_task_getter import RequestState

SEARCH = "/repos/issues/search"
PAGE = 50


class ForgejoTaskGetter(TimelineTaskGetter):
    """One poll of all repositories that the section covers."""

    forge: ForgejoAdapter
    login = staticmethod(login)

    def _find_tasks(self) -> dict[Any, Task]:
        found: dict[tuple[str, int], Task] = {}
        with self.forge.wire.hurried(RESERVE):
            served = self._served()
            for item in self._candidates(served):
                full, number = str(item["repository"]["full_name"]), int(item["number"])
                key = self._key(served, full, item)
                if key is None or (f"{key.owner}/{key.repo}", number) in found:
                    continue
                with self._items.handling(f"{full}#{number}"):
                    task = self._of_item(key, item, label_names(item))
                    if task is not None:
                        found[f"{key.owner}/{key.repo}", number] = task
        return found

    # --- listing ----------------------------------------------------------------------------------------------

    def _served(self) -> dict[str, tuple[str, str]]:
        """Present full name in lower case → (owner, repository) as in task keys, for each repository that the section
        lists and that can have tasks; empty if the section lists none."""
        found: dict[str, tuple[str, str]] = {}
        projects = self.forge.unanswered.loop(self._skipped)
        for owner, repo in self._due(self.forge.projects, "/".join):
            name = f"{owner}/{repo}"
            with projects.handling(name):
                project = self.forge.places.project(owner, repo)
                if (why := _unfit(project)) is not None:
                    raise IssueUnreadable(f"{project.full_name}: {why}, so nothing can be asked for there")
                found[project.full_name.casefold()] = owner, repo
            self.forge.unanswered.note(name, projects.failed.get(name))
        self._end_lists(projects)
        return found

    def _candidates(self, served: Mapping[str, tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """The issues and pull requests of Forgejo that may wait for work."""
        owners = {full.partition("/")[0] for full in served} if self.forge.projects else {self.forge.section.owner}
        lists = ItemLoop(self._skipped, refusals=(AnswerOdd, ForgeAccessRefused, ForgeRefused))
        listed: list[dict[str, Any]] = []
        for owner in sorted(owners):
            with lists.handling(f"the search for labels of {owner}"):
                listed += self._labelled(owner)
        if owners and self._by_assignment() and not self._left:
            with lists.handling("the search for assignments"):
                listed += self.forge.wire.pages(SEARCH, query={"state": "open", "assigned": "true"}, odd=self._odd)
        self._end_lists(lists)
        yield from listed

    def _labelled(self, owner: str) -> Iterator[dict[str, Any]]:
        """The open issues of an owner that have one of the labels for which this poll searches.

        Forgejo ignores a label that no repository of the host has; if it ignores all labels of a search, it lists every
        open issue. Since Forgejo may thus list every open issue, the list of labelled issues is read only up to the
        first page on which no issue has one of the labels.
        """
        wanted = frozenset(self._labels())
        if not wanted:
            return
        query = {"state": "open", "labels": ",".join(sorted(wanted)), "owner": owner}
        items = self.forge.wire.pages(SEARCH, query=query, odd=self._odd)
        while page := list(islice(items, PAGE)):
            with_label = [item for item in page if not wanted.isdisjoint(label_names(item))]
            yield from with_label
            if not with_label:
                return

    def _by_assignment(self) -> bool:
        """Whether assignments to the bot ask for work."""
        return bool(self.forge.section.start.assignee)

    def _key(self, served: Mapping[str, tuple[str, str]], full: str, item: dict[str, Any]) -> TaskKey | None:
        """The task key of an issue or pull request that a search found; None if the section does not cover its
        repository."""
        owner, _, repo = full.partition("/")
        if self.forge.projects:
            if full.casefold() not in served:
                return None
            owner, repo = served[full.casefold()]
        elif not self.forge.serves(owner, repo):
            return None
        kind = "pull_request" if item.get("pull_request") else "issue"
        return TaskKey(self.forge.source, owner, repo, kind, str(item["number"]), self.forge.instance)

    # --- selection --------------------------------------------------------------------------------------------

    def _newest_assignment(self, project: Project, number: int) -> tuple[str, Any] | None:
        return assigned_again(self.forge, events_of(self.forge, project, number))

    def _asker(self, project: Project, item: dict[str, Any], state: RequestState) -> str:
        """The login of the account that set the label or assigned the bot; the author of the issue if Forgejo reports
        no such account.

        Raises IssueUnreadable when no account with permission has asked, or when title or text was edited after the
        request: comments that the program writes later would hide such an edit from the worker
        (`requesting_person.altered`).

        The account that asked is looked up during a poll if the issue's author has no permission, otherwise when the
        task is taken; it is looked up again when the issue has changed.
        """
        changed = ""
        if state in self.forge.askers:
            actor, changed = self.forge.askers[state]
        else:
            events = events_of(self.forge, project, item["number"])
            keep_asker(self.forge, project, item["number"], events)
            actor = last_actor(self.forge, project, events, labelled=state.labelled)
            actor = item.get("user") if actor is None else actor
            if not state.is_left:
                changed = altered(self.forge, project, item, events=events)
        self._keep(state, item, (actor, changed))
        self._check_permission(project, actor, state)
        if changed:
            raise IssueUnreadable(f"{project.full_name}#{item['number']}: {changed}", code="issue_altered")
        return login(actor)


def _unfit(project: Project) -> str | None:
    """The reason why no task can be done in a repository (None if tasks are possible)."""
    if project.archived:
        return "it is archived"
    return None if project.has_issues or project.has_pulls else "its issues and pull requests are switched off"
