"""Reads a page of a task from the page of another host, where its conversation lies (`dashboard.peers`).

The request has the token of the page, and asks for JSON.  Redirects are not followed, an answer has a limit of time and
of size, and the other host does not ask further hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import orjson

from agent.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.values import Json

ASKED = "asked_by_host"
"""A parameter of the address that marks a request of another host."""
CONNECT_SECONDS, READ_SECONDS = 2.0, 5.0
MOST_BYTES = 8 << 20
CHUNK = 1 << 16


def page_of(settings: Settings, address: str, uuid: str, part: str, given: Mapping[str, str]) -> Json:
    """The value of a page of the task: `part` is a part of the page, or one of its records.  Raises HostError."""
    import requests

    token = settings.dashboard.token
    assert token is not None, "the configuration has no peers without a token"
    path = f"tasks/{uuid}" if part == "timeline" else f"tasks/{uuid}/{part}"
    query = urlencode({**{name: given[name] for name in ("before", "at") if name in given}, ASKED: "1"})
    headers = {"Accept": "application/json", "Authorization": f"Bearer {token.get_secret_value()}"}
    data = bytearray()
    try:
        with requests.Session() as session:
            session.trust_env = False  # neither a proxy nor a .netrc may get the token
            answer = session.get(
                f"{address.rstrip('/')}/{path}?{query}",
                headers=headers,
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                allow_redirects=False,
                stream=True,
            )
            for chunk in answer.iter_content(CHUNK):
                data += chunk
                if len(data) > MOST_BYTES:
                    raise HostError(f"the page at {address} sends more than {MOST_BYTES >> 20} MiB")
    except requests.RequestException as error:
        raise HostError(f"the page at {address} does not answer: {type(error).__name__}") from error
    if answer.status_code != requests.codes.ok:
        raise HostError(f"the page at {address} answers with {answer.status_code}; is dashboard.token the same there?")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise HostError(f"the page at {address} answers with something that is no JSON") from error
    if not isinstance(found, dict):
        raise HostError(f"the page at {address} answers with something that is no page")
    return found
