"""The type of the GitHub adapter, as the modules of this package see it: the contract of a forge and the attributes
that the modules share.

The class in `forge.py` implements this type and imports the other modules of the package, so the other modules import
`adapter_interface.py` instead of `forge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.forge.base import Forge

if TYPE_CHECKING:
    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Repositories
    from agent.forge.github.task_items import TaskItems
    from agent.forge.unanswered_lists import UnansweredLists
    from agent.values import TaskKey


class GitHubAdapter(Forge, Protocol):
    """`projects` are the (owner, repository) pairs of the adapter's section in the settings; `qualifiers` are the terms
    of GitHub's issue search, by which waiting issues are found when `searches` is set. `watches_ci` is True if the
    adapter reads the checks of pull requests, `signs_commits` if GitHub makes the commits and signs them. Each poll of
    GitHub has a new task getter, so the adapter stores the facts that a later poll needs: `told` (the problems that
    were reported already), `askers` (state of a waiting issue → account that asked for the work) and `unanswered` (the
    lists that GitHub did not answer). `asked_by`: task → the account that asked for its work, None if it is unknown.
    `states`: task → (the time of the issue's last change for which its events were read, whether the bot was
    unassigned)."""

    section: Any
    wire: GitHubWire
    watches_ci: bool
    signs_commits: bool
    places: Repositories
    items: TaskItems
    projects: tuple[tuple[str, str], ...]
    qualifiers: tuple[str, ...]
    searches: bool
    told: set[str]
    unanswered: UnansweredLists
    askers: dict[tuple[Any, ...], Any]
    asked_by: dict[TaskKey, Any]
    states: dict[TaskKey, tuple[str, bool]]

    def serves(self, owner: str, repo: str) -> bool:
        """Whether the adapter's section in the settings covers a repository."""
        ...
