"""Checks the rights of a GitHub token, as far as that is possible without a change on GitHub.

GitHub reports the scopes of a classic token in a header of every answer, and the permissions of an app in the answer
that contains its token. GitHub reports neither scopes nor permissions of a fine-grained token: this module sends read
requests with such a token, and a header of GitHub's refusal names the missing permission. No sentence of this module
about the token's rights contains the token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.github.auth import AppToken
from agent.forge.github.checks import CheckReader, unread_of
from agent.forge.github.config_section import is_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.github.adapter_interface import GitHubAdapter

SCOPES = "x-oauth-scopes"
EXPIRES = "github-authentication-token-expiration"
EXPIRES_SOON = 14  # days before the expiry from which on a warning is given
LOOKED_AT = 20  # maximum number of projects whose rights are checked
WRITTEN = {"contents": "Contents", "issues": "Issues", "pull_requests": "Pull requests"}
"""Permissions that an app or a fine-grained token needs for writing: name in the API → name on GitHub's web page."""

TRIED = {"/commits": "Contents", "/issues": "Issues", "/pulls": "Pull requests"}


def rights(forge: GitHubAdapter) -> Iterator[str]:
    """Sentences about problems of the token's rights, each with the remedy; no sentence when there is no problem."""
    with forge.wire.hurried():
        if isinstance(forge.wire.tokens, AppToken):
            yield from _of_app(forge, forge.wire.tokens)
            scoped, reads_all = True, False
        else:
            answer = forge.wire.call("GET", "/user")
            scoped = reads_all = SCOPES in answer.headers
            if scoped:
                yield from _of_scopes(forge.instance, answer.headers[SCOPES])
            yield from _of_expiry(forge.instance, answer.headers.get(EXPIRES, ""))
        for owner, repo in forge.projects[:LOOKED_AT]:
            yield from _of_project(forge, owner, repo, tried=not scoped)
            if forge.watches_ci and not reads_all:
                yield from _of_checks(forge, owner, repo)


def _of_app(forge: GitHubAdapter, app: AppToken) -> Iterator[str]:
    if forge.signs_commits and is_server(forge.instance):
        yield (
            f"{forge.instance}: commit.signing is github, and a GitHub Enterprise Server does not sign the commits of "
            f"Apps; sign with commit.signing_key, or set commit.signing to key"
        )
    app.current()
    lacking = [name for permission, name in WRITTEN.items() if app.permissions.get(permission) != "write"]
    if app.permissions and lacking:
        yield (
            f"{forge.instance}: the app may not write {', '.join(lacking)}; give it Read and write in its settings "
            f"(Permissions & events), and let the owner of the installation accept that"
        )


def _of_scopes(instance: str, header: str) -> Iterator[str]:
    scopes = [one.strip() for one in header.split(",") if one.strip()]
    if "repo" in scopes:
        return
    if "public_repo" in scopes:
        yield f"{instance}: the token has public_repo and not repo: private repositories cannot be worked on"
    else:
        known = ", ".join(scopes) or "none"
        yield (
            f"{instance}: the token has the scopes {known}; it needs repo. Tick it at Settings > Developer settings > "
            f"Personal access tokens, or make a fine-grained token (docs/forges.md)"
        )


def _of_expiry(instance: str, header: str) -> Iterator[str]:
    """A sentence that warns if the token expires soon; `header` has the form `2026-12-01 00:00:00 UTC`, or `+0100` in
    place of `UTC`."""
    if (day := re.match(r"\d{4}-\d\d-\d\d", header)) is None:
        return
    if (clock.parse(f"{day[0]}T00:00:00Z") - clock.now()).days < EXPIRES_SOON:
        yield f"{instance}: the token expires on {day[0]}; make a new one and set it"


def _of_project(forge: GitHubAdapter, owner: str, repo: str, *, tried: bool) -> Iterator[str]:
    try:
        project = forge.places.project(owner, repo)
    except IssueUnreadable:
        return  # the poll for tasks reports the error that this request met
    if project.may_push is False:
        yield (
            f"{forge.instance}: the account of the token may not push to {project.full_name}; give it the role Write "
            f"(Settings > Collaborators and teams)"
        )
    if not tried:
        return
    lacking = [name for path, name in TRIED.items() if not _may_read(forge, f"{project.path}{path}")]
    if lacking:
        yield (
            f"{forge.instance}: the token may not see {', '.join(lacking)} of {project.full_name}; a fine-grained "
            f"token needs Read and write for {', '.join(WRITTEN.values())} there"
        )


def _of_checks(forge: GitHubAdapter, owner: str, repo: str) -> Iterator[str]:
    """Sentences for `doctor` about CI checks that the token may not read; a classic token with the scope `repo` can
    read all checks."""
    try:
        project = forge.places.project(owner, repo)
    except IssueUnreadable:
        return
    if project.default_branch:
        for said in unread_of(CheckReader(forge.wire, project), project.default_branch):
            yield f"{forge.instance}: {said}"


def _may_read(forge: GitHubAdapter, path: str) -> bool:
    try:
        forge.wire.get(path, query={"per_page": 1})
    except ForgeAccessRefused:
        return False
    except ForgeRefused:
        return True  # the repository is empty, or the feature is switched off, so no permission is missing
    return True
