"""Addresses of issues, pull and merge requests as a browser shows them: whose they are, and which number.

Pure; the adapters call it for `Forge.task_at`.  What follows the number (`/files`, `#issuecomment-1`, `?tab=…`) says
nothing of which issue it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_NUMBER = r"([1-9][0-9]{0,9})(?:/.*)?"
_GITHUB = re.compile(rf"([^/]+)/([^/]+)/(?:issues|pull)/{_NUMBER}")
_GITLAB = re.compile(rf"(.+)/((?!-/)[^/]+)(?:/-)?/(issues|work_items|merge_requests)/{_NUMBER}")


class Found(NamedTuple):
    """What an address names.  `kind` is the task type where the address says it, else ""."""

    owner: str
    repo: str
    kind: str
    number: str


def on_github(address: str, instance: str) -> Found | None:
    """`https://{instance}/owner/repo/issues/7` or `…/pull/7`.  Each leads to the other where it is the other, so the
    address does not say what it is."""
    found = _GITHUB.fullmatch(_below(address, instance))
    return None if found is None else Found(found[1], found[2], "", found[3])


def on_gitlab(address: str, instance: str) -> Found | None:
    """`https://{instance}/group/subgroup/project/-/issues/7`, `…/-/merge_requests/7`; without `-` as it was until 2019,
    and `work_items` as issues are called since."""
    found = _GITLAB.fullmatch(_below(address, instance))
    if found is None:
        return None
    return Found(found[1], found[2], "merge_request" if found[3] == "merge_requests" else "issue", found[4])


def _below(address: str, instance: str) -> str:
    """The path below the instance (host, port and sub-path), "" when the address is of another."""
    try:
        parts = urlsplit(address.strip())
        netloc = parts.netloc.rpartition("@")[2].casefold().removeprefix("www.")
    except ValueError:
        return ""
    host, _, prefix = instance.partition("/")
    path = unquote(parts.path).strip("/")
    if parts.scheme not in ("http", "https") or netloc != host.casefold():
        return ""
    if not prefix:
        return path
    return path.removeprefix(f"{prefix}/") if path.startswith(f"{prefix}/") else ""
