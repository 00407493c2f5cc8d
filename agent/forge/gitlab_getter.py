"""Which issues and merge requests of GitLab wait for the agent (see `task.TaskGetter`).

By label or by assignment to the bot, asked for by somebody with Developer access.  The label is looked for per project
where projects are listed, else per group of those that the account is a member of, so that nobody's label in a
stranger's project is ever seen; assignments are two lists for all of it.  Every list is asked for with a condition.
Called by the poller through `GitLabForge.getter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent import clock
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.getter import RESERVE, Getter
from agent.forge.gitlab_asking import who_asked
from agent.forge.gitlab_places import DEVELOPER, username
from agent.forge.gitlab_wire import QUICK
from agent.forge.limiter import KEPT_SECONDS
from agent.forge.task import Task
from agent.observe.items import Items
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.gitlab import GitLabForge
    from agent.forge.gitlab_places import Project

KINDS = {"issues": "issue", "merge_requests": "merge_request"}


class GitLabTaskGetter(Getter):
    """One look at everything that the section covers."""

    forge: GitLabForge

    def _all(self) -> list[Task]:
        found = super()._all()
        self.problems = (*self.forge.take_problems(), *self.problems)
        return found

    def _look(self) -> dict[Any, Task]:
        served = self.forge.served() if self.forge.projects else Served(self.forge).projects()
        projects = {project.id: (names, project) for names, project in served}
        found: dict[tuple[str, str, int], Task] = {}
        for kind, item in self._candidates(projects):
            names, project = projects[int(item["project_id"])]
            place = (names, kind, int(item["iid"]))
            with self._items.one(f"{names} {kind} {item['iid']}"):
                if place not in found and (task := self._task(names, project, kind, item)) is not None:
                    found[place] = task
        return found

    # --- what is listed ---------------------------------------------------------------------------------------

    def _candidates(self, projects: dict[int, tuple[str, Project]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """(kind, item) of all that might wait, of the projects that are served."""
        self.forge.lists = self._lists(projects)
        lists = Items(
            lambda path, why: self._skipped("", f"{path} cannot be listed: {why}"),
            refusals=(AnswerOdd, ForgeAccessRefused, ForgeRefused),
        )
        asked = [
            (f"{path}/{kind}", kind, {"labels": label})
            for path in self.forge.lists
            for kind in KINDS
            for label in self._labels()
        ]
        asked += [(f"/{kind}", kind, {"scope": "assigned_to_me"}) for kind in KINDS if not self._left]
        for path, kind, query in asked:
            listed: list[dict[str, Any]] = []
            with lists.one(path):  # 403, 404: the kind is switched off there, or the place went away since the look-up
                listed += self._listed(path, query)
            yield from ((kind, item) for item in listed if int(item["project_id"]) in projects)
        lists.end(unless_some=True)

    def _lists(self, projects: dict[int, tuple[str, Project]]) -> list[str]:
        """Where the label is looked for: `/projects/1`, or `/groups/a%2Fb` (with all below it) where that is less."""
        if self.forge.projects:
            return [project.path for _, project in projects.values()]
        groups = sorted({project.owner for _, project in projects.values() if self.forge.is_group(project)})
        tops = [one for one in groups if not any(one.startswith(f"{other}/") for other in groups)]
        alone = [project.path for _, project in projects.values() if not self.forge.is_group(project)]
        return [f"/groups/{quote(top, safe='')}" for top in tops] + alone

    def _listed(self, path: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
        query |= {"state": "opened", "order_by": "created_at", "sort": "asc"}
        if self.forge.section.query:
            query["search"] = self.forge.section.query
        return self.forge.wire.pages(path, query=query, patience=QUICK, reserve=RESERVE, odd=self._odd)

    # --- what is taken ----------------------------------------------------------------------------------------

    def _task(self, names: str, project: Project, kind: str, item: dict[str, Any]) -> Task | None:
        """The task of an item, None when it does not wait (any more)."""
        places = self.forge.places
        if not (self.forge.items.is_left(item) if self._left else self.forge.items.waits(item)):
            return None
        labelled = self.forge.labels.queued in self.forge.items.label_names(item)
        if self._left:  # its label was taken away when it was taken
            labelled = not any(places.is_own(user) for user in item.get("assignees") or ())
        where = f"{names}{'!' if kind == 'merge_requests' else '#'}{item['iid']}"
        if project.archived:
            self._tell(IssueUnreadable(f"{where}: the project is archived, so nothing can be done there"), where)
            return None
        state = (project.id, kind, item["iid"], item.get("updated_at"))
        if state not in self.forge.askers:
            if not self._may_look_up():
                return None
            label = self.forge.labels.queued if labelled else None
            self.forge.askers[state] = who_asked(self.forge.wire, places, project, kind, item, label, patience=QUICK)
        user = self._askers[state] = self.forge.askers[state]
        if not places.may_ask(project, user, patience=QUICK):
            if places.is_ours(user):
                why = "it is the agent's own account; if that is you, list it in allowed_users"
            else:
                why = (
                    "it is not in allowed_users" if places.allowed else "it is a bot or has less than Developer access"
                )
            self._tell(
                IssueUnreadable(
                    f"{where}: asked for by {username(user) or 'nobody'}, whose word does not count here ({why}); "
                    f"somebody with Developer access has to set the label"
                ),
                f"{where} {item.get('updated_at')}",
            )
            return None
        owner, _, repo = names.rpartition("/")
        key = TaskKey(self.forge.source, owner, repo, KINDS[kind], str(item["iid"]), self.forge.instance)
        return Task(key, self.forge, user=username(user), title=str(item.get("title") or ""))


_ODD_PROJECTS = Items.logged("projects")


def odd_project(error: AnswerOdd) -> None:
    """A project that cannot be read is left out, and logged once."""
    with _ODD_PROJECTS.one(str(error)):
        raise error


class Served:
    """The projects that the account is a member of (Developer or more), below `owner` when that is set."""

    def __init__(self, forge: GitLabForge) -> None:
        self.forge = forge

    def projects(self) -> list[tuple[str, Project]]:
        """(path as keys name it, project); read anew every ten minutes, by keyset, however many there are."""
        forge = self.forge
        if forge.members is not None and clock.monotonic() - forge.members[0] < KEPT_SECONDS:
            return forge.members[1]
        query = {
            "membership": "true",
            "min_access_level": DEVELOPER,
            "archived": "false",
            "pagination": "keyset",
            "order_by": "id",
            "sort": "asc",
        }
        below = f"{forge.section.owner}/".casefold() if forge.section.owner else ""
        found = []
        for item in forge.wire.pages("/projects", query=query, patience=QUICK, reserve=RESERVE, odd=odd_project):
            project = forge.places.learn(item)
            if (item.get("namespace") or {}).get("kind") == "group":
                forge.groups.add(project.owner)
            if project.full_name.casefold().startswith(below):
                found.append((project.full_name, project))
        forge.members = clock.monotonic(), found
        return found
