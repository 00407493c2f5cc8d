"""Checks the rights of a GitLab token: its scopes, its expiry, and the account's role in the first listed projects.

The check of a GitLab token changes nothing on GitLab, and no text of this module contains the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.gitlab.projects import DEVELOPER
from agent.forge.host_client import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.gitlab.adapter_interface import GitLabAdapter

EXPIRES_SOON = 14  # days
LOOKED_AT = 20  # projects
ROLES = {0: "no member", 5: "Minimal access", 10: "Guest", 15: "Planner", 20: "Reporter"}


def rights(forge: GitLabAdapter) -> Iterator[str]:
    """Sentences about problems of the token's rights, each with the remedy; no sentence when there is no problem."""
    yield from _of_token(forge)
    number, name = forge.places.own()
    for one in forge.projects[:LOOKED_AT]:
        try:
            project = forge.places.project(one, patience=QUICK)
            role = forge.places.access_of(project, number, QUICK, anew=True)
        except (IssueUnreadable, ForgeAccessRefused):
            continue  # the project is skipped without a sentence, since the poll for tasks reports this error
        if role < DEVELOPER:
            yield (
                f"{forge.instance}: {name}, the account of the token, is {ROLES.get(role, f'of level {role}')} in "
                f"{project.full_name} and can push nothing; make it Developer (Manage > Members)"
            )


def _of_token(forge: GitLabAdapter) -> Iterator[str]:
    try:
        token = forge.wire.get("/personal_access_tokens/self", patience=QUICK)
    except (ForgeRefused, ForgeAccessRefused):
        return  # nothing is checked: GitLab refuses this request for an OAuth token, and in old versions for any token
    if "api" not in token.get("scopes", ()):
        scopes = ", ".join(token.get("scopes", ())) or "none"
        yield (
            f"{forge.instance}: the token has the scopes {scopes}; it needs api. Scopes are not added to a "
            f"token: make a new one and set it"
        )
    if until := token.get("expires_at"):
        days = (clock.parse(str(until)) - clock.now()).days
        if days < EXPIRES_SOON:
            yield f"{forge.instance}: the token expires on {until}; make a new one and set it"
