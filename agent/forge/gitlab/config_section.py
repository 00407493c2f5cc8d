"""Parses a section `gitlab` of the settings: the host and the projects.

If the token is missing or a project is written in a wrong form, `listed` raises ConfigError, which names the key to
set.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from agent.errors import ConfigError

_PART = r"(?!\.\.?(?:/|$))[\w.-]+"
_PROJECT = re.compile(rf"[1-9][0-9]*|{_PART}(?:/{_PART})+")


def addresses(base_url: str) -> tuple[str, str]:
    """(address of GitLab with its sub-path, `instance`: host, port and sub-path), from the setting `base_url`.

    `base_url` may end with the path of the API in any version (`/api/v3`), which is removed: the adapter uses version
    4.
    """
    parts = urlsplit(base_url)
    path = re.sub(r"/api(/v\d+)?$", "", parts.path.rstrip("/")).rstrip("/")
    netloc = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{netloc}{path}", f"{netloc}{path}"


def listed(section: Any) -> tuple[str, ...]:
    """The projects that the section of the settings lists, each once, as a path `a/b/c` or as a number; a name without
    `/` gets the setting `owner` as its first part; an empty list means all projects of the account. Raises ConfigError
    if the token is missing, and for an entry that is neither a path nor a number, nor becomes a path by `owner`."""
    if section.token is None:
        raise ConfigError("gitlab.token is not set: set it, or GITLAB_TOKEN in the environment")
    projects = []
    for one in section.project_names:
        name = one.strip("/")
        if not name.isdigit() and "/" not in name and section.owner is not None:
            name = f"{section.owner.strip('/')}/{name}"
        if not _PROJECT.fullmatch(name):
            raise ConfigError(f"gitlab.projects: {one!r} is not a project; write group/subgroup/name, or its number")
        projects.append(name)
    return tuple(dict.fromkeys(projects))
