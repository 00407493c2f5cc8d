"""The type of the GitLab adapter, as the modules of this package see it: the contract of a forge and the attributes
that the modules share.

The class in `forge.py` implements this type and imports the other modules of the package, so the other modules import
`adapter_interface.py` instead of `forge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.forge.base import Forge

if TYPE_CHECKING:
    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.listed_projects import ListedProjects
    from agent.forge.gitlab.projects import Project, Projects
    from agent.forge.gitlab.task_items import TaskItems
    from agent.forge.unanswered_lists import UnansweredLists


class GitLabAdapter(Forge, Protocol):
    """`projects`: the projects that the adapter's section in the settings lists, by path or number.

    `lists`: the API paths of the projects and groups in which the last poll searched for issues with the label.
    `groups`: owners of the account's projects that are groups, not people. `members`: (time of the request by the
    monotonic clock, the (path, project) of each project of which the account is a member); None before the first
    request. Each poll of GitLab has a new task getter, so the adapter stores the facts that a later poll needs: `told`
    (the refusals of projects and issues that were reported already), `askers` (state of an issue → who asked for work
    on it) and `unanswered` (the lists that GitLab did not answer).
    """

    section: Any
    wire: GitLabWire
    places: Projects
    items: TaskItems
    listed: ListedProjects
    projects: tuple[str, ...]
    lists: list[str]
    groups: set[str]
    members: tuple[float, list[tuple[str, Project]]] | None
    told: set[str]
    unanswered: UnansweredLists
    askers: dict[tuple[Any, ...], Any]

    def is_group(self, project: Project) -> bool:
        """Whether the owner of the project is in `groups`."""
        ...
