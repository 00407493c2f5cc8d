"""What HTTP says in the same way to every forge: times, pauses, and whether a request that failed was ever sent.

Pure functions; the wires of the forges call them.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import requests
from urllib3.exceptions import NewConnectionError

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Mapping


def server_now(headers: Mapping[str, str]) -> float:
    """The server's own time in Unix seconds: what it says of its future must not be compared with a clock that goes
    wrong here."""
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return clock.now().timestamp()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, as a number or a date; None without one that can be read."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - server_now(headers))
    except (ValueError, TypeError):
        return None


def unsent(error: requests.exceptions.RequestException) -> bool:
    """Whether the request cannot have reached the server."""
    if isinstance(error, requests.exceptions.ConnectTimeout | requests.exceptions.SSLError):
        return True
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError)


def why(error: BaseException) -> str:
    """What kept a request from being answered, for a person."""
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not trusted ({error}); set ca_file to the host's own CA"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    return f"no connection ({error})"
