"""Parses the browser addresses of issues, pull requests and merge requests into project and number.

The functions in this module are pure (they only parse text). The text after the number in an address (`/files`,
`#issuecomment-1`, `?tab=…`) is ignored.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_NUMBER = r"([1-9][0-9]{0,9})(?=/|\Z)"
_GITHUB = re.compile(rf"([^/]+)/([^/]+)/(?:issues|pull)/{_NUMBER}")
_FORGEJO = re.compile(rf"([^/]+)/([^/]+)/(?:issues|pulls)/{_NUMBER}")
_GITLAB = re.compile(rf"(.+)/((?!-/)[^/]+)(?:/-)?/(issues|work_items|merge_requests)/{_NUMBER}")


class IssueUrl(NamedTuple):
    """The parts of the address of an issue, pull request or merge request. `kind` is the task type ("issue",
    "merge_request") if the form of the address shows the type, else ""."""

    owner: str
    repo: str
    kind: str
    number: str


def on_github(address: str, instance: str) -> IssueUrl | None:
    """Parse a GitHub address `https://{instance}/owner/repo/issues/7` or `…/pull/7`; None for any other address. GitHub
    redirects an address with `issues` to `pull` or back where that is right, so the form of an address does not show
    whether it belongs to an issue or a pull request."""
    path = _below(address, instance)
    found = _GITHUB.match(path)
    return None if found is None or _goes_on(path, found) else IssueUrl(found[1], found[2], "", found[3])


def on_forgejo(address: str, instance: str) -> IssueUrl | None:
    """Parse a Forgejo address `https://{instance}/owner/repo/issues/7` or `…/pulls/7`; None for any other address.
    Forgejo redirects an address with `issues` to `pulls` or back where that is right, so the form of an address does
    not show whether it belongs to an issue or a pull request."""
    path = _below(address, instance)
    found = _FORGEJO.match(path)
    return None if found is None or _goes_on(path, found) else IssueUrl(found[1], found[2], "", found[3])


def on_gitlab(address: str, instance: str) -> IssueUrl | None:
    """Parse a GitLab address `https://{instance}/group/subgroup/project/-/issues/7` or `…/-/merge_requests/7`.

    GitLab's address of an issue without `/-`, used until 2019, is also accepted, and so is the newer address with
    `work_items`. Returns None for an address in none of these forms.
    """
    path = _below(address, instance)
    found = _GITLAB.match(path)
    if found is None or _goes_on(path, found):
        return None
    return IssueUrl(found[1], found[2], "merge_request" if found[3] == "merge_requests" else "issue", found[4])


def _goes_on(path: str, found: re.Match[str]) -> bool:
    """Whether the part of the address after the number contains a line break, so that the text is not an address.

    The regular expressions of this module do not check for line breaks, since they would scan the rest of the address
    once for each position at which the name of a project may end.
    """
    return "\n" in path[found.end() :]


def _below(address: str, instance: str) -> str:
    """The path of the address below the forge's instance (host, port and sub-path); "" when the text is no HTTP
    address, or is the address of another instance."""
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
