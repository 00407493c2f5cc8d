"""Decides who may open the page: by the token, the login, and the host names under which the page answers.

- A request with a `Host` header that is no name of the page is refused, so that no other site can reach the page under
  a name of its own that leads to this machine (DNS rebinding).
- With `dashboard.token` each request but those for the login page and `/static/` needs the token, as `Authorization:
  Bearer`, or the cookie of a login.  Tokens are compared in constant time.  While MOST_FAILURES wrong tokens of an IP
  address are younger than FAILURE_SECONDS, each further token of this address is refused without a comparison.
- A request that changes a task must be a POST with an `Origin` of the page itself and a form token, which only a page
  of this process has given to this browser; a request with the token in its `Authorization` header needs neither.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent import clock
from agent.config.host_allowlist import is_address, is_loopback
from agent.taskqueue.row_holder import hostname

if TYPE_CHECKING:
    from collections.abc import Mapping

COOKIE = "makimono_session"
FORM_COOKIE = "makimono_form"
FORM_FIELD = "form_token"
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000
MOST_FAILURES = 10
FAILURE_SECONDS = 60.0
MOST_ADDRESSES = 1000
LOOPBACK = ("localhost", "127.0.0.1", "::1")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # with the value `no-referrer` a browser would send `Origin: null` with each form (Fetch: "append … Origin header")
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
}
"""The HTTP headers of an answer of the page; an answer may have another value for one of them."""


def host_of(header: str) -> str:
    """The name or address in a `Host` header, without the port; "" if the header is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # reading the port raises ValueError if it is no number
    except ValueError:
        return ""
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return ""
    return (parts.hostname or "").rstrip(".").lower()


@dataclass
class Access:
    """The access rules of one server of the page.

    `listens` is the host name or IP address at which the server listens, `token` the token of the page ("" for none),
    `names` are the host names under which the page answers besides this one and those of this machine.
    """

    listens: str
    token: str = ""
    names: tuple[str, ...] = ()
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _sessions: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _failures: OrderedDict[str, list[float]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def is_known_host(self, header: str) -> bool:
        """Whether the page answers a request with this `Host` header.

        Nobody else can control an IP address as they can a host name, so an IP address is allowed as `Host` where the
        page listens for other machines.
        """
        host = host_of(header)
        if not host:
            return False
        if host in LOOPBACK or host in {name.lower() for name in self.names}:
            return True
        if is_loopback(self.listens.strip("[]")):
            return is_loopback(host)
        return host in (hostname().lower(), self.listens.lower()) or is_address(host)

    def is_same_origin(self, origin: str, host: str) -> bool:
        """Whether an `Origin` header is an http or https address with the host and port of the `Host` header."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() != ""

    # --- the token ----------------------------------------------------------------------------------------------

    def is_token(self, given: str) -> bool:
        """Whether `given` is the token of the page, compared in constant time."""
        return bool(self.token) and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def bearer(self, header: str) -> str:
        """The token in an `Authorization` header, "" if it has none."""
        scheme, _, value = header.partition(" ")
        return value.strip() if scheme.lower() == "bearer" else ""

    def begin_session(self) -> str:
        """Start a browser's session after a login; returns the value of the session's cookie."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[made] = clock.monotonic() + SESSION_SECONDS
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return made

    def is_session(self, cookie: str) -> bool:
        """Whether the cookie belongs to a session that has not ended."""
        with self._lock:
            until = self._sessions.get(cookie)
            if until is not None and until <= clock.monotonic():
                del self._sessions[cookie]
                until = None
        return until is not None

    def end_session(self, cookie: str) -> None:
        """End the session with this cookie."""
        with self._lock:
            self._sessions.pop(cookie, None)

    def is_blocked(self, address: str) -> bool:
        """Whether MOST_FAILURES wrong tokens came from an IP address in the last FAILURE_SECONDS."""
        with self._lock:
            return len(self._recent(address)) >= MOST_FAILURES

    def note_failure(self, address: str) -> None:
        """Count a wrong token from an IP address."""
        with self._lock:
            self._failures[address] = [*self._recent(address), clock.monotonic()]
            self._failures.move_to_end(address)
            while len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = clock.monotonic() - FAILURE_SECONDS
        return [at for at in self._failures.get(address, ()) if at > since][-MOST_FAILURES:]

    # --- forms --------------------------------------------------------------------------------------------------

    def form_token(self, cookie: str) -> str:
        """The form token for the browser with this cookie (FORM_COOKIE)."""
        return hmac.new(self._key, cookie.encode(), "sha256").hexdigest()

    def is_form_token(self, cookie: str, given: str) -> bool:
        """Whether a form token belongs to the browser with this cookie."""
        return bool(cookie) and hmac.compare_digest(self.form_token(cookie).encode(), given.encode("utf-8", "replace"))


def cookies_of(header: str) -> Mapping[str, str]:
    """The cookies of a request; of a repeated name the first value is used."""
    found: dict[str, str] = {}
    for one in header.split(";"):
        name, separator, value = one.strip().partition("=")
        if separator:
            found.setdefault(name, value)
    return found


def cookie_header(name: str, value: str, *, is_encrypted: bool, seconds: float = SESSION_SECONDS) -> str:
    """The header `Set-Cookie` for a cookie that scripts cannot read, and that a browser does not send with a request
    from another site."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={seconds:.0f}"]
    return "; ".join([*parts, "Secure"] if is_encrypted else parts)


def refused_to_listen(host: str, token: str) -> str:
    """The reason why the server may not listen at `host`, "" if it may."""
    if is_loopback(host.strip("[]")) or token:
        return ""
    return f"--host {host} lets other machines open the page: set dashboard.token first, or leave --host out"
