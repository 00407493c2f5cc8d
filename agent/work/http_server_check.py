"""Finds out whether a git server, or only a page, answers at the HTTP address of a repository.

A login page or a maintenance page comes with status 200 from many proxies. When git gets a page in place of its
protocol, it falls back to its "dumb" protocol, in which `info/refs` is a plain file (gitprotocol-http(5), "Discovering
References"), and git reads a page without line breaks as the list of an empty repository: `ls-remote` and `fetch`
succeed and return nothing. If git reports no refs at all, or after an error, `remote.py` uses this module to ask the
server itself and to describe its answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import requests

from agent.errors import RemoteAway
from agent.forge import http

SERVICE = "git-upload-pack"
ADVERTISED = f"application/x-{SERVICE}-advertisement"
TIMEOUT = (10, 60)
_REF = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40,}+ (?:refs/|HEAD)")
"""Matches the beginning of a line in a server's list of refs: the length of a line, the name of an object, and a ref
(gitprotocol-pack(5), "Reference Discovery")."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The server's answer to a request for the refs: `is_git` is False for a page and for an error, `has_refs` tells
    whether the answer lists a ref, `came` describes the answer for people."""

    is_git: bool
    has_refs: bool
    came: str


def request_refs(url: str, login: tuple[str, str] | None, ca_file: str | None) -> ServerAnswer:
    """Request the refs of the repository at `url` in the way in which git requests them; `login` is (user, password).

    Version 0 of git's protocol is used, which lists the refs at once. Raises RemoteAway when the server does not
    answer.
    """
    address = f"{url.rstrip('/')}/info/refs"
    try:
        with http.OneHost(url) as session:
            answer = session.get(
                address,
                params={"service": SERVICE},
                headers={"User-Agent": "makimono", "Accept": "*/*"},
                auth=login,
                timeout=TIMEOUT,
                verify=ca_file or True,
            )
    except (requests.exceptions.RequestException, ValueError) as error:
        raise RemoteAway(f"{url} cannot be reached: {http.failure_text(error)}") from error
    kind = answer.headers.get("content-type", "")
    is_git = answer.status_code == 200 and kind.partition(";")[0].strip() == ADVERTISED
    return ServerAnswer(
        is_git, bool(_REF.search(answer.content)), http.describe_answer(answer.status_code, kind, answer.content)
    )
