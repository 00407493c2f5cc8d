"""One issue or merge request of GitLab that is a task: read, labelled, and what a refusal about it means.

Called by `gitlab.py` and the getter.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.gitlab_wire import PATIENT, is_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.base import Labels, LabelState
    from agent.forge.gitlab_places import Places, Project
    from agent.forge.gitlab_wire import GitLabWire
    from agent.values import TaskKey

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class Items:
    """The issues and merge requests of one account."""

    def __init__(self, wire: GitLabWire, places: Places, labels: Labels) -> None:
        self.wire = wire
        self.places = places
        self.labels = labels

    def get(self, key: TaskKey, *, patience: float = PATIENT) -> tuple[Project, dict[str, Any]]:
        """(its project, the answer about it).  IssueUnreadable when it is gone."""
        number_of(key)
        project = self.places.of(key, patience=patience)
        return project, self.call(key, "GET", self.path(key, project), patience=patience)

    def call(self, key: TaskKey, verb: str, path: str, body: Any = None, **more: Any) -> Any:
        """One call about the issue or merge request of the key."""
        with self.about(key, change=verb != "GET"):
            return self.wire.call(verb, path, body=body, **more).data

    @contextmanager
    def about(self, key: TaskKey, *, change: bool = False) -> Iterator[None]:
        """Inside, a refusal because the item is not there, or its project is archived, is IssueUnreadable."""
        try:
            yield
        except ForgeRefused as error:
            if not is_missing(error):
                raise
            self.places.forget(key)
            project = self.places.of(key)
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
        """IssueUnreadable when a change was refused because the project is archived: GitLab's 403 does not say so.
        What was learnt of the project may be older."""
        self.places.forget(key)
        if self.places.of(key).archived:
            said = f"{key}: the project is archived, nothing can be written there; unarchive it ({error})"
            raise IssueUnreadable(said, code="repository_archived") from error

    def move(self, key: TaskKey, item: dict[str, Any], to: LabelState) -> None:
        """One request adds and takes away: GitLab carries it out whole, makes a label that is new, and touches no
        other."""
        remove, add = self.labels.change(self.label_names(item), to)
        change = {"add_labels": [add] if add else [], "remove_labels": list(remove)}
        if body := {name: value for name, value in change.items() if value}:
            self.call(key, "PUT", self.path(key, self.places.of(key)), body)

    def label_names(self, item: dict[str, Any]) -> frozenset[str]:
        """The labels of an issue or merge request."""
        labels = (label.get("name") if isinstance(label, dict) else label for label in item.get("labels") or ())
        return frozenset(str(label) for label in labels if label)

    def waits(self, item: dict[str, Any]) -> bool:
        """Whether it is open and asks for work: by the label, or assigned to the bot and never taken."""
        present = self.label_names(item)
        if item.get("state") != "opened" or self.labels.queued in present:
            return item.get("state") == "opened"
        return not present & self.labels.all() and any(self.places.is_own(user) for user in item.get("assignees") or ())

    def is_left(self, item: dict[str, Any]) -> bool:
        """Whether it is open and shows that somebody has it."""
        return item.get("state") == "opened" and not self.label_names(item).isdisjoint(self.labels.left())

    def path(self, key: TaskKey, project: Project) -> str:
        """Its path in the API."""
        return f"{project.path}/{'merge_requests' if is_merge(key) else 'issues'}/{number_of(key)}"


def is_merge(key: TaskKey) -> bool:
    """Whether the task is about a merge request."""
    return key.task_type == "merge_request"


def state_of(item: dict[str, Any]) -> Literal["open", "closed"]:
    """Open also while it is being merged."""
    return "open" if item.get("state") in ("opened", "locked") else "closed"


def number_of(key: TaskKey) -> str:
    """The number within the project.  IssueUnreadable for what is none: it goes into an address."""
    if not _NUMBER.fullmatch(key.task_id):
        raise IssueUnreadable(f"{key.task_id!r} is not the number of an issue on GitLab; they are called 1, 2, 3 …")
    return key.task_id
