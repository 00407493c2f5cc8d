"""Moves the six labels of this program on the issues of Forgejo.

Facts about Forgejo: a repository may have two labels with the same name; adding a label by a name that does not exist
is ignored without an error; removing a label that the issue does not have is a success. Since a name may be unknown or
belong to two labels, labels are added to a Forgejo issue by their numbers, and the program checks that Forgejo's answer
contains the added label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ForgeError
from agent.forge.label_appearance import COLOURS, MEANINGS
from agent.forge.post_once import post_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.forge.base import Labels, LabelState
    from agent.forge.forgejo.http import ForgejoWire
    from agent.forge.forgejo.repositories import Project


class LabelMover:
    """Adds and removes labels, and stores the numbers of the labels of each repository in memory and in
    `HostFactsCache`."""

    def __init__(self, wire: ForgejoWire, labels: Labels) -> None:
        self.wire = wire
        self.labels = labels
        self._numbers: dict[tuple[str, str], int] = {}

    def names_in(self, project: Project) -> list[str]:
        """The names of the labels of a repository, without the labels of its organisation."""
        return [str(one["name"]) for one in self.wire.pages(f"{project.path}/labels")]

    def move(self, project: Project, number: str, to: LabelState) -> None:
        """Add the label of the state `to`, if the settings name one, and remove the other labels of this program."""
        path = f"{project.path}/issues/{number}/labels"
        target, kept = self.labels.name(to), 0
        if target:
            present, kept = self._add(project, path, to)
        else:
            present = self.wire.get(path)
        for one in present:
            if one["name"] in self.labels.names() and one["id"] != kept:
                self.wire.call("DELETE", f"{path}/{one['id']}")

    def _add(self, project: Project, path: str, to: LabelState) -> tuple[list[dict[str, Any]], int]:
        """Add the label of the state `to`: (the labels of the issue after the change, the number of the added label).

        A stored label number may belong to a label that somebody has deleted since; Forgejo ignores such a number, and
        then the number of the label is looked up again.
        """
        name = self.labels.name(to)
        for _ in (1, 2):
            number = self._number(project, to)
            present: list[dict[str, Any]] = self.wire.call("POST", path, body={"labels": [number]}, again=True).data
            if any(one["id"] == number for one in present):
                return present, number
            self._numbers.pop((project.full_name, name), None)
            self.wire.facts.drop(self._fact(project))
        raise ForgeError(f"{self.wire.host}: {project.full_name}: the label `{name}` is not taken by the issue")

    def _number(self, project: Project, to: LabelState) -> int:
        """The number of the label of the state `to`; the label is created with its colour if the repository does not
        have it.

        If several labels of a repository have the same name, because two daemons have created the label at the same
        time, the oldest label is used.
        """
        name = self.labels.name(to)
        kept = self._numbers.get((project.full_name, name))
        if kept is not None:
            return kept
        path = f"{project.path}/labels"
        known = self.wire.facts.find(self._fact(project))
        found = (self._read(project) if known is None else known).get(name)
        if found is None and known is not None:  # the label may be newer than the stored list of labels
            found = self._read(project).get(name)
        if found is None:
            body = {"name": name, "color": f"#{COLOURS[to]}", "description": MEANINGS[to]}

            def there() -> str | None:
                number = self._read(project).get(name)
                return None if number is None else str(number)

            made = post_once(lambda: str(self.wire.call("POST", path, body=body, again=False).data["id"]), there)
            found = int(there() or made)
        self._numbers[project.full_name, name] = int(found)
        return int(found)

    def _read(self, project: Project) -> dict[str, int]:
        """Name → number of this program's labels that the repository has; the other processes of this machine get them
        too."""
        listed = list(self.wire.pages(f"{project.path}/labels"))
        numbers = {name: _oldest(listed, name) for name in self.labels.names()}
        found = {name: number for name, number in numbers.items() if number is not None}
        self.wire.facts.put(self._fact(project), found)
        return found

    def _fact(self, project: Project) -> str:
        return f"{project.full_name} has the labels {', '.join(sorted(self.labels.names()))}"


def label_names(item: dict[str, Any]) -> frozenset[str]:
    """The names of the labels in Forgejo's answer about an issue."""
    return frozenset(str(label["name"]) for label in item.get("labels") or ())


def _oldest(labels: Iterable[dict[str, Any]], name: str) -> int | None:
    return min((int(one["id"]) for one in labels if one["name"] == name), default=None)
