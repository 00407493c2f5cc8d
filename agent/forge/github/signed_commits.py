"""Makes trees and commits through GitHub's API, so that GitHub signs the commits of a GitHub App (`commit.signing`).

GitHub signs a commit that an App makes through the API when the request names neither an author nor a committer nor a
signature:
https://docs.github.com/en/authentication/managing-commit-signature-verification/about-commit-signature-verification
("Signature verification for bots"). The author of a commit that GitHub signs is the App, the committer GitHub. This
module uses "Create a tree" and "Create a commit" of the Git database (https://docs.github.com/en/rest/git); the GraphQL
mutation `createCommitOnBranch` is not used, since it can neither set modes (executable files, links, submodules) nor
make merges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.forge.commit_maker import MadeCommit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.forge.commit_maker import CommitEntry
    from agent.forge.github.http import GitHubWire
    from agent.forge.github.repositories import Project

KINDS = {"040000": "tree", "160000": "commit"}
"""Mode of an entry of a tree → its type, if the type is not `blob`."""


class SignedCommits:
    """Makes the commits of one repository; implements `commit_maker.CommitMaker`."""

    def __init__(self, wire: GitHubWire, project: Project) -> None:
        self.wire = wire
        self.path = f"{project.path}/git"

    def make_tree(self, base: str, entries: Sequence[CommitEntry]) -> str:
        """See `CommitMaker`."""
        tree = [
            {"path": one.path, "mode": one.mode, "type": KINDS.get(one.mode, "blob"), "sha": one.object}
            for one in entries
        ]
        body = {"base_tree": base, "tree": tree}
        return str(self.wire.call("POST", f"{self.path}/trees", body=body, again=True).data["sha"])

    def make_commit(self, message: str, tree: str, parents: Sequence[str]) -> MadeCommit:
        """See `CommitMaker`."""
        body = {"message": message, "tree": tree, "parents": list(parents)}
        made = self.wire.call("POST", f"{self.path}/commits", body=body, again=True).data
        signed: dict[str, Any] = made["verification"]
        return MadeCommit(
            str(made["sha"]),
            str(signed["payload"] or ""),
            str(signed["signature"] or ""),
            is_verified=bool(signed["verified"]),
            reason=str(signed["reason"]),
        )
