"""Reads and labels the issue or pull request of a task on GitHub, and interprets GitHub's refusals about it."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.label_appearance import COLOURS, MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.base import Labels, LabelState
    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project, Repositories
    from agent.values import TaskKey

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class TaskItems:
    """Reads and labels the issues and pull requests that one account sees."""

    def __init__(self, wire: GitHubWire, places: Repositories, labels: Labels) -> None:
        self.wire = wire
        self.places = places
        self.labels = labels
        self._spelling = {name.casefold(): name for name in labels.names()}
        # (repository, label) of each label to which this process has given a description.
        self._described: set[tuple[str, str]] = set()

    def own_name(self, name: Any) -> str:
        """A label in the spelling of the settings; GitHub treats `Coding Agent` and `coding agent` as the same
        label."""
        text = str(name or "")
        return self._spelling.get(text.casefold(), text)

    def label_names(self, item: dict[str, Any]) -> frozenset[str]:
        """The labels of an issue; the program's own labels are in the spelling of the settings."""
        labels = (label if isinstance(label, str) else label.get("name") for label in item.get("labels") or ())
        return frozenset(self.own_name(name) for name in labels if name)

    def get(self, key: TaskKey) -> tuple[Project, dict[str, Any]]:
        """(the repository that the task key names, GitHub's answer about the issue).

        Raises IssueUnreadable when the token cannot see the issue or its repository, or the issue was moved to another
        repository.
        """
        number = issue_number(key)
        for attempt in (1, 2):
            project = self.places.project_of(key)
            item = self.call(key, "GET", f"{project.path}/issues/{number}")
            found = str(item["repository_url"]).rpartition("/repos/")[2]
            if found.casefold() == project.full_name.casefold():
                return project, item
            if attempt == 1:
                self.places.forget(key)  # the repository may have been renamed since the facts about it were stored
        raise IssueUnreadable(f"{key} was moved to {found}#{item.get('number')}; ask for it there")

    def call(self, key: TaskKey, verb: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send one request about an issue.  If its answer is lost, the request is sent again, even a POST: adding a
        label twice does no harm.  `again=False` is for a request that must not be sent twice, such as a comment."""
        with self.about(key):
            return self.wire.call(verb, path, body=body, **{"again": True, **more}).data

    @contextmanager
    def about(self, key: TaskKey) -> Iterator[None]:
        """A context manager that raises IssueUnreadable if GitHub answers 404 or 410: the issue does not exist (any
        more), the token may not see it, or issues are switched off."""
        try:
            yield
        except ForgeRefused as error:
            if error.status == 404:
                raise IssueUnreadable(f"{key}: there is no such issue; it was deleted or never there") from error
            if error.status == 410:
                why = "; ".join(error.reasons) or "it was deleted, or issues are switched off in this repository"
                off = "issues_off" if "disabled" in why.lower() else "issue_unreadable"
                raise IssueUnreadable(f"{key} is gone: {why}", code=off) from error
            raise

    def move(self, project: Project, key: TaskKey, to: LabelState) -> set[str]:
        """Add the label of the state `to`, if the settings name one, and remove the other labels of this program;
        returns the labels that this call removed, without the labels that another process removed first."""
        target = self.labels.name(to)
        path = f"{project.path}/issues/{issue_number(key)}/labels"
        if target:
            present = self.call(key, "POST", path, {"labels": [target]})
            self._describe_label(project, to, present)
        else:
            present = self.call(key, "GET", path)
        names = [str(label["name"]) for label in present]
        others = [name for name in names if self.own_name(name) in self.labels.names() - {target}]
        return {self.own_name(name) for name in others if self._take_label_off(path, name)}

    def _describe_label(self, project: Project, state: LabelState, present: list[dict[str, Any]]) -> None:
        """Give a label its colour and description if GitHub has just created it.

        GitHub creates an unknown label that is added to an issue, in a default colour and without a description:
        https://github.com/github/docs/issues/35718. If GitHub refuses to set colour and description of the label, the
        refusal is ignored, since the label works without them.
        """
        name = self.labels.name(state)
        new = any(
            self.own_name(label["name"]) == name and not label.get("description") and label.get("color") == "ededed"
            for label in present
        )
        if new and (project.full_name, name) not in self._described:
            self._described.add((project.full_name, name))
            body = {"color": COLOURS[state], "description": MEANINGS[state]}
            with suppress(ForgeRefused, ForgeAccessRefused):
                self.wire.call("PATCH", f"{project.path}/labels/{quote(name, safe='')}", body=body)

    def _take_label_off(self, path: str, name: str) -> bool:
        """Remove a label from an issue; returns whether this call removed it, False when another process removed it
        first.

        If the answer of one attempt was lost and the label is gone afterwards, this call counts as the one that removed
        the label: otherwise no daemon would regard the issue as its own.
        """
        unknown = False
        for attempt in (1, 2, 3):
            try:
                self.wire.call("DELETE", f"{path}/{quote(name, safe='')}", again=False)
            except ForgeRefused as error:
                if error.status != 404:
                    raise
                return unknown
            except ForgeUnreachable as error:
                if attempt == 3 or not error.maybe:
                    raise
                unknown = True
                clock.sleep(4.0 ** (attempt - 1))
            else:
                return True
        raise AssertionError  # Not reached, since the third attempt to remove the label returns or raises.

    def was_unassigned(self, project: Project, key: TaskKey) -> bool:
        """Whether the bot was removed from the assignees after the run began (after the processing label was set), and
        not assigned again."""
        began = taken = ""
        for event in self.wire.pages(f"{project.path}/issues/{issue_number(key)}/events"):
            when = str(event.get("created_at") or "")
            label = self.own_name((event.get("label") or {}).get("name"))
            if event.get("event") == "labeled" and label == self.labels.processing:
                began = when
            elif event.get("event") in ("assigned", "unassigned") and self.places.is_own(event.get("assignee")):
                taken = when if event["event"] == "unassigned" else ""
        return bool(began and taken) and taken >= began


def issue_number(key: TaskKey) -> str:
    """The number of the task's issue or pull request.  Raises IssueUnreadable if the id in the task key is not a
    number."""
    if not _NUMBER.fullmatch(key.task_id):
        raise IssueUnreadable(f"{key.task_id!r} is not the number of an issue on GitHub; they are called 1, 2, 3 …")
    return key.task_id
