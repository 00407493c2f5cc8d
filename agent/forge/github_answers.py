"""What an answer of GitHub, or the lack of one, means: times, limits, messages, and the error of ours for each.

Pure functions over status, headers and text; `github_wire.py` calls them.
"""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import requests
from urllib3.exceptions import NewConnectionError

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping


def server_now(headers: Mapping[str, str]) -> float:
    """The server's own time: its `reset` must not be compared with a clock that goes wrong here."""
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return clock.now().timestamp()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, as a number or a date."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - server_now(headers))
    except (ValueError, TypeError):
        return None


def said(text: str) -> tuple[str, tuple[str, ...]]:
    """(message, one sentence per entry of `errors`) of an error's body; a page of HTML gives its first words."""
    try:
        data = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:200], ()
    if not isinstance(data, dict):
        return str(data)[:200], ()
    reasons = []
    for error in data.get("errors") or () if isinstance(data.get("errors"), list) else ():
        if isinstance(error, dict):
            parts = [str(error[key]) for key in ("resource", "field", "code") if error.get(key)]
            reasons.append(str(error.get("message") or " ".join(parts)))
        else:
            reasons.append(str(error))
    return str(data.get("message") or ""), tuple(reasons)


def refusal(what: str, verb: str, status: int, message: str, reasons: tuple[str, ...]) -> ForgeError:
    """The error for a status of 400 and above that is no rate limit."""
    said = ": ".join(part for part in (message, "; ".join(reasons)) if part)
    if status >= 500:
        return ForgeUnreachable(f"{what}: {status} {said}", maybe=verb != "GET")
    if status == 401:
        return ForgeAccessRefused(f"{what}: 401 {said}; the token is wrong, expired or revoked: set a new one")
    if status == 403:
        return ForgeAccessRefused(f"{what}: 403 {said}; the token lacks a right (docs/forges.md lists them)")
    return ForgeRefused(f"{what}: {status} {said}", status=status, reasons=reasons or (message,))


def unsent(error: requests.exceptions.RequestException) -> bool:
    """Whether the request cannot have reached the server."""
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return True
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError)


def why(error: BaseException) -> str:
    """One clause for a person: what kept the request from being answered."""
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not trusted ({error}); set ca_file to the host's own CA"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    return f"no connection ({error})"
