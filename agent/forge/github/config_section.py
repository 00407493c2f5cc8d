"""Parses one section `github` of the settings: the host, the repositories, the terms of the issue search.

The functions in this module are pure.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from agent.errors import ConfigError

PUBLIC = "https://api.github.com"
_PROJECT = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")


def instance_of(base_url: str) -> str:
    """The name of the GitHub instance: `github.com`, or the host (with port and path) of a GitHub Enterprise server."""
    if base_url.rstrip("/") == PUBLIC:
        return "github.com"
    parts = urlsplit(base_url)
    path = re.sub(r"/api(/v3)?$", "", parts.path.rstrip("/"))
    return f"{parts.netloc.rpartition('@')[2]}{path}"


def projects_of(section: Any) -> tuple[tuple[str, str], ...]:
    """(owner, name) of each project that the section lists.  If a setting is missing or wrong, raises ConfigError,
    which names the key to set."""
    if section.token is None and section.app is None:
        raise ConfigError(
            "github.token is not set: set it, or GITHUB_TOKEN in the environment, or github.app for a GitHub App"
        )
    if not (section.projects or section.owner or section.query):
        raise ConfigError(
            "github needs projects (a list of owner/name), owner or query: without one the label would be "
            "looked for in all of GitHub"
        )
    projects = []
    for name in section.project_names:
        full = name if "/" in name or section.owner is None else f"{section.owner}/{name}"
        if not _PROJECT.fullmatch(full):
            raise ConfigError(f"github.projects: {name!r} is not a repository; write owner/name")
        owner, _, repo = full.partition("/")
        projects.append((owner, repo))
    return tuple(projects)


def signs_commits(section: Any, signing: str) -> bool:
    """Whether GitHub signs the commits of this section; `signing` is the value of `commit.signing`.

    GitHub signs what a GitHub App makes through its API, and nothing that it makes for the token of a person:
    https://docs.github.com/en/authentication/managing-commit-signature-verification/about-commit-signature-verification
    ("Signature verification for bots"). Raises ConfigError if `signing` is `github` and the section has no app.
    """
    if signing != "github":
        return False
    if section.app is None:
        raise ConfigError(
            "commit.signing is github, and github has a token and no app: GitHub signs only the commits that a GitHub "
            "App makes through its API; set github.app, or sign with commit.signing_key and commit.signing: key"
        )
    return True


def is_server(instance: str) -> bool:
    """Whether an instance is a GitHub Enterprise Server, and neither github.com nor GHE.com."""
    return instance != "github.com" and not instance.endswith(".ghe.com")


def qualifiers_of(section: Any, projects: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The terms of the search for waiting issues; none when the section names projects and no query, so that the issues
    of each project are listed instead, and none when it names no projects, owner or query."""
    if projects and not section.query:
        return ()
    words = [f"repo:{owner}/{repo}" for owner, repo in projects]
    if section.owner and not projects:
        words.append(f"user:{section.owner}")
    return (*words, *(str(section.query).split() if section.query else ()))
