"""Sends requests with the library python-gitlab, and changes three behaviours of that library.

`api_session.py` imports python-gitlab, which takes 0.15 s. This module itself is imported at the first request, so a
process without a GitLab task does not import python-gitlab. python-gitlab drops the headers of an error (such as
Retry-After), follows a redirect to any host with the token, and reads `~/.netrc`; `api_session.py` stores the last
answer with its headers, refuses a redirect to another host, and does not read `~/.netrc`. `api_session.py` does not
wait for a rate limit and does not repeat a failed request.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import gitlab

from agent.forge.http import HostChanged, OneHost

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import requests

TIMEOUT = 30.0


class _Session(OneHost):
    """A session of the library `requests` that stores the last answer."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.answer: requests.Response | None = None
        self.hooks["response"].append(self._note)

    def _note(self, response: requests.Response, **_: Any) -> None:
        self.answer = response


class ApiSession:
    """Sends requests to the API at `base_url`; each thread has a session of its own."""

    def __init__(self, base_url: str, ca_file: Path | None, agent: str) -> None:
        self.base_url = base_url
        self.verify: bool | str = str(ca_file) if ca_file else True
        self.agent = agent
        self._threads = threading.local()
        self._sessions: list[_Session] = []

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
        """Send one request and return (status, headers with lower-case names, body).

        Raises the exceptions of `requests` when GitLab does not answer, and HostChanged when GitLab redirects to
        another host, or redirects a request that changes something.
        """
        client, session = self._of_thread(token)
        session.answer = None
        try:
            answer = client.http_request(
                verb.lower(),
                path,
                query_data=dict(query),
                post_data=body,
                obey_rate_limit=False,
                retry_transient_errors=False,
                max_retries=0,
                extra_headers=dict(headers),
            )
        except gitlab.exceptions.RedirectError as error:
            raise HostChanged(f"a change was redirected; set base_url to where GitLab is ({error})") from error
        except gitlab.exceptions.GitlabHttpError:
            assert session.answer is not None
            answer = session.answer
        except gitlab.exceptions.GitlabAuthenticationError:
            assert session.answer is not None
            answer = session.answer
        return answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._sessions:
            self._sessions.pop().close()
        self._threads = threading.local()

    def _of_thread(self, token: str) -> tuple[gitlab.Gitlab, _Session]:
        kept: tuple[str, gitlab.Gitlab, _Session] | None = getattr(self._threads, "kept", None)
        if kept is None or kept[0] != token:
            session = kept[2] if kept else _Session(self.base_url)
            client = gitlab.Gitlab(
                self.base_url,
                private_token=token,
                ssl_verify=self.verify,
                timeout=TIMEOUT,
                user_agent=self.agent,
                session=session,
            )
            kept = token, client, session
            self._threads.kept = kept
            self._sessions.append(session)
        return kept[1], kept[2]
