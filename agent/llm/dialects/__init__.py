"""Contains the table of dialects (differences between model servers, as data), and functions that recognise a server.

The dialect of a server is selected by the setting `llm.<provider>.dialect`, else by the host or path of the address,
else by data that the server sends (owner of its models, headers of its answers); if none of these matches, the default
dialect of the provider's client class is used.
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
    """The dialect of the service that can be recognised by the path `path` of its address, on any host; None for an
    unknown path."""
    return next((one for one in DIALECTS.values() if any(fnmatchcase(path, pattern) for pattern in one.paths)), None)


def by_owner(owner: str) -> Dialect | None:
    """The dialect of the kind of server that lists its models with `owner` as the value of `owned_by`; None for an
    unknown value."""
    return next((one for one in DIALECTS.values() if owner.lower() in one.owners), None)


def by_headers(names: Iterable[str]) -> Dialect | None:
    """The dialect of the kind of server that sends one of the response headers `names` (in lower case); None if no
    header is known."""
    found = set(names)
    return next((one for one in DIALECTS.values() if found.intersection(one.marks)), None)
