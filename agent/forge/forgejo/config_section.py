"""Parses one section `forgejo` of the settings: the host and the repositories.

The functions in this module are pure; if a setting is wrong, they raise ConfigError, which names the key to set.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from agent.errors import ConfigError

_PROJECT = re.compile(r"(?!\.\.?/)[A-Za-z0-9._-]+/(?!\.\.?\Z)[A-Za-z0-9._-]+")


def addresses(section: Any) -> tuple[str, str]:
    """(address of Forgejo with its sub-path, `instance`: host, port and sub-path), from the setting `base_url`, which
    may end with the API's path (`/api/v1`).

    `base_url` has no default: the token of a private host must not be sent to a public one. Raises ConfigError if the
    address is not set.
    """
    base_url = str(section.base_url or "")
    if not base_url:
        raise ConfigError("forgejo.base_url is not set; set it to the address of your Forgejo or Gitea in a browser")
    parts = urlsplit(base_url)
    path = re.sub(r"/api(/v\d+)?$", "", parts.path.rstrip("/")).rstrip("/")
    netloc = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{netloc}{path}", f"{netloc}{path}"


def projects_of(section: Any) -> tuple[tuple[str, str], ...]:
    """(owner, name) of each repository that the section lists. Raises ConfigError if the token is missing, if the
    section has neither `projects` nor `owner`, or for an entry that is not of the form owner/name (or a name alone, if
    `owner` is set)."""
    if section.token is None:
        raise ConfigError("forgejo.token is not set: set it, or FORGEJO_TOKEN in the environment")
    if not (section.projects or section.owner):
        raise ConfigError(
            "forgejo needs projects (a list of owner/name) or owner: without one the label would be looked for in all "
            "repositories of the host"
        )
    projects = []
    for name in section.project_names:
        full = name if "/" in name or section.owner is None else f"{section.owner}/{name}"
        if not _PROJECT.fullmatch(full):
            raise ConfigError(f"forgejo.projects: {name!r} is not a repository; write owner/name")
        owner, _, repo = full.partition("/")
        projects.append((owner, repo))
    return tuple(dict.fromkeys(projects))
