"""The type of the Forgejo adapter, as the modules of this package see it: the contract of a forge and the attributes
that the modules share.

The class in `forge.py` implements this type and imports the other modules of the package, so the other modules import
`adapter_interface.py` instead of `forge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.forge.base import Forge

if TYPE_CHECKING:
    from agent.forge.forgejo.http import ForgejoWire
    from agent.forge.forgejo.repositories import Repositories
    from agent.forge.unanswered_lists import UnansweredLists


class ForgejoAdapter(Forge, Protocol):
    """`projects` are the (owner, repository) pairs of the adapter's section in the settings. Each poll of Forgejo has a
    new task getter, so the adapter stores what a later poll needs: `told` (the problems that were reported already),
    `askers` (state of an issue → who asked for work on it) and `unanswered` (the lists that Forgejo did not answer)."""

    section: Any
    wire: ForgejoWire
    places: Repositories
    projects: tuple[tuple[str, str], ...]
    told: set[str]
    unanswered: UnansweredLists
    askers: dict[tuple[Any, ...], Any]

    def serves(self, owner: str, repo: str) -> bool:
        """Whether the adapter's section in the settings covers a repository."""
        ...
