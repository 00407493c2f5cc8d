"""Downloads a picture of an issue, only from the forge's own hosts.

A stranger may have written the address of the picture. If a picture were downloaded from any host, the owner of the
host would learn that somebody reads the issue, and the picture's address could name a machine of the local network. So
each adapter defines which addresses of pictures belong to its forge, and to which of these addresses the token may be
sent. A redirect of a picture is followed only to an address that belongs to the forge, and the token is sent only to
the forge itself.
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

LARGEST = 10_000_000  # maximum bytes of a picture; `security/pictures.py` accepts no larger picture
REDIRECTS = 3
TIMEOUT = (10, 30)


@dataclass(frozen=True, slots=True)
class PictureHosts:
    """`own` returns whether an address belongs to the forge itself; a request to such an address gets the headers that
    `token` returns.

    `others` returns whether an address belongs to a host where the forge stores files; a request to such a host gets no
    token.
    """

    own: Callable[[SplitResult], bool]
    others: Callable[[SplitResult], bool]
    token: Callable[[], Mapping[str, str]]
    ca_file: Path | None
    agent: str


def fetch(address: str, hosts: PictureHosts) -> bytes:
    """Download the picture at `address`.

    Raises PictureRefused when the address does not belong to the forge, or the picture is gone, refused or too large.
    Raises ForgeUnreachable when the host does not answer.
    """
    with requests.Session() as session:
        session.trust_env = True
        # an authentication that does nothing: without it the library `requests` would read ~/.netrc
        session.auth = lambda request: request
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
                raise ForgeUnreachable(f"{parts.hostname}: {http.failure_text(error)}") from error
    raise PictureRefused(f"more than {REDIRECTS} redirects")


def parts_of(address: str) -> SplitResult:
    """Split an address into its parts.  Raises PictureRefused unless the scheme of the address is http or https and the
    address contains no login."""
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
    if kind.startswith("text/"):  # an answer with text is a login page of the host, not the picture
        raise PictureRefused(f"{parts.hostname} answered with {kind}, not with a picture")
    try:
        return http.read(answer, LARGEST).content
    except http.AnswerTooLarge as error:
        raise PictureRefused(str(error)) from error
