"""The table of dialects (differences between model servers, as data), and functions that recognise a server.

The first of these that matches selects the dialect: the setting `llm.<provider>.dialect`, the host or path of the
address, data that the server sends (owner of its models, headers of its answers), and finally the default dialect of
the provider's client class.  This module sends no requests.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.llm.dialects.base import STOPS, Dialect, Roles, When
from agent.llm.dialects.hosted import HOSTED
from agent.llm.dialects.local import COMPATIBLE, LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "COMPATIBLE",
    "DIALECTS",
    "STOPS",
    "Dialect",
    "Roles",
    "When",
    "by_headers",
    "by_host",
    "by_owner",
    "by_path",
]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (*HOSTED, *LOCAL)}


def by_host(host: str) -> Dialect | None:
    """The dialect of the hosted service with the host name `host` (in lower case), None for an unknown host."""
    return next((one for one in DIALECTS.values() if any(fnmatchcase(host, pattern) for pattern in one.hosts)), None)


def by_path(path: str) -> Dialect | None:
    """The dialect of the service that has addresses with a path like `path` on any host; None for an unknown path."""
    return next((one for one in DIALECTS.values() if any(fnmatchcase(path, pattern) for pattern in one.paths)), None)


def by_owner(owner: str) -> Dialect | None:
    """The dialect of the kind of server that lists its models with this value of `owned_by`."""
    return next((one for one in DIALECTS.values() if owner.lower() in one.owners), None)


def by_headers(names: Iterable[str]) -> Dialect | None:
    """The dialect of the kind of server that sends one of these response headers (names in lower case)."""
    found = set(names)
    return next((one for one in DIALECTS.values() if found.intersection(one.marks)), None)
