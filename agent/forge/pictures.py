"""A picture of an issue, fetched from the forge's own hosts and from nowhere else.

An address in an issue is a stranger's: fetched as it stands it would tell its owner that somebody reads, and could name
a machine of this network.  So each adapter says which addresses are its own, and which of them get its token; a
redirect is followed only to another of them, without the token where that is not the forge itself.  Used by the
adapters of GitHub and GitLab.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

import requests

from agent.errors import ForgeUnreachable, PictureRefused
from agent.forge import http

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LARGEST = 10_000_000  # bytes; `security/pictures.py` takes no more
REDIRECTS = 3
TIMEOUT = (10, 30)
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Hosts:
    """`own`: whether an address is the forge's, and gets the `token` header; `others`: whether it is one of the hosts
    where the forge keeps files, which get none."""

    own: Callable[[SplitResult], bool]
    others: Callable[[SplitResult], bool]
    token: Callable[[], Mapping[str, str]]
    ca_file: Path | None
    agent: str


def fetch(address: str, hosts: Hosts) -> bytes:
    """The bytes at `address`.  PictureRefused: not of this forge, gone, refused, too large.  ForgeUnreachable."""
    with requests.Session() as session:
        session.trust_env = True
        session.auth = lambda request: request  # nothing of ~/.netrc
        for _ in range(REDIRECTS + 1):
            parts = parts_of(address)
            own = hosts.own(parts)
            if not (own or hosts.others(parts)):
                raise PictureRefused(f"it lies on {parts.hostname or 'no host'}, which is not the forge's own")
            headers = {"User-Agent": hosts.agent, **(hosts.token() if own else {})}
            try:
                with session.get(
                    address,
                    headers=headers,
                    stream=True,
                    timeout=TIMEOUT,
                    allow_redirects=False,
                    verify=str(hosts.ca_file) if own and hosts.ca_file else True,
                ) as answer:
                    if answer.is_redirect:
                        address = urljoin(address, answer.headers["location"])
                        continue
                    return _body(answer, parts)
            except requests.exceptions.RequestException as error:
                raise ForgeUnreachable(f"{parts.hostname}: {http.why(error)}") from error
    raise PictureRefused(f"more than {REDIRECTS} redirects")


def parts_of(address: str) -> SplitResult:
    """The parts of an address on the web.  PictureRefused for any other."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        raise PictureRefused("its address is none") from None
    if parts.scheme not in ("http", "https") or parts.username is not None:
        raise PictureRefused("its address is not http or https")
    return parts


def _body(answer: requests.Response, parts: SplitResult) -> bytes:
    if answer.status_code != 200:
        raise PictureRefused(f"{parts.hostname} answered {answer.status_code}")
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("text/"):  # a page that asks to log in
        raise PictureRefused(f"{parts.hostname} answered with {kind}, not with a picture")
    found = bytearray()
    for block in answer.iter_content(BLOCK):
        found += block
        if len(found) > LARGEST:
            raise PictureRefused(f"it has more than {LARGEST:,} bytes")
    return bytes(found)
