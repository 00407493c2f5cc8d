"""What HTTP says in the same way to every forge: times, pauses, whether a request that failed was ever sent, and a
session that stays on its host.  The wires of the forges and their requesters use it.
"""

from __future__ import annotations

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
from agent.errors import AnswerOdd, ConfigError
from agent.reasons import innermost, is_no_tls, is_untrusted, reason, tls_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config.proxies import Proxy

_LASTING = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.TooManyRedirects)


class Moved(requests.exceptions.RequestException):
    """The host sends us to another one, with which nothing is spoken; the message says what to do."""


@dataclass(frozen=True, slots=True)
class By:
    """An argument of an error: the proxy by way of which it was asked."""

    proxy: Proxy


LARGEST_ANSWER = 32 << 20
"""Bytes of one answer, unpacked: a page of a hundred issues with the longest texts fits many times."""
LONGEST_ANSWER = 120.0
"""Seconds in which an answer must have come whole; a trickle never ends otherwise."""
MOST_PAGES = 1000
"""Pages of one list, of a hundred items each; who says that more follow never ends."""
_PIECE = 1 << 16


class TooLarge(requests.exceptions.RequestException):
    """The answer is larger, or came slower, than any that is right; the message says which."""


class OneHost(requests.Session):
    """Speaks to the host of `address` only, by its scheme and port, with Moved for any other, and asks no ~/.netrc.

    An answer is read whole, up to `LARGEST_ANSWER` and for `LONGEST_ANSWER`; TooLarge when it is more.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.hooks["response"].append(lambda answer, **_: read(answer))  # of each redirect too
        self.auth = _as_it_is  # with none, requests would put .netrc over our token
        self.proxy: Proxy | None = None

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:
        """With the proxy that the environment names, once it is known to be one."""
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
        """An error names the proxy that was in the way."""
        if self.should_strip_auth(self.address, str(request.url)):  # type: ignore[no-untyped-call]
            raise Moved(f"{_place(str(request.url))[:200]} is not on {self.address}, and the token goes nowhere else")
        try:
            return super().send(request, **more)
        except requests.exceptions.ConnectionError as error:
            if self.proxy is not None and not isinstance(error, Moved):
                error.args = (*error.args, By(self.proxy))
            raise

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Called for each redirect.  requests would take off `Authorization`, leave `PRIVATE-TOKEN`, and go."""
        old, new = str(response.request.url), str(prepared_request.url)
        if self.should_strip_auth(old, new):  # type: ignore[no-untyped-call]
            raise Moved(f"it redirects from {_place(old)} to {_place(new)}; set base_url to where the host is")
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]


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


def poll_interval(headers: Mapping[str, str]) -> float:
    """X-Poll-Interval in seconds: how long to leave a list alone; 0 without one that can be read."""
    text = headers.get("x-poll-interval", "").strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0


def unsent(error: requests.exceptions.RequestException) -> bool:
    """Whether the request cannot have been carried out, since it never reached the server, or was sent elsewhere."""
    if isinstance(error, requests.exceptions.ConnectTimeout | Moved) or is_untrusted(error) or is_no_tls(error):
        return True
    return isinstance(innermost(error), NewConnectionError)


def may_pass(error: requests.exceptions.RequestException) -> bool:
    """Whether the same request may be answered in a moment."""
    return not (isinstance(error, (Moved, TooLarge, *_LASTING)) or is_untrusted(error) or is_no_tls(error))


def why(error: BaseException) -> str:
    """What kept a request from being answered, for a person."""
    if isinstance(error, Moved | TooLarge):
        return str(error)
    if isinstance(error, requests.exceptions.InvalidProxyURL):
        return str(error)
    if by := next((one for one in error.args if isinstance(one, By)), None):
        return f"no connection by way of {by.proxy.words} ({reason(error)}); {by.proxy.advice}"
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


def read(answer: requests.Response) -> requests.Response:
    """`answer` with its body, unpacked, in memory.  TooLarge; what requests raises where a body ends before its end."""
    began, pieces, size = clock.monotonic(), [], 0
    try:
        while piece := answer.raw.read1(_PIECE, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            _check_bounds(size, clock.monotonic() - began)
    except TooLarge:
        answer.close()
        raise
    except DecodeError as error:
        raise requests.exceptions.ContentDecodingError(error) from error
    except ReadTimeoutError as error:
        raise requests.exceptions.ReadTimeout(error) from error
    except ProtocolError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    answer._content = b"".join(pieces)  # noqa: SLF001 - requests has no other way to give it a body
    answer._content_consumed = True  # type: ignore[attr-defined]  # noqa: SLF001
    return answer


def _check_bounds(size: int, seconds: float) -> None:
    if size > LARGEST_ANSWER:
        raise TooLarge(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB")
    if seconds > LONGEST_ANSWER:
        raise TooLarge(f"the answer has not come whole in {LONGEST_ANSWER:.0f} s")


def a_page_more(number: int, what: str) -> None:
    """AnswerOdd when a list has more pages than any that is right."""
    if number > MOST_PAGES:
        raise AnswerOdd(f"{what}: the list has more than {MOST_PAGES} pages")


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def parts_of(url: str, what: str) -> SplitResult:
    """The parts of an address that an answer names.  AnswerOdd when it is none; `what` names where it stood."""
    try:
        return urlsplit(url)
    except ValueError:
        raise AnswerOdd(f"{what}: {url[:80]!r} is no address") from None


def _place(url: str) -> str:
    return url.split("?", 1)[0]
