"""Reads a page of a task from the dashboard of another host, which has the task's conversation (`dashboard.peers`).

The request to the other host has the token of the page, and asks for JSON. Redirects are not followed, the answer is
limited in time and size, and the other host does not ask further hosts.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import orjson

from agent import clock
from agent.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.values import Json

ASKED = "asked_by_host"
"""The parameter of an address that marks a request as one that another host's dashboard has sent."""
CONNECT_SECONDS, READ_SECONDS = 2.0, 5.0
SECONDS = 6.0
"""The maximum number of seconds for a whole answer of another host."""
MOST = 8
"""The maximum number of answers of other hosts for which the page waits at a time."""
MOST_BYTES = 8 << 20
CHUNK = 1 << 16

_free = BoundedSemaphore(MOST)


def page_of(settings: Settings, address: str, uuid: str, part: str, given: Mapping[str, str]) -> Json:
    """The value of a page of the task from the dashboard at `address`. `part` is one of `pages.PARTS`, or one record,
    such as `messages/7`. Raises HostError if the other host does not give the value within SECONDS, or if MOST answers
    of other hosts are awaited already.

    The request to the other host runs in a thread of its own. A server that sends its headers byte by byte thus blocks
    the caller for at most SECONDS, and at most MOST threads for longer.
    """
    if not _free.acquire(blocking=False):
        raise HostError(f"{MOST} answers of the pages of other hosts are awaited already; try again in a moment")
    done: Future[Json] = Future()

    def ask() -> None:
        try:
            done.set_result(_fetch_answer(settings, address, uuid, part, given))
        except BaseException as error:  # noqa: BLE001 - the error is raised again where the result is used
            done.set_exception(error)
        finally:
            _free.release()

    Thread(target=ask, name="peer", daemon=True).start()
    try:
        return done.result(SECONDS)
    except FutureTimeout as error:
        raise HostError(f"the page at {address} takes longer than {SECONDS:.0f} s for one answer") from error


def _fetch_answer(settings: Settings, address: str, uuid: str, part: str, given: Mapping[str, str]) -> Json:
    """Request `part` of a task from the dashboard of another host, and return its answer. Each read of the answer's
    headers has a time-out, but not all reads together."""
    import requests
    import urllib3

    token = settings.dashboard.token
    assert token is not None, "the configuration has no peers without a token"
    path = f"tasks/{uuid}" if part == "timeline" else f"tasks/{uuid}/{part}"
    query = urlencode({**{name: given[name] for name in ("before", "at") if name in given}, ASKED: "1"})
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": f"Bearer {token.get_secret_value()}",
    }
    data = bytearray()
    until = clock.monotonic() + SECONDS
    try:
        with requests.Session() as session:
            session.trust_env = False  # neither a proxy nor a .netrc may receive or replace the token
            answer = session.get(
                f"{address.rstrip('/')}/{path}?{query}",
                headers=headers,
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                allow_redirects=False,
                stream=True,
            )
            with closing(answer):
                while chunk := answer.raw.read1(CHUNK, decode_content=False):
                    data += chunk
                    if clock.monotonic() > until:
                        raise HostError(f"the page at {address} takes longer than {SECONDS:.0f} s for one answer")
                    if len(data) > MOST_BYTES:
                        raise HostError(f"the page at {address} sends more than {MOST_BYTES >> 20} MiB")
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
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
