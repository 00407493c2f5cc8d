"""Lists the issues and merge requests of GitLab that wait for the agent (see `base.TaskGetter`).

An issue waits for work when it has the bot label or is assigned to the bot, and the account that set the label or
assigned the bot has permission. Issues with the bot label are searched for in each listed project; if no project is
listed, in each project or group of which the account is a member. Issues in other projects are left out, so a label
that strangers set in their own project has no effect. Two lists (issues and merge requests) contain the assignments to
the own account in all projects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent import clock
from agent.errors import AnswerOdd, ForgeUnreachable, IssueUnreadable
from agent.forge.base import Task
from agent.forge.gitlab.projects import DEVELOPER, username
from agent.forge.gitlab.requesting_person import assigned_again, who_asked
from agent.forge.host_client import QUICK
from agent.forge.rate_limiter import KEPT_SECONDS
from agent.forge.task_getter import RESERVE, BaseTaskGetter, changed_just_now
from agent.forge.what_starts import how_to_ask
from agent.observe.error_tolerant_loop import ItemLoop
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.gitlab.adapter_interface import GitLabAdapter
    from agent.forge.gitlab.projects import Project

KINDS = {"issues": "issue", "merge_requests": "merge_request"}


class GitLabTaskGetter(BaseTaskGetter):
    """One poll of all projects that the section covers."""

    forge: GitLabAdapter

    def _list_tasks(self) -> list[Task]:
        found = super()._list_tasks()
        problems = self.forge.listed.take_problems()
        self.failed = self.failed or next((one for one in problems if isinstance(one, ForgeUnreachable)), None)
        self.problems = (*(one for one in problems if isinstance(one, IssueUnreadable)), *self.problems)
        return found

    def _find_tasks(self) -> dict[Any, Task]:
        served = self.forge.listed.served() if self.forge.projects else MemberProjects(self.forge).projects()
        projects = {project.id: (names, project) for names, project in served}
        found: dict[tuple[str, str, int], Task] = {}
        for kind, item in self._candidates(projects):
            names, project = projects[int(item["project_id"])]
            place = (names, kind, int(item["iid"]))
            with self._items.handling(f"{names} {kind} {item['iid']}"):
                if place not in found and (task := self._task(names, project, kind, item)) is not None:
                    found[place] = task
        return found

    # --- listing ----------------------------------------------------------------------------------------------

    def _candidates(self, projects: dict[int, tuple[str, Project]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """(kind, GitLab's object) of each issue or merge request in `projects` that may be waiting."""
        self.forge.lists = self._lists(projects)
        lists = self.forge.unanswered.loop(lambda path, why: self._skipped("", f"{path} cannot be listed: {why}"))
        asked = [
            (f"{path}/{kind}", kind, {"labels": label})
            for path in self.forge.lists
            for kind in KINDS
            for label in self._labels()
        ]
        if self.forge.section.start.assignee and not self._left:
            asked += [(f"/{kind}", kind, {"scope": "assigned_to_me"}) for kind in KINDS]
        for path, kind, query in self._due(asked, lambda one: one[0]):
            listed: list[dict[str, Any]] = []
            # a list that GitLab refuses, for example since issues are switched off or the project is gone, is left out
            with lists.handling(path):
                listed += self._listed(path, query)
            self.forge.unanswered.note(path, lists.failed.get(path))
            yield from ((kind, item) for item in listed if int(item["project_id"]) in projects)
        self._end_lists(lists)

    def _lists(self, projects: dict[int, tuple[str, Project]]) -> list[str]:
        """The API paths in which issues with the label are searched for: `/projects/1` for each listed project; if none
        is listed, `/groups/a%2Fb` (with all its subgroups) for the projects of a group, and `/projects/1` for each
        project of a person."""
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

    # --- selection --------------------------------------------------------------------------------------------

    def _task(self, names: str, project: Project, kind: str, item: dict[str, Any]) -> Task | None:
        """The task of an issue or merge request of GitLab; None if it does not wait for work (in a search for issues
        that a daemon has left: has neither the processing nor the paused label), its project is archived, the person
        who asked for the work has no permission, or this poll cannot find out who asked."""
        places = self.forge.places
        items = self.forge.items
        again = not self._left and items.may_be_assigned_again(item)
        if not (again or (items.is_left(item) if self._left else items.waits(item))):
            return None
        present = self.forge.items.label_names(item)
        labelled = self.forge.labels.queued in self._labels() and self.forge.labels.queued in present
        # An issue that a daemon has left has lost the bot label. If the bot is not assigned to the issue, that label
        # was the request for work.
        if self._left:
            labelled = not places.is_assigned(item)
        where = f"{names}{'!' if kind == 'merge_requests' else '#'}{item['iid']}"
        if project.archived:
            self._report_problem(
                IssueUnreadable(f"{where}: the project is archived, so nothing can be done there"), where
            )
            return None
        owner, _, repo = names.rpartition("/")
        key = TaskKey(self.forge.source, owner, repo, KINDS[kind], str(item["iid"]), self.forge.instance)
        title = str(item.get("title") or "")
        if again:
            return self._assigned_again(key, project, kind, item)
        state = (project.id, kind, item["iid"], item.get("updated_at"), self._left)
        if state not in self.forge.askers:
            if not self._may_look_up():
                return None
            label = self.forge.labels.queued if labelled else None
            asker, is_shown = who_asked(self.forge.wire, places, project, kind, item, label, patience=QUICK)
            if not is_shown and not self._left and changed_just_now(item):
                return None
            self.forge.askers[state] = asker or item.get("author")
        user = self._askers[state] = self.forge.askers[state]
        if not labelled and not self._left and places.is_self_assignment(user):
            return None
        if not places.may_ask(project, user, patience=QUICK):
            if places.is_agents(user):
                why = "it is the agent's own account; if that is you, list it in allowed_users"
            else:
                why = (
                    "it is not in allowed_users" if places.allowed else "it is a bot or has less than Developer access"
                )
            self._report_problem(
                IssueUnreadable(
                    f"{where}: asked for by {username(user) or 'nobody'}, whose word does not count here ({why}); "
                    f"somebody with Developer access has to {how_to_ask(self.forge.section.start)}"
                ),
                f"{where} {item.get('updated_at')}",
            )
            return None
        has_comments = item.get("user_notes_count") != 0
        return Task(key, self.forge, user=username(user), title=title, labels=present, has_comments=has_comments)

    def _assigned_again(self, key: TaskKey, project: Project, kind: str, item: dict[str, Any]) -> Task | None:
        """The task of an issue or merge request that was assigned to the bot again after the end of a task; None if it
        was not assigned again, the person who assigned it may not ask for work in this way, or this poll may not look
        that up any more. The system note about an assignment is read again only when the issue has changed."""
        places = self.forge.places
        state = (project.id, kind, item["iid"], item.get("updated_at"), "again")
        if state not in self.forge.askers:
            if not self._may_look_up():
                return None
            path = f"{project.path}/{kind}/{item['iid']}"
            with self._reading_events(f"{key.owner}/{key.repo} {kind} {item['iid']}"):
                self.forge.askers[state] = assigned_again(self.forge.wire, places, path, self.forge.labels)
        found = self._askers[state] = self.forge.askers[state]
        if (
            found is None
            or places.is_self_assignment(found[1])
            or not places.may_ask(project, found[1], patience=QUICK)
        ):
            return None
        labels, started_by = self.forge.items.label_names(item), f"assigned-{found[0]}"
        title = str(item.get("title") or "")
        return Task(key, self.forge, user=username(found[1]), title=title, labels=labels, started_by=started_by)


_ODD_PROJECTS = ItemLoop.logging("projects")


def odd_project(error: AnswerOdd) -> None:
    """Log that GitLab's answer about a project has a wrong shape, once for each error text; the caller leaves the
    project out."""
    with _ODD_PROJECTS.handling(str(error)):
        raise error


class MemberProjects:
    """The projects of which the account is a member (role Developer or higher), without archived ones; if the section
    sets `owner`, only projects below the group or person `owner`."""

    def __init__(self, forge: GitLabAdapter) -> None:
        self.forge = forge

    def projects(self) -> list[tuple[str, Project]]:
        """(path as in task keys, project) of every project of which the account is a member; the list is read again
        after ten minutes, with keyset pagination, which does not limit the number of projects."""
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
