"""Sends requests with the library python-gitlab, and changes three behaviours of that library.

`api_session.py` imports python-gitlab, which takes 0.15 s. This module itself is imported at the first request, so a
process without a GitLab task does not import python-gitlab. python-gitlab drops the headers of an error (such as
Retry-After), follows a redirect to any host with the token, and reads `~/.netrc`; `api_session.py` stores the last
answer with its headers, refuses a redirect to another host, and does not read `~/.netrc`. `api_session.py` does not
wait for a rate limit and does not repeat a failed request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gitlab

from agent.forge.base_session import TIMEOUT, BaseSession
from agent.forge.http import HostChanged, OneHost

if TYPE_CHECKING:
    from collections.abc import Mapping

    import requests


class _Session(OneHost):
    """A session of the library `requests` that stores the last answer."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.answer: requests.Response | None = None
        self.hooks["response"].append(self._note)

    def _note(self, response: requests.Response, **_: Any) -> None:
        self.answer = response


class ApiSession(BaseSession):
    """Sends requests to the API of the GitLab at `address`, which is GitLab's base URL."""

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
        """Implements `BaseSession.send`; HostChanged is also raised when GitLab redirects a request that changes
        something."""
        client, session = self._client(token)
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
                extra_headers={"Accept": "application/json", **headers},
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

    def _client(self, token: str) -> tuple[gitlab.Gitlab, _Session]:
        kept: tuple[str, gitlab.Gitlab, _Session] | None = getattr(self._of_thread, "kept", None)
        if kept is None or kept[0] != token:
            session = kept[2] if kept else _Session(self.address)
            client = gitlab.Gitlab(
                self.address,
                private_token=token,
                ssl_verify=self.verify,
                timeout=TIMEOUT,
                user_agent=self.agent,
                session=session,
            )
            kept = token, client, session
            self._of_thread.kept = kept
            self._sessions.append(session)
        return kept[1], kept[2]
