"""The table of dialects: what differs between servers of models, as data, and how a server is recognised.

In this order: what `llm.<provider>.dialect` says, the host or path of the address, what the server says of itself (the
owner of its models, headers of its answers), and at last the wire's own dialect.  Nothing here asks a server.
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
    """The service with this host name (lower case)."""
    return next((one for one in DIALECTS.values() if any(fnmatchcase(host, pattern) for pattern in one.hosts)), None)


def by_path(path: str) -> Dialect | None:
    """The service whose paths look like this one, whatever the host."""
    return next((one for one in DIALECTS.values() if any(fnmatchcase(path, pattern) for pattern in one.paths)), None)


def by_owner(owner: str) -> Dialect | None:
    """The server whose models have this `owned_by`."""
    return next((one for one in DIALECTS.values() if owner.lower() in one.owners), None)


def by_headers(names: Iterable[str]) -> Dialect | None:
    """The server that sends one of these response headers (lower case)."""
    found = set(names)
    return next((one for one in DIALECTS.values() if found.intersection(one.marks)), None)
