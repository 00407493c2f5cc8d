"""The base class of the task getters of GitHub and Forgejo, whose lists of events name the person who asked for work.

If the author of an issue has permission, and either a label asks for work or the token belongs to no person, the poll
makes a task of the issue at once, and the person who asked is looked up when the task is enqueued.  For an issue that
does not fulfil these conditions the poll itself reads the events.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent.errors import IssueUnreadable
from agent.forge.base import Task
from agent.forge.task_getter import NOT_SHOWN, SELF_ASSIGNED, BaseTaskGetter, changed_just_now
from agent.forge.what_starts import how_to_ask

if TYPE_CHECKING:
    from agent.values import TaskKey


class _Project(Protocol):
    @property
    def full_name(self) -> str: ...


class RequestState(NamedTuple):
    """The state of an issue in which the person who asked for work is looked up; the key of the cache `askers`.

    `is_left`: the issue was listed among those on which some daemon works. `labelled`: a label asks for work, and not
    only an assignment. The person may be looked up after the list has ended, so the state names the kind of the list.
    """

    repository: str
    number: int
    updated_at: Any
    is_left: bool
    labelled: bool


class TimelineTaskGetter(BaseTaskGetter):
    """One poll of all projects that the section covers, on a host with lists of events."""

    forge: Any  # each subclass has the adapter of its forge

    @staticmethod
    @abstractmethod
    def login(user: Any) -> str:
        """The login of an account in an answer of the host, "" for a deleted account."""

    @abstractmethod
    def _by_assignment(self) -> bool:
        """Whether assignments to the bot ask for work."""

    @abstractmethod
    def _newest_assignment(self, project: Any, number: int) -> tuple[str, Any] | None:
        """(id, account) of the newest assignment of the issue to the bot, if that assignment is newer than the label
        that shows the end of a task; else None."""

    @abstractmethod
    def _asker(self, project: Any, item: dict[str, Any], state: RequestState) -> str:
        """The login of the account that asked for work; raises IssueUnreadable when no account with permission did."""

    def _of_item(self, key: TaskKey, item: dict[str, Any], present: frozenset[str]) -> Task | None:
        """The task of an issue or pull request with the labels `present`; None when it does not wait for work, when
        this poll cannot look up the person who asked, or when that person has no permission."""
        labels, places = self.forge.labels, self.forge.places
        effective = present - labels.without_effect(self.forge.section.start)
        labelled = labels.queued in self._labels() and labels.queued in effective
        assigned = self._by_assignment() and places.is_assigned(item)
        again = not labelled and assigned and not self._left and bool(labels.ended(effective))
        fresh = assigned and effective.isdisjoint(labels.names())
        if item.get("state") != "open" or not (again or fresh or not present.isdisjoint(self._labels())):
            return None
        project = places.project_of(key)
        if again:
            return self._assigned_again(key, project, item, present)
        # an issue on which some daemon works has the processing label, and no longer the bot label
        return self._waiting(key, project, item, present, labelled=labelled or (self._left and not assigned))

    def _waiting(
        self, key: TaskKey, project: _Project, item: dict[str, Any], present: frozenset[str], *, labelled: bool
    ) -> Task | None:
        """The task of an issue or pull request that waits for work and has the labels `present`; None when this poll
        cannot look up the person who asked, or that person has no permission. `labelled`: a label asks for work, and
        not only an assignment."""
        state = RequestState(project.full_name, item["number"], item.get("updated_at"), self._left, labelled)
        facts = {name: item.get(name) for name in ("number", "user", "updated_at")}
        asker = partial(self._asker, project, facts, state)
        author = item.get("user")
        told: dict[str, Any] = {
            "title": str(item.get("title") or ""),
            "labels": present,
            "has_comments": item.get("comments") != 0,
        }
        # whether it is enough to look up who asked for the work when the task is enqueued
        quick = labelled or not self.forge.places.is_person()
        if quick and state not in self.forge.askers and self.forge.places.may_ask(project, author):
            return Task(key, self.forge, user=self.login(author), asker=asker, **told)
        if state not in self.forge.askers and not self._may_look_up():
            return None
        try:
            with self._reading_events(f"{key.repo}#{key.task_id}"):
                return Task(key, self.forge, user=asker(), **told)
        except IssueUnreadable as problem:
            if problem.code not in (SELF_ASSIGNED, NOT_SHOWN):
                self._report_problem(problem, f"{key.repo}#{key.task_id} {item.get('updated_at')}")
            return None

    def _assigned_again(
        self, key: TaskKey, project: _Project, item: dict[str, Any], present: frozenset[str]
    ) -> Task | None:
        """The task of an issue that was assigned to the bot again after the end of a task; None if the issue was not
        assigned again, if a person without permission assigned it, if a person assigned it to themselves, or if this
        poll may look up no further issue. To find the newest assignment, the events of an issue are read again only
        when the issue has changed."""
        state = (project.full_name, item["number"], item.get("updated_at"), "again")
        if state in self.forge.askers:
            found = self.forge.askers[state]
        elif not self._may_look_up():
            return None
        else:
            with self._reading_events(f"{project.full_name}#{item['number']}"):
                found = self._newest_assignment(project, item["number"])
        self._keep(state, item, found)
        if found is None or self.forge.places.is_self_assignment(found[1]):
            return None
        if not self.forge.places.may_ask(project, found[1]):
            return None
        title, started_by = str(item.get("title") or ""), f"assigned-{found[0]}"
        return Task(key, self.forge, user=self.login(found[1]), title=title, labels=present, started_by=started_by)

    def _keep(self, state: tuple[Any, ...], item: dict[str, Any], found: Any) -> None:
        """Cache what the events of an issue say about who asked for work, unless the issue has changed just now: a
        second change within the same second would leave the issue's time of change the same."""
        if not changed_just_now(item):
            self._askers[state] = self.forge.askers[state] = found

    def _check_permission(self, project: _Project, actor: Any, state: RequestState) -> None:
        """Raise IssueUnreadable when the account that asked for work has no permission, or when a person has only
        assigned the issue to themselves."""
        places = self.forge.places
        where = f"{project.full_name}#{state.number}"
        if not state.is_left and not state.labelled and places.is_self_assignment(actor):
            raise IssueUnreadable(f"{where}: {self.login(actor)} took it, and asked for no work", code=SELF_ASSIGNED)
        if not places.may_ask(project, actor):
            raise IssueUnreadable(
                f"{where}: asked for by {self.login(actor) or 'a deleted account'}, who may not write to "
                f"{project.full_name} or is not in allowed_users; somebody who may has to "
                f"{how_to_ask(self.forge.section.start)}"
            )
