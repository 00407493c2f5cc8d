"""Which issues and pull requests of GitHub wait for the agent (see `task.TaskGetter`).

By label or by assignment to the bot, asked for by somebody who may write.  Per project two conditional lists; with
`owner` or `query` two searches for all of it.  An idle look costs nothing of the core budget: every list is a 304.
Called by the poller through `GitHubForge.getter`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.getter import RESERVE, Getter
from agent.forge.github_asking import last_actor
from agent.forge.github_auth import AppToken
from agent.forge.github_places import login
from agent.forge.task import Task
from agent.observe.items import Items
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.github import GitHubForge
    from agent.forge.github_places import Project

SETTLED = timedelta(minutes=1)  # an issue that changed later may change again in the same second, unseen


class GitHubTaskGetter(Getter):
    """One look at everything that the section covers."""

    forge: GitHubForge

    def _look(self) -> dict[Any, Task]:
        found: dict[tuple[str, int], Task] = {}
        with self.forge.wire.hurried(RESERVE):
            for owner, repo, item in self._candidates():
                number = int(item["number"])
                if (f"{owner}/{repo}", number) in found:
                    continue
                with self._items.one(f"{owner}/{repo}#{number}"):
                    task = self._task(owner, repo, item)
                    if task is not None:
                        found[f"{owner}/{repo}", number] = task
        return found

    # --- what is listed ---------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(owner, repository as keys name it, item) of all that might wait."""
        if self.forge.searches:
            yield from self._searched()
            return
        projects = Items(self._skipped, refusals=(AnswerOdd, ForgeAccessRefused, ForgeRefused))
        for owner, repo in self.forge.projects:
            listed: list[dict[str, Any]] = []
            with projects.one(f"{owner}/{repo}"):
                project = self.forge.places.project(owner, repo)
                if project.archived or not project.has_issues:
                    why = "it is archived" if project.archived else "its issues are switched off"
                    raise IssueUnreadable(f"{project.full_name}: {why}, so nothing can be asked for there")
                for query in self._queries():
                    listed += self.forge.wire.pages(f"{project.path}/issues", query=query, odd=self._odd)
            yield from ((owner, repo, item) for item in listed)
        projects.end(unless_some=True)

    def _queries(self) -> Iterator[dict[str, Any]]:
        common = {"state": "open", "sort": "created", "direction": "asc"}
        yield from (common | {"labels": label} for label in self._labels())
        if self._by_assignment():
            yield common | {"assignee": self.forge.places.own()}

    def _by_assignment(self) -> bool:
        """Whether this look is for what is assigned to the bot too; an app cannot be assigned."""
        return not self._left and not isinstance(self.forge.wire.tokens, AppToken)

    def _searched(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        words = ["state:open", "archived:false", *self.forge.qualifiers]
        asked = [f'label:"{label}"' for label in self._labels()]
        if self._by_assignment():
            asked.append(f"assignee:{self.forge.places.own()}")
        for one in asked:
            query = {"q": " ".join([one, *words]), "sort": "created", "order": "asc"}
            for item in self.forge.wire.pages("/search/issues", query=query, odd=self._odd):
                owner, _, repo = str(item["repository_url"]).rpartition("/repos/")[2].partition("/")
                if self.forge.serves(owner, repo):
                    yield owner, repo, item

    # --- what is taken ----------------------------------------------------------------------------------------

    def _task(self, owner: str, repo: str, item: dict[str, Any]) -> Task | None:
        """The task of an item, None when it does not wait (any more)."""
        present = self.forge.label_names(item)
        ours = present & self.forge.labels.all()
        labelled = self.forge.labels.queued in present
        assigned = any(self.forge.places.is_own(user) for user in item.get("assignees") or ())
        waits = not present.isdisjoint(self._labels()) or (assigned and not ours)
        if item.get("state") != "open" or not waits:
            return None
        labelled = labelled or (self._left and not assigned)  # its label was taken away when it was taken
        kind = "pull_request" if item.get("pull_request") else "issue"
        key = TaskKey(self.forge.source, owner, repo, kind, str(item["number"]), self.forge.instance)
        project = self.forge.places.project(owner, repo)
        user = self._asker(project, item, labelled=labelled)
        return None if user is None else Task(key, self.forge, user=user, title=str(item.get("title") or ""))

    def _asker(self, project: Project, item: dict[str, Any], *, labelled: bool) -> str | None:
        """Who asks: the author when that person may, else who set the label or assigned the bot.  None: nobody yet."""
        places = self.forge.places
        author = item.get("user")
        if places.may_ask(project, author):
            return login(author)
        where = f"{project.full_name}#{item['number']}"
        state = (project.full_name, item["number"], item.get("updated_at"), labelled)
        if state in self.forge.askers:
            actor = self.forge.askers[state]
        elif not self._may_look_up():
            return None
        else:
            actor = last_actor(self.forge, project, item["number"], labelled=labelled)
        if clock.now() - clock.parse(str(item["updated_at"])) > SETTLED:
            self._askers[state] = actor
        if actor is not None and places.may_ask(project, actor):
            return login(actor)
        who = login(actor) or login(author) or "a deleted account"
        problem = IssueUnreadable(
            f"{where}: asked for by {who}, who may not write to {project.full_name} or is not in allowed_users; "
            f"somebody who may has to set the label"
        )
        self._tell(problem, f"{where} {item.get('updated_at')}")
        return None
