"""Sends HTTP requests to one model server: a transport posts an open file and reads the lines of the answer as they
arrive; another thread can stop the request at any moment.

`transport.py` uses the library `requests` for HTTP. Each socket is registered when it connects, so that the thread of
`exchange_watch.py` can shut the socket down. `transport.py` repeats no request, follows no redirects, reads no `.netrc`
and decodes no JSON.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from agent import clock, deadline, error_text
from agent.config.environment import network_environment
from agent.config.proxies import proxy
from agent.errors import AnswerUnreadable, ConfigError, ModelStalled, ModelUnreachable
from agent.llm.error_body import parse_error_body
from agent.llm.error_mapping import STALLED_TRIES, TRANSIENT_TRIES, map_error
from agent.llm.exchange_watch import CONNECT, ExchangeWatcher, Sockets
from agent.llm.stream_accumulator import StreamAccumulator
from agent.llm.urls import is_loopback
from agent.registry import without

# If an encoding detector is installed, `requests` imports it, which takes 2.7 MiB per process; the import is prevented,
# since the detection of encodings is not used.
with without("chardet", "charset_normalizer"):
    import requests
    from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from agent.config.proxies import Proxy
    from agent.llm.exchange_watch import ExchangeWatch
    from agent.values import Control

# seconds for which an unused connection may be used again; some servers close an unused connection after 5 s, and
# routers drop it later
KEEP = 4.0
REST = 0.05  # maximum seconds of each read of further bytes after the last event of an answer
RESTS = 4  # maximum number of reads of further bytes after the last event of an answer
READ = 1 << 16
# bytes of a request per write; with urllib3's 16 KiB the writes under TLS would take more time than the copying
SEND = 1 << 17
ERROR_BODY = 1 << 20
LONGEST_ANSWER = 64 << 20  # maximum bytes of one answer, including the framing of a stream


class Adapter(HTTPAdapter):
    """An HTTP adapter for `requests` that registers the sockets of its connections, so that another thread can shut the
    sockets down."""

    def __init__(self, sockets: Sockets) -> None:
        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

            def send(self, data: Any) -> None:
                if hasattr(data, "read"):
                    with sockets.sending(self.sock):
                        send_file(self.sock, data)
                else:
                    super().send(data)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

            def send(self, data: Any) -> None:
                if hasattr(data, "read"):
                    with sockets.sending(self.sock):
                        super().send(data)
                else:
                    super().send(data)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.pools = {"http": PlainPool, "https": SecurePool}
        self.plain, self.secure = Plain, Secure
        self.found: dict[str | None, Any] = {}
        super().__init__(pool_connections=2, pool_maxsize=2)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, blocksize=SEND, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self.pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **{"blocksize": SEND, **kwargs})
        is_socks = type(manager).__name__ == "SOCKSProxyManager"
        manager.pool_classes_by_scheme = self.socks_pools() if is_socks else self.pools
        return manager

    def socks_pools(self) -> dict[str, Any]:
        """Connection pools for a SOCKS proxy; their connections register their sockets too."""
        from urllib3.contrib.socks import SOCKSConnection, SOCKSHTTPSConnection

        plain = type("PlainSocks", (self.plain, SOCKSConnection), {})
        secure = type("SecureSocks", (self.secure, SOCKSHTTPSConnection), {})
        return {
            "http": type("PlainSocksPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("SecureSocksPool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
        }

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *given: Any, **more: Any) -> Any:
        """The connection pool for the URL of a request, which is looked up once for each URL until `close` is
        called."""
        if request.url not in self.found:
            self.found[request.url] = super().get_connection_with_tls_context(request, *given, **more)
        return self.found[request.url]

    def close(self) -> None:
        self.found.clear()
        super().close()

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:
        """Returns urllib3's response in place of a response of `requests`: the program reads only status, headers and
        body, and needs no cookies and no guessed encoding."""
        del req
        return resp


def send_file(sock: socket.socket, file: BinaryIO) -> None:
    """Send a whole file over a socket with sendfile(2), without copying the file into this process.

    The standard `socket.sendfile` sends a file with more system calls. A socket with a time-out is non-blocking, so
    `send_file` waits until the socket is writable. Raises BrokenPipeError when the server reads no more and has already
    answered or closed the connection. Raises TimeoutError if the server accepts nothing within the socket's time-out,
    and OSError if the file becomes shorter meanwhile.
    """
    try:
        source = file.fileno()
    except OSError:  # the body of the request is in memory, so it has no file descriptor
        sock.sendfile(file)
        return
    size, sent = os.fstat(source).st_size, 0
    room: select.poll | None = None
    while sent < size:
        try:
            moved = os.sendfile(sock.fileno(), source, sent, size - sent)
        except BlockingIOError:
            if room is None:
                room = select.poll()
                room.register(sock, select.POLLIN | select.POLLOUT)
            events = room.poll(None if (seconds := sock.gettimeout()) is None else seconds * 1000)
            if not events:
                raise TimeoutError("timed out while sending") from None
            if not events[0][1] & select.POLLOUT:
                raise BrokenPipeError(errno.EPIPE, "an answer came before the end of the request") from None
        else:
            if moved == 0:
                raise OSError(errno.EIO, "the request was cut while it was sent")
            sent += moved


class Transport:
    """The connections to one model server.

    `who` is the name of the server in errors.  `idle` (without any bytes) and `whole` (for a whole exchange) are time
    limits of a request in seconds and must be above 0: since every request ends in time, an expired lease shows that a
    worker hangs (`worker/lease.py`).
    """

    def __init__(
        self, who: str, headers: Mapping[str, str], *, idle: float, whole: float, control: Control | None = None
    ) -> None:
        self.who = who
        self.idle = idle
        self.whole = whole
        self.control = control
        self.sockets = Sockets()
        self.used_at = clock.monotonic()
        self.headers = {"Accept-Encoding": "identity", "Connection": "keep-alive", **headers}
        self.adapter = Adapter(self.sockets)
        self.watcher = ExchangeWatcher(self.sockets, control)
        self.heard: set[str] = set()  # names of the headers of all answers so far, in lower case
        self._posts: dict[Any, requests.PreparedRequest] = {}
        self._around: dict[Any, Mapping[str, Any]] = {}
        self.proxy: Proxy | None = None  # the proxy for the address of the last request
        self._proxies: dict[Any, Proxy | None] = {}

    def close(self) -> None:
        self.adapter.close()
        self.watcher.close()

    @contextmanager
    def post(self, url: str, body: BinaryIO, headers: Mapping[str, str] | None = None) -> Iterator[Stream]:
        """POST an open file, as a context manager with the stream of the answer; a status other than 2xx raises a
        ModelError.

        `post` raises ModelError or Interrupted, and ConfigError if the address cannot be used.
        """
        with self._exchange(lambda: self._post(url, body, headers or {}), self.whole, self.idle) as stream:
            yield stream

    def fetch(self, method: str, url: str, *, json: Any = None, seconds: float | None = None) -> bytes:
        """Send a small request to the server; returns the whole body of the answer; a status other than 2xx raises a
        ModelError.

        `fetch` raises the same errors as `post`.
        """
        whole, idle = (self.whole, self.idle) if seconds is None else (seconds, min(self.idle, seconds))

        def prepare() -> requests.PreparedRequest:
            request = self._prepare(method, url, {"Accept": "application/json"})
            request.prepare_body(None, None, json)
            return request

        with self._exchange(prepare, whole, idle) as stream:
            return b"".join(stream.chunks())

    def _prepare(self, method: str, url: str, headers: Mapping[str, str]) -> requests.PreparedRequest:
        """A request without a body, with the headers of this transport and with `headers`.

        No `Session` of `requests` is used: it would look for cookies, and replace the Authorization header by one from
        `.netrc`.
        """
        request = requests.PreparedRequest()
        request.prepare_method(method)
        request.prepare_url(url, None)
        request.prepare_headers({**self.headers, **headers})
        return request

    def _post(self, url: str, body: BinaryIO, headers: Mapping[str, str]) -> requests.PreparedRequest:
        """The POST request, prepared for the library `requests`. A POST is prepared once for each pair of address and
        headers; only the body differs between turns."""
        key = (url, *headers.items())
        if key not in self._posts:
            self._posts[key] = self._prepare("POST", url, {"Content-Type": "application/json", **headers})
        request = self._posts[key]
        request.headers["Content-Length"] = str(body.seek(0, os.SEEK_END))
        body.seek(0)
        request.body = (body,)  # type: ignore[assignment]# a body of one part: `Plain.send` or http.client reads it
        return request

    @contextmanager
    def _exchange(self, prepare: Callable[[], requests.PreparedRequest], whole: float, idle: float) -> Iterator[Stream]:
        if clock.monotonic() - self.used_at > KEEP:
            self.adapter.close()  # `close` closes only the connections, and the adapter can be used again
        taken = deadline.within(self.who, whole)
        with taken, self.watcher.watching(whole) as watch, self._translated(watch):
            request = prepare()
            self.sockets.patience, self.sockets.sent = idle, False
            response: Any = self.adapter.send(request, timeout=(CONNECT, idle), **self._surroundings(request.url))
            self.heard.update(name.lower() for name in response.headers)
            try:
                if not 200 <= response.status < 300:
                    body = _beginning(response)
                    watch.raise_outcome()
                    raise map_error(parse_error_body(response.status, body, response.headers), self.who)
                yield Stream(response, self.who, watch)
            finally:
                response.close()  # this call of `close` also closes the connection, unless the body was read to its end
                self.used_at = clock.monotonic()
                if self.sockets.broken_off:
                    self.adapter.close()
                    self.sockets.broken_off = False

    def _surroundings(self, url: Any) -> Mapping[str, Any]:
        """The proxies and certificates for a request, which are read from the environment once for each address instead
        of at each request."""
        if url not in self._around:
            environment = network_environment()
            proxies = {} if is_loopback(str(url)) else requests.utils.get_environ_proxies(str(url))
            scheme = str(url).partition(":")[0]
            chosen = requests.utils.select_proxy(str(url), proxies)
            self._proxies[url] = used = proxy(chosen, scheme, environment) if chosen else None
            self._around[url] = {
                "stream": True,
                "verify": environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE") or True,
                "proxies": {scheme: used.address} if used is not None else {},
            }
        self.proxy = self._proxies[url]
        return self._around[url]

    @contextmanager
    def _translated(self, watch: ExchangeWatch) -> Iterator[None]:
        """Translate errors of `requests` and urllib3 into errors of this program; if the watching thread has shut down
        the sockets, raise the reason of the shutdown instead."""
        try:
            yield
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError) as error:
            raise ConfigError(f"{self.who}: the address cannot be used: {error}; check base_url") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            watch.raise_outcome()
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> ModelUnreachable | ModelStalled:
        words = error_text.reason(error)
        failure: ModelUnreachable | ModelStalled
        if self.proxy is not None and isinstance(error, requests.exceptions.ConnectionError):
            way = f"{self.who} cannot be reached by way of {self.proxy.description}: {words}"
            failure = ModelUnreachable(f"{way}; {self.proxy.advice}")
            failure.tries = TRANSIENT_TRIES
            return failure
        if isinstance(error, requests.exceptions.SSLError | urllib3.exceptions.SSLError):
            return ModelUnreachable(
                f"{self.who}: TLS failed: {error_text.tls_reason(error)}; check base_url and certificates"
            )
        if isinstance(error, requests.exceptions.ConnectTimeout):
            failure = ModelUnreachable(f"{self.who} did not take the connection within {CONNECT:g} s")
            failure.tries = TRANSIENT_TRIES
        elif isinstance(error, requests.exceptions.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            failure = ModelStalled(f"{self.who} sent nothing for {self.idle:g} s (idle_timeout)")
            failure.tries = STALLED_TRIES
        elif isinstance(error_text.innermost(error), TimeoutError):
            failure = ModelStalled(f"{self.who} took nothing of the request for {self.idle:g} s (idle_timeout)")
            failure.tries = STALLED_TRIES
        elif isinstance(error, requests.exceptions.ConnectionError):
            failure = ModelUnreachable(
                f"{self.who} cannot be reached: {words}. Is the server running, and is base_url right?"
            )
            failure.tries = TRANSIENT_TRIES
        else:
            failure = ModelStalled(f"{self.who} cut the answer: {words}")
            failure.tries = STALLED_TRIES
        return failure


class Stream:
    """The body of an answer that has a status 2xx. `draft` is the part of the answer that has been parsed so far (by
    `wire_*.py`)."""

    def __init__(self, raw: Any, who: str, watch: ExchangeWatch) -> None:
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in raw.headers.items()}
        self.status: int = raw.status
        self.who = who
        self._raw = raw
        self.draft = StreamAccumulator()
        self._watch = watch
        self._pieces = _pieces(raw)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the answer's body as they arrive, up to the end that the server has announced.

        Raises AnswerUnreadable for an answer of more than LONGEST_ANSWER bytes, and ModelStalled (in `_translated`)
        when the connection is cut.
        """
        total = 0
        for chunk in self._pieces:
            total += len(chunk)
            self._watch.answering = True
            if total > LONGEST_ANSWER:
                raise AnswerUnreadable(f"{self.who} sent more than {LONGEST_ANSWER >> 20} MiB for one answer")
            yield chunk
        self._watch.raise_outcome()

    def rest(self) -> None:
        """Read the bytes after the last event of an answer's body, so that the connection can be used again.

        If no bytes arrive for `REST` seconds, the method `rest` ends, and the connection is closed instead of used
        again.
        """
        connection = self._raw.connection
        sock = getattr(connection, "sock", None)
        if sock is None:
            return
        with suppress(urllib3.exceptions.HTTPError, OSError):
            sock.settimeout(REST)
            for _ in islice(self._pieces, RESTS):
                pass

    def lines(self) -> Iterator[bytes]:
        """The lines of the answer's body as they arrive, without their line ends (LF or CRLF); the last line need not
        have a line end."""
        rest = bytearray()
        for chunk in self.chunks():
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                rest += chunk
                continue
            for line in (bytes(rest) + head).split(b"\n"):
                yield line.removesuffix(b"\r")
            rest = bytearray(tail)
        if rest:
            yield bytes(rest).removesuffix(b"\r")


def _pieces(raw: Any) -> Iterator[bytes]:
    """The body of an answer in pieces, yielded as they arrive.

    If the server sends the body of an answer in HTTP chunks, the pieces are these chunks, which takes half the time of
    `read1`.
    """
    if raw.chunked:
        yield from raw.read_chunked(READ, decode_content=True)
        return
    while piece := raw.read1(READ, decode_content=True):
        yield piece


def _beginning(raw: Any) -> bytes:
    """The beginning (about a MiB at most) of the body of an error; an error while reading ends it early, since the
    status can be reported without the whole body."""
    kept = bytearray()
    with suppress(urllib3.exceptions.HTTPError, OSError):
        for piece in _pieces(raw):
            kept += piece
            if len(kept) >= ERROR_BODY:
                break
    return bytes(kept)
