"""HTTP to one server: POST an open file, read lines as they come, and be stoppable from outside at any moment.

`requests` does the wire.  What is added: each socket is known from the moment it is connected, so that a watcher thread
can shut it at the deadline or when the control says stop, whatever the main thread waits for.  No retries here, no
redirects, no `.netrc`, and no JSON.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from agent import clock, reasons, step
from agent.config.environment import network_environment
from agent.config.proxies import proxy
from agent.errors import AnswerUnreadable, ConfigError, ModelStalled, ModelUnreachable
from agent.llm.base import Interrupted
from agent.llm.draft import Draft
from agent.llm.faults import STALLED_TRIES, TRANSIENT_TRIES, fault
from agent.llm.said import hear
from agent.llm.urls import is_loopback
from agent.registry import without

# With a library that guesses encodings where it finds one: 2.7 MiB in each process for what nobody here asks.
with without("chardet", "charset_normalizer"):
    import requests
    from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from agent.config.proxies import Proxy
    from agent.values import Control, Outcome

DIRECT: Any = {"http": None, "https": None, "all": None}  # for `requests`: no proxy, whatever the environment says
CONNECT = 10.0  # seconds for a connection
KEEP = 4.0  # seconds that an unused connection is kept: servers close theirs after 5 and more, routers forget silently
REST = 0.05  # seconds that are waited for what follows the end of an answer
RESTS = 4  # reads of it
TICK = 1.0  # seconds between two looks at control and deadline
READ = 1 << 16
SEND = 1 << 17  # bytes of a request in one write under TLS; urllib3's 16 KiB cost more than the copying
ERROR_BODY = 1 << 20
LONGEST_ANSWER = 64 << 20  # bytes of one answer, stream framing included


class Sockets:
    """The sockets of this transport that are open now.

    `patience`: seconds that a request which is being sent may stand still.  `broken_off`: a request was not sent to its
    end, so that its connection serves no other.  `sent`: the newest request has left, at least its head.
    """

    def __init__(self) -> None:
        self.patience = CONNECT
        self.broken_off = False
        self.sent = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            self._open = {known for known in self._open if known.fileno() >= 0} | {sock}

    @contextmanager
    def sending(self, sock: socket.socket) -> Iterator[None]:
        """Over the sending of a body.  What the other side says before it has read all (413, 401) is its answer, also
        when it has closed or reads no further: BrokenPipeError, after which urllib3 reads on."""
        self.sent = True
        sock.settimeout(self.patience)  # until now that for the connection counted
        try:
            yield
        except (ssl.SSLError, ConnectionError, TimeoutError) as error:
            self.broken_off = True
            if isinstance(error, TimeoutError) and not select.select([sock], [], [], 0)[0]:
                raise
            raise BrokenPipeError from error

    def shut(self) -> None:
        """Wake whoever reads or writes.  The plain socket's method: TLS state is not ours to touch."""
        with self._lock:
            for sock in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Adapter(HTTPAdapter):
    """`requests`' adapter whose connections tell their sockets."""

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
        """Pools whose connections go through a SOCKS proxy and tell their sockets too."""
        from urllib3.contrib.socks import SOCKSConnection, SOCKSHTTPSConnection

        plain = type("PlainSocks", (self.plain, SOCKSConnection), {})
        secure = type("SecureSocks", (self.secure, SOCKSHTTPSConnection), {})
        return {
            "http": type("PlainSocksPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("SecureSocksPool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
        }

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *given: Any, **more: Any) -> Any:
        """The pool of an address, looked up once."""
        if request.url not in self.found:
            self.found[request.url] = super().get_connection_with_tls_context(request, *given, **more)
        return self.found[request.url]

    def close(self) -> None:
        self.found.clear()
        super().close()

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:
        """urllib3's own answer: status, headers and body are all that is read; no cookies, no guess at an encoding."""
        del req
        return resp


def send_file(sock: socket.socket, file: BinaryIO) -> None:
    """The whole file from the page cache to the socket, past this process.

    `socket.sendfile` does the same with more looks at both.  A socket with a time-out is one that does not block.
    BrokenPipeError when the other side takes no more and has something to say.
    """
    try:
        source = file.fileno()
    except OSError:  # bytes in memory
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


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authentication that changes nothing: with none, `requests` would put `.netrc` over our Authorization."""
    return request


class Transport:
    """Connections to one server.  `who` names it in errors; `idle` and `whole` are seconds above 0: every call ends, so
    that a worker that hangs is found out by its step (`run/lease.py`)."""

    def __init__(
        self, who: str, headers: Mapping[str, str], *, idle: float, whole: float, control: Control | None = None
    ) -> None:
        self.who = who
        self.idle = idle
        self.whole = whole
        self.control = control
        self.sockets = Sockets()
        self.used_at = clock.monotonic()
        self.session = requests.Session()
        self.session.headers.clear()
        self.session.headers.update({"Accept-Encoding": "identity", "Connection": "keep-alive", **headers})
        self.session.auth = _keep_headers
        self.adapter = Adapter(self.sockets)
        self.session.mount("http://", self.adapter)
        self.session.mount("https://", self.adapter)
        self.watcher = Watcher(self.sockets, control)
        self.heard: set[str] = set()  # names of headers of answers, lower case
        self._posts: dict[Any, requests.PreparedRequest] = {}
        self._around: dict[Any, Mapping[str, Any]] = {}
        self.proxy: Proxy | None = None  # in the way of the address that was asked last
        self._proxies: dict[Any, Proxy | None] = {}

    def close(self) -> None:
        self.session.close()
        self.watcher.close()

    @contextmanager
    def post(self, url: str, body: BinaryIO, headers: Mapping[str, str] | None = None) -> Iterator[Stream]:
        """POST the open file; yields the answer's stream once the status is 2xx.  Raises ModelError or Interrupted."""
        with self._exchange(lambda: self._post(url, body, headers or {}), self.whole, self.idle) as stream:
            yield stream

    def fetch(self, method: str, url: str, *, json: Any = None, seconds: float | None = None) -> bytes:
        """One small request, the whole body of a 2xx answer.  Raises ModelError or Interrupted."""
        whole, idle = (self.whole, self.idle) if seconds is None else (seconds, min(self.idle, seconds))
        request = requests.Request(method, url, headers={"Accept": "application/json"}, json=json)
        with self._exchange(lambda: self.session.prepare_request(request), whole, idle) as stream:
            return b"".join(stream.chunks())

    def _post(self, url: str, body: BinaryIO, headers: Mapping[str, str]) -> requests.PreparedRequest:
        """From one turn to the next only the body changes: address and headers are put together once."""
        key = (url, *headers.items())
        if key not in self._posts:
            more = {"Content-Type": "application/json", **headers}
            self._posts[key] = self.session.prepare_request(requests.Request("POST", url, headers=more))
        request = self._posts[key]
        request.headers["Content-Length"] = str(body.seek(0, os.SEEK_END))
        body.seek(0)
        request.body = (body,)  # type: ignore[assignment]  # one part, which `Plain.send` or http.client reads
        return request

    @contextmanager
    def _exchange(self, prepare: Callable[[], requests.PreparedRequest], whole: float, idle: float) -> Iterator[Stream]:
        if clock.monotonic() - self.used_at > KEEP:
            self.adapter.close()  # its connections; it can be used again
        taken = step.within(self.who, whole)
        with taken, self.watcher.over(whole) as watch, self._translated(watch):
            request = prepare()
            self.sockets.patience, self.sockets.sent = idle, False
            # Not by way of `Session.send`: it follows redirects and keeps cookies, of which there are none here.
            response: Any = self.adapter.send(request, timeout=(CONNECT, idle), **self._surroundings(request.url))
            self.heard.update(name.lower() for name in response.headers)
            try:
                if not 200 <= response.status < 300:
                    body = _beginning(response)
                    watch.judge()
                    raise fault(hear(response.status, body, response.headers), self.who)
                yield Stream(response, self.who, watch)
            finally:
                response.close()  # its connection too, unless the body was read to its end
                self.used_at = clock.monotonic()
                if self.sockets.broken_off:
                    self.adapter.close()
                    self.sockets.broken_off = False

    def _surroundings(self, url: Any) -> Mapping[str, Any]:
        """Proxies and certificates; the environment is asked for them once for each address, not at each request."""
        if url not in self._around:
            proxies = DIRECT if is_loopback(str(url)) else {}
            found: dict[str, Any] = dict(self.session.merge_environment_settings(url, proxies, True, None, None))
            scheme = str(url).partition(":")[0]
            chosen = requests.utils.select_proxy(str(url), found["proxies"])
            self._proxies[url] = proxy(chosen, scheme, network_environment()) if chosen else None
            if (used := self._proxies[url]) is not None:
                found["proxies"] = {scheme: used.address}
            self._around[url] = found
        self.proxy = self._proxies[url]
        return self._around[url]

    @contextmanager
    def _translated(self, watch: Watch) -> Iterator[None]:
        """Errors of `requests` and urllib3 → ours; a socket that the watcher shut tells why it did."""
        try:
            yield
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError) as error:
            raise ConfigError(f"{self.who}: the address cannot be used: {error}; check base_url") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            watch.judge()
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> ModelUnreachable | ModelStalled:
        words = reasons.reason(error)
        failure: ModelUnreachable | ModelStalled
        if self.proxy is not None and isinstance(error, requests.exceptions.ConnectionError):
            way = f"{self.who} cannot be reached by way of {self.proxy.words}: {words}"
            failure = ModelUnreachable(f"{way}; {self.proxy.advice}")
            failure.tries = TRANSIENT_TRIES
            return failure
        if isinstance(error, requests.exceptions.SSLError | urllib3.exceptions.SSLError):
            return ModelUnreachable(
                f"{self.who}: TLS failed: {reasons.tls_reason(error)}; check base_url and certificates"
            )
        if isinstance(error, requests.exceptions.ConnectTimeout):
            failure = ModelUnreachable(f"{self.who} did not take the connection within {CONNECT:g} s")
            failure.tries = TRANSIENT_TRIES
        elif isinstance(error, requests.exceptions.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            failure = ModelStalled(f"{self.who} sent nothing for {self.idle:g} s (idle_timeout)")
            failure.tries = STALLED_TRIES
        elif isinstance(reasons.innermost(error), TimeoutError):
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


class Watch:
    """One exchange under watch: `outcome` or `late` is set when the sockets were shut on purpose."""

    def __init__(self, whole: float) -> None:
        self.whole = whole
        self.deadline = clock.monotonic() + whole
        self.pause = min(TICK, max(0.01, whole))
        self.done = threading.Event()
        self.outcome: Outcome | None = None
        self.late = False
        self.answering = False  # a byte of the body has come

    def judge(self) -> None:
        """Raise what the watcher saw, if anything."""
        if self.outcome is not None:
            raise Interrupted(self.outcome)
        if self.late:
            late = ModelStalled(f"the whole call took longer than {self.whole:g} s (timeout); nothing of it was used")
            late.answering = self.answering
            raise late


class Watcher:
    """A thread that looks at control and clock while an exchange is under way.

    It serves one exchange after the other and ends when it finds none, since starting one for each costs a turn more
    than looking does.
    """

    def __init__(self, sockets: Sockets, control: Control | None) -> None:
        self.sockets = sockets
        self.control = control
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="llm-watch")
        self._lock = threading.Lock()  # held while looking: what is under watch stays the same
        self._wake = threading.Event()
        self._watch: Watch | None = None
        self._running: Future[None] | None = None

    @contextmanager
    def over(self, whole: float) -> Iterator[Watch]:
        """Watch the block; what `control.poll` raised is raised behind it."""
        watch = Watch(whole)
        with self._lock:
            self._watch = watch
            if self._running is None:
                self._running = self._threads.submit(self._run)
            elif watch.pause < TICK:
                self._wake.set()
        try:
            yield watch
        finally:
            watch.done.set()
            with self._lock:
                self._watch = None
                failed = self._running if self._running is not None and self._running.done() else None
                self._running = self._running if failed is None else None
            if failed is not None:
                failed.result()

    def close(self) -> None:
        """Let the thread end now."""
        self._wake.set()
        self._threads.shutdown()

    def _run(self) -> None:
        """Look, pause, look; shut the sockets on a stop, at the deadline, or when looking fails."""
        while True:
            watch = self._watch
            self._wake.wait(TICK if watch is None else watch.pause)
            self._wake.clear()
            with self._lock:
                if self._watch is None:
                    self._running = None
                    return
                self._look(self._watch)

    def _look(self, watch: Watch) -> None:
        ended = True
        try:
            watch.outcome = self.control.poll(answering=True) if self.control is not None else None
            watch.late = clock.monotonic() >= watch.deadline
            ended = watch.outcome is not None or watch.late
        finally:
            if ended:
                self.sockets.shut()
                while not watch.done.wait(0.1):  # a connection may be made just after the first look
                    self.sockets.shut()


class Stream:
    """The body of a 2xx answer.  `draft` is what its wire has read so far."""

    def __init__(self, raw: Any, who: str, watch: Watch) -> None:
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in raw.headers.items()}
        self.status: int = raw.status
        self.who = who
        self._raw = raw
        self.draft = Draft()
        self._watch = watch
        self._pieces = _pieces(raw)

    def chunks(self) -> Iterator[bytes]:
        """Bytes as they arrive, to the announced end.  A cut raises ModelStalled (by `_translated`)."""
        total = 0
        for chunk in self._pieces:
            total += len(chunk)
            self._watch.answering = True
            if total > LONGEST_ANSWER:
                raise AnswerUnreadable(f"{self.who} sent more than {LONGEST_ANSWER >> 20} MiB for one answer")
            yield chunk
        self._watch.judge()

    def rest(self) -> None:
        """Read the end of a body whose content has said that it is over, so that the connection serves again.  What
        is not there at once is not waited for: the connection is closed then."""
        connection = self._raw.connection
        sock = getattr(connection, "sock", None)
        if sock is None:
            return
        with suppress(urllib3.exceptions.HTTPError, OSError):
            sock.settimeout(REST)
            for _ in islice(self._pieces, RESTS):
                pass

    def lines(self) -> Iterator[bytes]:
        """Lines without their end (LF or CRLF); the last one may lack it."""
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
    """The body as it arrives.  Where the server cuts it into chunks these are taken whole, which costs half."""
    if raw.chunked:
        yield from raw.read_chunked(READ, decode_content=True)
        return
    while piece := raw.read1(READ, decode_content=True):
        yield piece


def _beginning(raw: Any) -> bytes:
    """The first MiB of an error body; what cannot be read does not hide the status."""
    kept = bytearray()
    with suppress(urllib3.exceptions.HTTPError, OSError):
        for piece in _pieces(raw):
            kept += piece
            if len(kept) >= ERROR_BODY:
                break
    return bytes(kept)
