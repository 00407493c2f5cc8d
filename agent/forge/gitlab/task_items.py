"""Reads and labels the issue or merge request of a task on GitLab, and interprets GitLab's refusals about it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.gitlab.http import is_missing
from agent.forge.host_client import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.config.forge_sections import Start
    from agent.forge.base import Labels, LabelState
    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project, Projects
    from agent.values import TaskKey

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class TaskItems:
    """Reads and labels the issues and merge requests that one account sees."""

    def __init__(self, wire: GitLabWire, places: Projects, labels: Labels, start: Start) -> None:
        self.start = start
        self.wire = wire
        self.places = places
        self.labels = labels

    def get(self, key: TaskKey, *, patience: float = PATIENT) -> tuple[Project, dict[str, Any]]:
        """(project of the issue, GitLab's answer about the issue).  Raises IssueUnreadable when GitLab has no such
        issue for this account: it is gone or hidden, or issues are switched off."""
        number_of(key)
        project = self.places.project_of(key, patience=patience)
        return project, self.call(key, "GET", self.path(key, project), patience=patience)

    def call(self, key: TaskKey, verb: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send one request about the issue or merge request of the key; returns the data of GitLab's answer, raises as
        `about` does."""
        with self.about(key, change=verb != "GET"):
            return self.wire.call(verb, path, body=body, **more).data

    @contextmanager
    def about(self, key: TaskKey, *, change: bool = False) -> Iterator[None]:
        """A context manager that raises IssueUnreadable if GitLab answers a request of its block with 404 or, with
        `change`, refuses it because the project is archived."""
        try:
            yield
        except ForgeRefused as error:
            if not is_missing(error):
                raise
            self.places.forget(key)
            project = self.places.project_of(key)
            off = not is_merge(key) and not project.has_issues
            if off:
                why = f"issues are switched off in {project.full_name}"
            else:
                why = "it was deleted or never there, or the account may not see it"
            said = f"{key}: there is no such {key.task_type.replace('_', ' ')}; {why}"
            raise IssueUnreadable(said, code="issues_off" if off else "issue_unreadable") from error
        except ForgeAccessRefused as error:
            if change:
                self.check_archived(key, error)
            raise

    def check_archived(self, key: TaskKey, error: ForgeAccessRefused) -> None:
        """Raise IssueUnreadable when a change was refused because the project is archived, which GitLab's 403 does not
        mention.  The project is read again from GitLab, since the stored facts may be too old."""
        self.places.forget(key)
        if self.places.project_of(key).archived:
            said = f"{key}: the project is archived, nothing can be written there; unarchive it ({error})"
            raise IssueUnreadable(said, code="repository_archived") from error

    def move(self, key: TaskKey, to: LabelState, present: Iterable[str] | None = None) -> None:
        """Change the labels of an issue with one request (none if nothing is to be changed), which adds the label of
        the state `to` and removes those of the program's other labels that are in `present` (all its other labels if
        `present` is None).

        GitLab executes a change of labels atomically, creates a missing label, and leaves the other labels of the issue
        unchanged. GitLab ignores a label in `remove_labels` that the issue does not have (docs.gitlab.com/api/issues,
        "Update an issue").
        """
        here = sorted(self.labels.names() - {self.labels.name(to)}) if present is None else present
        remove, add = self.labels.change(here, to)
        change = {"add_labels": [add] if add else [], "remove_labels": list(remove)}
        if body := {name: value for name, value in change.items() if value}:
            self.call(key, "PUT", self.path(key, self.places.project_of(key)), body)

    def mark_taken(self, key: TaskKey, *, again: bool) -> bool:
        """Set the processing label if the issue waits for work; returns whether the label was set. With `again`,
        somebody asks for a new task after the end of the last one: then an open issue gets the label if
        `Labels.can_start` allows it."""
        _, item = self.get(key)
        waits = self.waits(item)
        if again:
            waits = state_of(item) == "open" and self.labels.can_start(self.label_names(item))
        if not waits:
            return False
        self.move(key, "processing", self.label_names(item))
        return True

    def label_names(self, item: dict[str, Any]) -> frozenset[str]:
        """The names of the labels in GitLab's answer about an issue or merge request."""
        labels = (label.get("name") if isinstance(label, dict) else label for label in item.get("labels") or ())
        return frozenset(str(label) for label in labels if label)

    def waits(self, item: dict[str, Any]) -> bool:
        """Whether an issue is open and asks for work: the issue has the bot label, or is assigned to the bot and has
        none of the program's six labels; the setting `start` may switch off either way of asking."""
        if item.get("state") != "opened":
            return False
        return self.labels.waits(self.label_names(item), self.start, assigned=self.is_assigned(item))

    def is_assigned(self, item: dict[str, Any]) -> bool:
        """Whether an issue is assigned to the bot, and the setting `start` lets assignments ask for work."""
        return self.start.assignee and self.places.is_assigned(item)

    def may_be_assigned_again(self, item: dict[str, Any]) -> bool:
        """Whether an issue is open, shows the end of a task, and is assigned to the bot; the assignment may have been
        made before the task ended."""
        ended = self.labels.ended(self.label_names(item) - self.labels.without_effect(self.start))
        return item.get("state") == "opened" and bool(ended) and self.is_assigned(item)

    def is_left(self, item: dict[str, Any]) -> bool:
        """Whether an issue is open and has the processing or the paused label."""
        return item.get("state") == "opened" and not self.label_names(item).isdisjoint(self.labels.in_use())

    def path(self, key: TaskKey, project: Project) -> str:
        """The path of the issue or merge request in the API."""
        return f"{project.path}/{'merge_requests' if is_merge(key) else 'issues'}/{number_of(key)}"


def is_merge(key: TaskKey) -> bool:
    """Whether the task is about a merge request."""
    return key.task_type == "merge_request"


def collection_of(key: TaskKey) -> str:
    """The part of an API path for the kind of a task key: `issues` or `merge_requests`."""
    return "merge_requests" if is_merge(key) else "issues"


def state_of(item: dict[str, Any]) -> Literal["open", "closed"]:
    """GitLab's state of an issue as "open" or "closed" (`forge/base.py`); a merge request counts as open while GitLab
    is merging it."""
    return "open" if item.get("state") in ("opened", "locked") else "closed"


def number_of(key: TaskKey) -> str:
    """The number of the issue in a task key, within its project; the function checks the number, so that it can be part
    of an address.

    Raises IssueUnreadable if the task key does not contain a valid number.
    """
    if not _NUMBER.fullmatch(key.task_id):
        raise IssueUnreadable(f"{key.task_id!r} is not the number of an issue on GitLab; they are called 1, 2, 3 …")
    return key.task_id
