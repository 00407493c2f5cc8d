"""HTTP functions that all forges share: parse times and pauses, find out whether a failed request was sent, and make a
session that contacts only one host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import RemoteDisconnected
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import requests
from urllib3.exceptions import DecodeError, NewConnectionError, ProtocolError, ReadTimeoutError

from agent import clock
from agent.config.environment import network_environment
from agent.config.proxies import proxy
from agent.error_text import innermost, is_no_tls, is_untrusted, reason, tls_reason
from agent.errors import AnswerOdd, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config.proxies import Proxy

_LASTING = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.TooManyRedirects)


class HostChanged(requests.exceptions.RequestException):
    """The configured host redirects to another host, or a request is to be sent to another host; the other host is not
    contacted."""


@dataclass(frozen=True, slots=True)
class ViaProxy:
    """The proxy that a request used; `OneHost.send` adds it to the arguments of a connection error."""

    proxy: Proxy


LARGEST_ANSWER = 32 << 20
"""Maximum bytes of one HTTP answer after decompression. LARGEST_ANSWER is many times the size of the answer with a
hundred issues, each with the longest possible text."""
LONGEST_ANSWER = 120.0
"""Seconds within which an HTTP answer must be complete, since an answer that arrives byte by byte could otherwise last
for ever."""
MOST_PAGES = 1000
"""Maximum pages of one list, of a hundred items each; without a limit, a faulty host that always announces one more
page would keep the reader busy for ever."""
SHOWN_BYTES = 120
"""Maximum bytes of an unexpected answer that an error message shows."""
OF_A_PROXY = (401, 403, 404, 410)
"""HTTP statuses that concern the account or the issue only if the API itself answers, with JSON; an HTML page with one
of these statuses comes from a proxy."""
_PIECE = 1 << 16
_UNCLEAR = re.compile(r"[^!-~]|\\")


class AnswerTooLarge(requests.exceptions.RequestException):
    """The error that an HTTP answer is larger or slower than any valid answer; its message says which of the two."""


class OneHost(requests.Session):
    """A session of `requests` that contacts only the scheme, host and port of `address` (and https instead of http on
    the standard ports); any other request raises HostChanged, and ~/.netrc is not read.

    The whole body of an answer is read into memory; AnswerTooLarge is raised if the body has more than `LARGEST_ANSWER`
    bytes or takes more than `LONGEST_ANSWER` seconds.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        # the library `requests` calls the hook for the answer to each redirect too
        self.hooks["response"].append(lambda answer, **_: read(answer))
        # `_as_it_is` is an authentication that does nothing; without one, the library `requests` would replace the
        # token by a login in ~/.netrc.
        self.auth = _as_it_is
        self.proxy: Proxy | None = None

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:
        """Check the address of the proxy that the environment names, and use that proxy."""
        found = super().merge_environment_settings(url, *given)
        scheme = str(url).partition(":")[0]
        chosen = requests.utils.select_proxy(str(url), found["proxies"])
        try:
            self.proxy = proxy(chosen, scheme, network_environment()) if chosen else None
        except ConfigError as error:
            raise requests.exceptions.InvalidProxyURL(str(error)) from error
        if self.proxy is not None:
            found["proxies"] = {scheme: self.proxy.address}
        return found

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        """Send the request; if the connection fails, the address of the proxy that was used is added to the arguments
        of the error."""
        if self.should_strip_auth(self.address, str(request.url)):  # type: ignore[no-untyped-call]
            raise HostChanged(
                f"{_place(str(request.url))[:200]} is not on {self.address}, and the token goes nowhere else"
            )
        try:
            return super().send(request, **more)
        except requests.exceptions.ConnectionError as error:
            if self.proxy is not None and not isinstance(error, HostChanged):
                error.args = (*error.args, ViaProxy(self.proxy))
            raise

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Refuse a redirect to another host; `requests` calls this method for each redirect.  Without this method
        `requests` would follow a redirect to another host, and remove the header `Authorization` but not
        `PRIVATE-TOKEN`."""
        old, new = str(response.request.url), str(prepared_request.url)
        if self.should_strip_auth(old, new):  # type: ignore[no-untyped-call]
            raise HostChanged(f"it redirects from {_place(old)} to {_place(new)}; set base_url to where the host is")
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]


def server_now(headers: Mapping[str, str]) -> float:
    """The time of the server in Unix seconds, from the header `Date` of its answer; the local time if the header is
    missing or unreadable.

    A time that the server announces (a reset of its rate limit) has to be compared with the server's clock, since the
    local clock may be wrong.
    """
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return clock.now().timestamp()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The value of the header Retry-After in seconds, from a number or a date; None when the header is missing or
    unreadable."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - server_now(headers))
    except (ValueError, TypeError):
        return None


def poll_interval(headers: Mapping[str, str]) -> float:
    """The value of the header X-Poll-Interval: seconds to wait before the next request of a list; 0 when the header is
    missing or unreadable."""
    text = headers.get("x-poll-interval", "").strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0


def was_not_sent(error: requests.exceptions.RequestException) -> bool:
    """Whether the server certainly did not execute the request, because the request never reached the server, or the
    server redirected it to another host."""
    if isinstance(error, requests.exceptions.ConnectTimeout | HostChanged) or is_untrusted(error) or is_no_tls(error):
        return True
    return isinstance(innermost(error), NewConnectionError)


def may_pass(error: requests.exceptions.RequestException) -> bool:
    """Whether a connection error may be temporary, so that the same request may succeed a moment later."""
    return not (isinstance(error, (HostChanged, AnswerTooLarge, *_LASTING)) or is_untrusted(error) or is_no_tls(error))


def failure_text(error: BaseException) -> str:
    """The reason why a request got no answer, as text for a person."""
    if isinstance(error, HostChanged | AnswerTooLarge):
        return str(error)
    if isinstance(error, requests.exceptions.InvalidProxyURL):
        return str(error)
    if by := next((one for one in error.args if isinstance(one, ViaProxy)), None):
        return f"no connection by way of {by.proxy.description} ({reason(error)}); {by.proxy.advice}"
    if is_untrusted(error):
        return f"{tls_reason(error)}; set ca_file to the host's own CA"
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {tls_reason(error)}; check base_url"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "it did not take the connection in time"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    if isinstance(innermost(error), ConnectionResetError | BrokenPipeError | RemoteDisconnected):
        return "the connection was cut before an answer came"
    return f"no connection ({reason(error)})"


def read(answer: requests.Response, largest: int | None = None) -> requests.Response:
    """Read the whole body of `answer` into memory, decompressed, and return `answer`; the body may have at most
    `largest` bytes (`LARGEST_ANSWER` if `largest` is None).

    Raises AnswerTooLarge for a larger or too slow body, and an error of `requests` if the connection breaks before the
    end of the body.
    """
    began, pieces, size = clock.monotonic(), [], 0
    try:
        while piece := answer.raw.read1(_PIECE, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            _check_bounds(size, clock.monotonic() - began, LARGEST_ANSWER if largest is None else largest)
    except AnswerTooLarge:
        # The list `pieces` is emptied because a caller that stores the error also stores this frame, with its local
        # variables.
        pieces.clear()
        answer.close()
        raise
    except DecodeError as error:
        raise requests.exceptions.ContentDecodingError(error) from error
    except ReadTimeoutError as error:
        raise requests.exceptions.ReadTimeout(error) from error
    except ProtocolError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    answer._content = b"".join(pieces)  # noqa: SLF001 - `requests` has no other way to set a body
    answer._content_consumed = True  # type: ignore[attr-defined]  # noqa: SLF001
    return answer


def describe_answer(status: int, content_type: str, body: bytes) -> str:
    """A description of an answer for people: status, content type and the first characters of the body."""
    start = " ".join(body[:SHOWN_BYTES].decode("utf-8", "replace").split())
    more = "…" if len(body) > SHOWN_BYTES else ""
    return f"{status} {content_type.partition(';')[0].strip() or 'without a content type'} {start + more!r}"


def is_page(content_type: str) -> bool:
    """Whether an answer is an HTML page, which the API of a forge does not send."""
    return content_type.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml")


def _check_bounds(size: int, seconds: float, largest: int) -> None:
    if size > largest:
        raise AnswerTooLarge(f"the answer is larger than {largest / (1 << 20):.3g} MiB")
    if seconds > LONGEST_ANSWER:
        raise AnswerTooLarge(f"the answer has not come whole in {LONGEST_ANSWER:.0f} s")


def a_page_more(number: int, what: str) -> None:
    """Raise AnswerOdd when a list of a forge has more than MOST_PAGES pages."""
    if number > MOST_PAGES:
        raise AnswerOdd(f"{what}: the list has more than {MOST_PAGES} pages")


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def parts_of(url: str, what: str) -> SplitResult:
    """Split an address that was found in an answer into its parts.

    Raises AnswerOdd when the address is invalid; `what` names the answer and the field with the address.
    """
    try:
        return urlsplit(url)
    except ValueError:
        raise AnswerOdd(f"{what}: {url[:80]!r} is no address") from None


def origin_of(url: str, what: str) -> tuple[str, str, int | None]:
    """(scheme, host, port) of an address that an answer contains; an address without a port has the default port of its
    scheme.

    Raises AnswerOdd for an address that programs parse differently (with a login, white space, a backslash or a port
    that is not a number), and for a scheme that has no default port if the address has none.
    """
    parts = parts_of(url, what)
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = None
    if port is None or "@" in parts.netloc or _UNCLEAR.search(url):
        raise AnswerOdd(f"{what}: {url[:200]!r} is no plain http address; the token goes nowhere else")
    return parts.scheme, parts.hostname or "", port


def _place(url: str) -> str:
    return url.split("?", 1)[0]
