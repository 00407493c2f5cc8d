"""Recognises addresses of pictures in GitHub issues, and downloads the pictures with a token.

GitHub's addresses of pictures, `/user-attachments/assets/{id}` and the older `/{owner}/{repo}/assets/…`, redirect to a
signed address (openai/codex#43923, pingdotgg/t3code#10775); an Enterprise Server has pictures at `/storage/user/…`
(desktop/desktop#16553). To a request with a fine-grained token for the address of a picture in a private repository,
GitHub answers 404 (josegonzalez/python-github-backup#477). If a picture cannot be read at its address, this module
takes a signed address of the same picture from the issue's HTML, which the API returns.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from agent.errors import ForgeError, PictureRefused
from agent.forge.pictures import PictureHost, fetch, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from urllib.parse import SplitResult

    from agent.forge.github.http import GitHubWire
    from agent.values import TaskKey

PATHS = re.compile(r"/user-attachments/assets/|/storage/user/|/[^/]+/[^/]+/assets/|/[^/]+/[^/]+/raw/|/raw/")
STORES = re.compile(
    r"(?:[a-z0-9-]+\.)*githubusercontent\.com|github-production-[a-z0-9-]+\.s3\.amazonaws\.com", re.IGNORECASE
)
_SOURCE = re.compile(r"""<img\b[^<>]*?\bsrc=["']([^"'<>]+)["']""", re.IGNORECASE)


class GitHubPictures(PictureHost):
    """The hosts of GitHub, or of an Enterprise Server, that have pictures."""

    wire: GitHubWire

    def __init__(self, wire: GitHubWire) -> None:
        super().__init__(wire)
        self.names = {self.web.netloc.lower()} | ({"github.com"} if self.web.hostname == "api.github.com" else set())

    def is_own(self, parts: SplitResult) -> bool:
        is_here = parts.netloc.lower() in self.names and parts.scheme == self.web.scheme
        return is_here and bool(PATHS.match(parts.path))

    def is_store(self, parts: SplitResult) -> bool:
        """Whether an address is on one of GitHub's file hosts; the file host of an Enterprise Server is its subdomain
        `media.`."""
        name = (parts.hostname or "").lower()
        if STORES.fullmatch(name):
            return parts.scheme == "https"
        return parts.scheme == self.web.scheme and name == f"media.{self.web.hostname}"

    def login(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.wire.tokens.current()}"}


def fetch_picture(wire: GitHubWire, key: TaskKey, address: str) -> bytes:
    """Implements `Forge.fetch_picture`."""
    parts, host = parts_of(address), GitHubPictures(wire)
    try:
        return fetch(address, host)
    except PictureRefused:
        name = parts.path.rsplit("/", 1)[-1] if host.is_own(parts) else ""
        signed = next((one for one in _rendered(wire, key) if len(name) > 8 and name in one), None)
        if signed is None or signed == address:
            raise
        return fetch(signed, host)


def _rendered(wire: GitHubWire, key: TaskKey) -> Iterator[str]:
    """The addresses of the pictures in the HTML that GitHub's API returns for an issue and its first hundred comments;
    HTML that cannot be read is skipped."""
    place = f"/repos/{key.owner}/{key.repo}/issues/{key.task_id}"
    for path in (place, f"{place}/comments?per_page=100"):
        try:
            found = wire.rendered(path)
        except ForgeError:
            continue
        for item in found if isinstance(found, list) else [found]:
            body = item.get("body_html") if isinstance(item, dict) else None
            for match in _SOURCE.finditer(body or ""):
                yield html.unescape(match.group(1))
