"""Downloads a picture of an issue, only from the forge's own hosts.

A stranger may have written the address of the picture. If a picture were downloaded from any host, the owner of the
host would learn that somebody reads the issue, and the picture's address could name a machine of the local network.
Each adapter therefore defines which addresses of pictures belong to its forge, and to which of these addresses the
token may be sent. A redirect of a picture is followed only to an address that belongs to the forge, and the token is
sent only to the forge itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

import requests

from agent.errors import ForgeUnreachable, PictureRefused
from agent.forge import http
from agent.forge.host_client import AGENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.forge.host_client import HostClient

LARGEST = 10_000_000  # maximum bytes of a picture; `security/pictures.py` accepts no larger picture
REDIRECTS = 3
TIMEOUT = (10, 30)


class PictureHost(ABC):
    """The web host of a forge, the `base_url` of its client `wire`, and the hosts on which the forge stores files."""

    def __init__(self, wire: HostClient) -> None:
        self.wire = wire
        self.web = urlsplit(wire.base_url)

    def is_own(self, parts: SplitResult) -> bool:
        """Whether an address belongs to the forge itself; a request to such an address gets the headers of `login`."""
        return (parts.scheme, parts.netloc.lower()) == (self.web.scheme, self.web.netloc.lower())

    def is_store(self, parts: SplitResult) -> bool:
        """Whether an address belongs to a host where the forge stores files; a request to such a host gets no token."""
        del parts
        return False

    @abstractmethod
    def login(self) -> Mapping[str, str]:
        """The headers with the present token."""


def fetch(address: str, host: PictureHost) -> bytes:
    """Download the picture at `address`.

    Raises PictureRefused when the address does not belong to the forge, or the picture is gone, refused, too large, or
    a web page. Raises ForgeUnreachable when the request fails, for example because the host does not answer or TLS
    fails.
    """
    ca_file = host.wire.ca_file()
    with requests.Session() as session:
        session.trust_env = True
        # an authentication that does nothing: without it the library `requests` would read ~/.netrc
        session.auth = lambda request: request
        for _ in range(REDIRECTS + 1):
            parts = parts_of(address)
            own = host.is_own(parts)
            if not (own or host.is_store(parts)):
                raise PictureRefused(f"it lies on {parts.hostname or 'no host'}, which is not the forge's own")
            headers = {"User-Agent": AGENT, **(host.login() if own else {})}
            try:
                with session.get(
                    address,
                    headers=headers,
                    stream=True,
                    timeout=TIMEOUT,
                    allow_redirects=False,
                    verify=str(ca_file) if own and ca_file else True,
                ) as answer:
                    if answer.is_redirect:
                        address = urljoin(address, answer.headers["location"])
                        continue
                    return _body(answer, parts)
            except requests.exceptions.RequestException as error:
                raise ForgeUnreachable(f"{parts.hostname}: {http.failure_text(error)}") from error
    raise PictureRefused(f"more than {REDIRECTS} redirects")


def parts_of(address: str) -> SplitResult:
    """Split an address into its parts. Raises PictureRefused if the address cannot be parsed, has another scheme than
    http or https, or contains a login."""
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
    if kind.startswith("text/"):  # a text is no picture, but a page of the host, such as its login page
        raise PictureRefused(f"{parts.hostname} answered with {kind}, not with a picture")
    try:
        return http.read(answer, LARGEST).content
    except http.AnswerTooLarge as error:
        raise PictureRefused(str(error)) from error
