"""Sends requests to Forgejo's API with the library `requests`; each thread has its own connection.

For a renamed repository Forgejo answers 301 to every verb. After a 301 the library `requests` would turn a POST into a
GET, and the list in the answer would pass for a success; so `api_session.py` follows redirects itself, with the same
verb and body, and only on the same host. `api_session.py` does not wait for a rate limit and does not repeat a failed
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import requests

from agent.forge.base_session import TIMEOUT, BaseSession
from agent.forge.http import OneHost

if TYPE_CHECKING:
    from collections.abc import Mapping

REDIRECTS = 5


class ApiSession(BaseSession):
    """Sends requests to the API at `address`, which includes the path of the API."""

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
        url, params = f"{self.address}{path}", dict(query)
        sent = {"Authorization": f"token {token}", "User-Agent": self.agent, "Accept": "application/json", **headers}
        for _ in range(REDIRECTS + 1):
            answer = self._session().request(
                verb,
                url,
                params=params,
                json=body,
                headers=sent,
                timeout=TIMEOUT,
                verify=self.verify,
                allow_redirects=False,
            )
            if not answer.is_redirect:
                return answer.status_code, {name.lower(): text for name, text in answer.headers.items()}, answer.content
            # The address of the redirect already contains the query of the request.
            url, params = urljoin(url, answer.headers["location"]), {}
        raise requests.exceptions.TooManyRedirects(f"more than {REDIRECTS} redirects")

    def _session(self) -> OneHost:
        kept: OneHost | None = getattr(self._of_thread, "session", None)
        if kept is None:
            kept = self._of_thread.session = OneHost(self.address)
            self._sessions.append(kept)
        return kept
