"""Checks the rights of a Forgejo token, as far as that is possible without a change on Forgejo.

Forgejo does not report the scopes of a token, but a refusal names the missing scope; so this module sends read requests
with the token. No sentence of this module about the token's rights contains the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.forgejo.adapter_interface import ForgejoAdapter

LOOKED_AT = 20  # maximum number of repositories that are checked
NEEDED = "write:repository, write:issue and read:user"


def rights(forge: ForgejoAdapter) -> Iterator[str]:
    """Sentences about problems of the token's rights, each with the remedy; no sentence when there is no problem."""
    with forge.wire.hurried():
        try:
            forge.wire.get("/user")
        except ForgeAccessRefused as error:
            yield f"{forge.instance}: {error}. The token needs {NEEDED} (Settings > Applications)"
            return
        for owner, repo in forge.projects[:LOOKED_AT]:
            yield from _of_project(forge, owner, repo)


def _of_project(forge: ForgejoAdapter, owner: str, repo: str) -> Iterator[str]:
    try:
        project = forge.places.project(owner, repo)
    except IssueUnreadable:
        return  # the repository cannot be read, which the poll for tasks reports
    except ForgeAccessRefused as error:
        yield f"{forge.instance}: {error}. The token needs {NEEDED} (Settings > Applications)"
        return
    if project.may_push is False:
        yield (
            f"{forge.instance}: {forge.places.own()}, the account of the token, may not push to {project.full_name}; "
            f"give it Write (Settings > Collaborators)"
        )
    try:
        forge.wire.get(f"{project.path}/issues", query={"limit": 1})
    except ForgeAccessRefused as error:
        yield f"{forge.instance}: {error}. The token needs {NEEDED} (Settings > Applications)"
        return
    except ForgeRefused:
        pass  # no sentence if, for example, issues and pull requests are switched off: the poll for tasks reports that
    if not forge.places.allowed and not forge.places.knows_writers(project):
        yield (
            f"{forge.instance}: who may write to {project.full_name} is told to its administrators only, and a team of "
            f"its organisation has members who may not: list the people in forgejo.allowed_users, or give the account "
            f"Administrator"
        )
