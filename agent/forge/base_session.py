"""The base class of the sessions with which the clients of GitLab and Forgejo send their requests.

A session does not wait for a rate limit and does not repeat a failed request; `rest_client.py` does both.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import requests

TIMEOUT = 30.0


class BaseSession(ABC):
    """Sends requests to the API at `address`; each thread has a connection of its own.

    `ca_file` has the CA certificates of the host, `agent` is the value of the header User-Agent. A subclass stores the
    connections of a thread in `_of_thread`, and adds them to `_sessions`, so that `close` finds them.
    """

    def __init__(self, address: str, ca_file: Path | None, agent: str) -> None:
        self.address = address
        self.verify: bool | str = str(ca_file) if ca_file else True
        self.agent = agent
        self._of_thread = threading.local()
        self._sessions: list[requests.Session] = []

    @abstractmethod
    def send(
        self,
        verb: str,
        path: str,
        token: str,
        *,
        query: Mapping[str, Any],
        body: Any,
        headers: Mapping[str, str],
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request and return (status, headers with lower-case names, body); `headers` are additional headers
        of the request.

        Raises the exceptions of `requests` when there is no answer, and HostChanged for a redirect to another host.
        """

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._sessions:
            self._sessions.pop().close()
        self._of_thread = threading.local()
