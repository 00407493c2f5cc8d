"""The type of the GitLab adapter for the parts of this room: the contract of a forge and the attributes that the parts
share.

This module defines a type only.  The class in `forge.py` implements the type and imports the parts, so the parts import
this module instead of `forge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.forge.base import Forge

if TYPE_CHECKING:
    from agent.errors import ForgeError
    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project, Projects
    from agent.forge.gitlab.task_items import Items
    from agent.forge.unanswered_lists import UnansweredLists


class GitLab(Forge, Protocol):
    """`projects`: the projects that the section lists, by path or number.

    `lists`: the API paths that the last poll searched for the label.  `groups`: owners that are groups, not people.
    `members`: (time of the monotonic clock in seconds, the (path, project) pairs of which the account is a member).
    `told`, `askers` and `unanswered` belong to `task_getter.BaseTaskGetter`.
    """

    section: Any
    wire: GitLabWire
    places: Projects
    items: Items
    projects: tuple[str, ...]
    lists: list[str]
    groups: set[str]
    members: tuple[float, list[tuple[str, Project]]] | None
    told: set[str]
    unanswered: UnansweredLists
    askers: dict[tuple[Any, ...], Any]

    def served(self) -> list[tuple[str, Project]]:
        """The usable projects among those that the section lists, as (path as in keys, project); the others are
        reported as problems."""
        ...

    def take_problems(self) -> tuple[ForgeError, ...]:
        """The problems that `served` found since the last call: IssueUnreadable for an unusable project,
        ForgeUnreachable for one that did not answer."""
        ...

    def is_group(self, project: Project) -> bool:
        """Whether the owner of the project is a group, not a person."""
        ...
