"""PyGithub's Requester with two additions: a redirected request keeps its query, and the token is read at each request.

`api_session.py` imports PyGithub, which takes 0.2 s and 17 MB; it is imported at the first request, so a process
without a GitHub task does not import PyGithub.  PyGithub 2.10 uses only the path of a 301's address, so that after a
repository was renamed `labels=…` and `page=…` are lost, and PyGithub does not follow a 307; the library `requests`
follows both correctly.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from github.Auth import AppAuth, Auth
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester, RequestsResponse
from jwt import PyJWTError

from agent.errors import ConfigError
from agent.forge.http import OneHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import requests

TIMEOUT = 30
_sessions = threading.local()


def _session(connection: Any) -> requests.Session:
    """The session of this thread for an address; the session is reused, to save a TLS handshake at each request."""
    known: dict[tuple[Any, ...], requests.Session] = _sessions.__dict__.setdefault("of", {})
    address = (connection.protocol, connection.host, connection.port, connection.verify)
    if address not in known:
        known[address] = OneHost(f"{connection.protocol}://{connection.host}:{connection.port}")
    return known[address]


def _send(connection: Any) -> RequestsResponse:
    answer = _session(connection).request(
        connection.verb,
        f"{connection.protocol}://{connection.host}:{connection.port}{connection.url}",
        headers=connection.headers,
        data=connection.input,
        timeout=connection.timeout,
        verify=connection.verify,
        allow_redirects=True,
    )
    return RequestsResponse(answer)


class _Http(HTTPRequestsConnectionClass):
    def getresponse(self) -> RequestsResponse:
        return _send(self)

    def close(self) -> None:
        """Does nothing, so that the session of `requests` stays open for the next request."""


class _Https(HTTPSRequestsConnectionClass):
    def getresponse(self) -> RequestsResponse:
        return _send(self)

    def close(self) -> None:
        """Does nothing, so that the session of `requests` stays open for the next request."""


class _LiveToken(Auth):
    """An authentication object for PyGithub that reads the token again at each request."""

    def __init__(self, current: Callable[[], str]) -> None:
        self._current = current

    @property
    def token_type(self) -> str:
        return "Bearer"

    @property
    def token(self) -> str:
        return self._current()


def make(base_url: str, current: Callable[[], str], ca_file: Path | None, agent: str) -> Requester:
    """A PyGithub `Requester` that does not wait for a rate limit and does not repeat failed requests; only one thread
    may use it.

    A Requester of PyGithub 2.10 has one attribute for its newest connection, and the connection holds the request.
    If two threads use one Requester, one of two requests may be sent twice and the other one not at all.
    """
    Requester.injectConnectionClasses(_Http, _Https)
    return Requester(
        auth=_LiveToken(current),
        base_url=base_url,
        timeout=TIMEOUT,
        user_agent=agent,
        per_page=100,
        verify=str(ca_file) if ca_file else True,
        retry=None,
        pool_size=None,
    )


def app_token(app_id: int, private_key: str) -> str:
    """A JWT with which the GitHub App itself logs in (valid for at most 10 minutes).

    Raises ConfigError when the private key of the GitHub App is invalid.
    """
    try:
        return AppAuth(app_id, private_key).create_jwt()
    except (PyJWTError, ValueError) as error:
        raise ConfigError(f"github.app.private_key is not a private key in PEM form: {error}") from error


def close_sessions() -> None:
    """Close this thread's connections to GitHub."""
    for session in _sessions.__dict__.pop("of", {}).values():
        session.close()
