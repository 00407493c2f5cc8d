"""The contract of an adapter's object that makes commits at the host, which signs them (`commit.signing`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One path of a git tree: `mode` is its mode in git's six digits, and `object` the full hash of its git object; if
    `object` is None, the path is removed."""

    path: str
    mode: str
    object: str | None


@dataclass(frozen=True, slots=True)
class MadeCommit:
    """A commit that the host has made: its full hash, and `payload`, the text of the commit without `signature`.

    `is_verified`: the host regards the signature as valid; `reason` is the host's word for the result."""

    commit: str
    payload: str
    signature: str
    is_verified: bool
    reason: str


class CommitMaker(Protocol):
    """Makes commits at the host, which signs them.  Each call may be repeated, since it moves no branch.

    The blobs must be in the repository already. `make_tree` and `make_commit` raise ForgeRefused if the host does not
    take the content, and another ForgeError if the request fails for another reason.
    """

    def make_tree(self, base: str, entries: Sequence[CommitEntry]) -> str:
        """The full hash of a tree that is the tree `base` with the changes `entries`; a path to remove must exist."""
        ...

    def make_commit(self, message: str, tree: str, parents: Sequence[str]) -> MadeCommit:
        """Make a commit in the name of the program's own account. `tree` and `parents` must be in a branch, or made by
        this object."""
        ...
