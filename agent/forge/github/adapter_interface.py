"""The type of the GitHub adapter for the parts of this room: the contract of a forge and the attributes that the parts
share.

This module defines a type only.  The class in `forge.py` implements the type and imports the parts, so the parts import
this module instead of `forge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.forge.base import Forge

if TYPE_CHECKING:
    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Repositories
    from agent.forge.unanswered_lists import UnansweredLists


class GitHub(Forge, Protocol):
    """`projects` are the (owner, repository) pairs of the section; `qualifiers` are the terms of a search, used when
    `searches` is set.  `told`, `askers` and `unanswered` belong to `task_getter.BaseTaskGetter`."""

    wire: GitHubWire
    places: Repositories
    projects: tuple[tuple[str, str], ...]
    qualifiers: tuple[str, ...]
    searches: bool
    told: set[str]
    unanswered: UnansweredLists
    askers: dict[tuple[Any, ...], Any]

    def serves(self, owner: str, repo: str) -> bool:
        """Whether this section covers a repository."""
        ...

    def own_name(self, name: Any) -> str:
        """A label in the spelling that the settings use."""
        ...

    def label_names(self, item: dict[str, Any]) -> frozenset[str]:
        """The labels of an issue; the program's own labels are in the spelling of the settings."""
        ...
