"""Finds the name and mail address by which Forgejo assigns a commit to the account of the token; the account's private
address is not used.

To a request with a token Forgejo reports the private mail address of the token's account; to a request without a token
it reports the no-reply address of every account (`toUser` in Forgejo's and Gitea's `services/convert/user.go`). The
account's public no-reply address is therefore requested without the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import requests

from agent.errors import AnswerOdd, ForgeUnreachable
from agent.forge import http
from agent.forge.host_client import AGENT

if TYPE_CHECKING:
    from agent.forge.forgejo.http import ForgejoWire

TIMEOUT = (10, 30)


def commit_identity(wire: ForgejoWire, login: str) -> tuple[str, str]:
    """(name, no-reply mail address) of the token's account, for commits.

    If the server answers only requests with a login, the default no-reply address of a server is used
    (`NO_REPLY_ADDRESS` in docs "Config Cheat Sheet": `noreply.` and the domain).  Raises ForgeError.
    """
    user = _seen_by_all(wire, login)
    name, mail = str(user.get("full_name") or login), str(user.get("email") or "")
    if "@" not in mail:
        mail = f"{login.lower()}@noreply.{urlsplit(wire.base_url).hostname}"
    return name, mail


def _seen_by_all(wire: ForgejoWire, login: str) -> dict[str, Any]:
    """The account as the server reports it to a request without a login; {} if the server does not report it."""
    what = f"{wire.host}: GET /users/{login}"
    address = f"{wire.base_url}{wire.api}/users/{quote(login, safe='')}"
    ca_file = wire.ca_file()
    try:
        with http.OneHost(wire.base_url) as session:
            answer = session.get(
                address, headers={"User-Agent": AGENT}, timeout=TIMEOUT, verify=str(ca_file) if ca_file else True
            )
    except requests.exceptions.RequestException as error:
        raise ForgeUnreachable(f"{what}: {http.failure_text(error)}") from error
    if answer.status_code != requests.codes.ok or http.is_page(answer.headers.get("content-type", "")):
        return {}
    try:
        found = answer.json()
    except ValueError as error:
        raise AnswerOdd(f"{what}: the answer is not JSON") from error
    return found if isinstance(found, dict) else {}
