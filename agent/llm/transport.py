"""HTTP to one server: POST an open file, read lines as they come, and be stoppable from outside at any moment.

`requests` does the wire.  What is added: each socket is known from the moment it is connected, so that a watcher thread
can shut it at the deadline or when the control says stop, whatever the main thread waits for.  No retries here, no
redirects, no `.netrc`, and no JSON.
"""

from __future__ import annotations

import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from agent import clock
from agent.errors import AnswerUnreadable, ConfigError, ModelStalled, ModelUnreachable
from agent.llm.base import Interrupted
from agent.llm.faults import STALLED_TRIES, TRANSIENT_TRIES, fault
from agent.llm.said import hear
from agent.llm.urls import is_loopback, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.values import Control, Outcome

DIRECT: Any = {"http": None, "https": None, "all": None}  # for `requests`: no proxy, whatever the environment says
CONNECT = 10.0  # seconds for a connection
KEEP = 4.0  # seconds that an unused connection is kept: servers close theirs after 5 and more, routers forget silently
REST = 0.05  # seconds that are waited for what follows the end of an answer
RESTS = 4  # reads of it
TICK = 1.0  # seconds between two looks at control and deadline
READ = 1 << 16
SEND = 1 << 18  # bytes of a request in one write; urllib3's 16 KiB cost more than the copying
ERROR_BODY = 1 << 20
LONGEST_ANSWER = 64 << 20  # bytes of one answer, stream framing included


class Sockets:
    """The sockets of this transport that are open now."""

    def __init__(self) -> None:
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            self._open = {known for known in self._open if known.fileno() >= 0} | {sock}

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

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.pools = {"http": PlainPool, "https": SecurePool}
        super().__init__(pool_connections=2, pool_maxsize=2)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, blocksize=SEND, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self.pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **{"blocksize": SEND, **kwargs})
        manager.pool_classes_by_scheme = self.pools
        return manager


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authentication that changes nothing: with none, `requests` would put `.netrc` over our Authorization."""
    return request


class Session(requests.Session):
    """Asks the environment for proxies and certificates once for each address, not at each request."""

    def __init__(self) -> None:
        super().__init__()
        self._merged: dict[Any, Any] = {}

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:
        found = self._merged.get(url)
        if found is None:
            found = self._merged[url] = super().merge_environment_settings(url, *given)
        return dict(found)


class Transport:
    """Connections to one server.  `who` names it in errors; `idle` and `whole` are seconds, `whole` 0 for no limit."""

    def __init__(
        self, who: str, headers: Mapping[str, str], *, idle: float, whole: float, control: Control | None = None
    ) -> None:
        self.who = who
        self.idle = idle
        self.whole = whole
        self.control = control
        self.sockets = Sockets()
        self.used_at = clock.monotonic()
        self.session = Session()
        self.session.headers.clear()
        self.session.headers.update({"Accept-Encoding": "identity", "Connection": "keep-alive", **headers})
        self.session.auth = _keep_headers
        self.adapter = Adapter(self.sockets)
        self.session.mount("http://", self.adapter)
        self.session.mount("https://", self.adapter)

    def close(self) -> None:
        self.session.close()

    @contextmanager
    def post(self, url: str, body: BinaryIO, headers: Mapping[str, str] | None = None) -> Iterator[Stream]:
        """POST the open file; yields the answer's stream once the status is 2xx.  Raises ModelError or Interrupted."""
        more = {"Content-Type": "application/json", **(headers or {})}
        with self._exchange("POST", url, more, data=body) as stream:
            yield stream

    def fetch(self, method: str, url: str, *, json: Any = None, seconds: float | None = None) -> bytes:
        """One small request, the whole body of a 2xx answer.  Raises ModelError or Interrupted."""
        with self._exchange(method, url, {"Accept": "application/json"}, json=json, whole=seconds) as stream:
            return b"".join(stream.chunks())

    @contextmanager
    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], *, whole: float | None = None, **sent: Any
    ) -> Iterator[Stream]:
        idle = self.idle if whole is None else min(self.idle, whole)
        if clock.monotonic() - self.used_at > KEEP:
            self.adapter.close()  # its connections; it can be used again
        with self._watched(self.whole if whole is None else whole) as watch, self._translated(watch):
            response = self.session.request(
                method,
                url,
                headers=dict(headers),
                stream=True,
                timeout=(CONNECT, idle),
                allow_redirects=False,
                proxies=DIRECT if is_loopback(url) else None,
                **sent,
            )
            try:
                if not 200 <= response.status_code < 300:
                    body = _beginning(response)
                    watch.judge()
                    raise fault(hear(response.status_code, body, response.headers), self.who)
                yield Stream(response, self.who, watch)
            finally:
                response.close()
                self.used_at = clock.monotonic()

    @contextmanager
    def _watched(self, whole: float) -> Iterator[Watch]:
        """A thread looks at control and clock while the block runs."""
        watch = Watch(self.sockets, self.control, whole)
        with ThreadPoolExecutor(1, thread_name_prefix="llm-watch") as threads:
            watching = threads.submit(watch.run)
            try:
                yield watch
            finally:
                watch.done.set()
                watching.result()  # what `control.poll` raised is raised here

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
        words = " ".join(str(error).split())
        failure: ModelUnreachable | ModelStalled
        if isinstance(error, requests.exceptions.SSLError | urllib3.exceptions.SSLError):
            return ModelUnreachable(f"{self.who}: TLS failed: {words}; check base_url and certificates")
        if isinstance(error, requests.exceptions.ConnectTimeout):
            failure = ModelUnreachable(f"{self.who} did not take the connection within {CONNECT:g} s")
            failure.tries = TRANSIENT_TRIES
        elif isinstance(error, requests.exceptions.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            failure = ModelStalled(f"{self.who} sent nothing for {self.idle:g} s (idle_timeout)")
            failure.tries = STALLED_TRIES
        elif isinstance(error, requests.exceptions.ConnectionError):
            failure = ModelUnreachable(
                f"{self.who} cannot be reached: {_reason(error)}. Is the server running, and is base_url right?"
            )
            failure.tries = TRANSIENT_TRIES
        else:
            failure = ModelStalled(f"{self.who} cut the answer: {words}")
            failure.tries = STALLED_TRIES
        return failure


class Watch:
    """One exchange under watch: `outcome` or `late` is set when the sockets were shut on purpose."""

    def __init__(self, sockets: Sockets, control: Control | None, whole: float) -> None:
        self.sockets = sockets
        self.control = control
        self.whole = whole
        self.deadline = clock.monotonic() + whole if whole > 0 else None
        self.done = threading.Event()
        self.outcome: Outcome | None = None
        self.late = False

    def run(self) -> None:
        """Until `done`: look; shut the sockets on a stop, at the deadline, or when looking fails."""
        try:
            while not self.done.wait(TICK if self.deadline is None else min(TICK, max(0.01, self.whole))):
                self.outcome = self.control.poll() if self.control is not None else None
                self.late = self.deadline is not None and clock.monotonic() >= self.deadline
                if self.outcome is not None or self.late:
                    break
        finally:
            if not self.done.is_set():
                self._shut_until_done()

    def _shut_until_done(self) -> None:
        """A connection may be made just after the first look, so look again."""
        self.sockets.shut()
        while not self.done.wait(0.1):
            self.sockets.shut()

    def judge(self) -> None:
        """Raise what the watcher saw, if anything."""
        if self.outcome is not None:
            raise Interrupted(self.outcome)
        if self.late:
            raise ModelStalled(f"the whole call took longer than {self.whole:g} s (timeout); nothing of it was used")


class Stream:
    """The body of a 2xx answer."""

    def __init__(self, response: requests.Response, who: str, watch: Watch) -> None:
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.status = response.status_code
        self.who = who
        self._raw = response.raw
        self._watch = watch

    def chunks(self) -> Iterator[bytes]:
        """Bytes as they arrive, to the announced end.  A cut raises ModelStalled (by `_translated`)."""
        total = 0
        while chunk := self._raw.read1(READ, decode_content=True):
            total += len(chunk)
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
            for _ in range(RESTS):
                if not self._raw.read1(READ, decode_content=True):
                    break

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


def _beginning(response: requests.Response) -> bytes:
    """The first MiB of an error body; what cannot be read does not hide the status."""
    kept = bytearray()
    with suppress(urllib3.exceptions.HTTPError, OSError):
        while len(kept) < ERROR_BODY and (chunk := response.raw.read1(READ, decode_content=True)):
            kept += chunk
    return bytes(kept)


def _reason(error: requests.exceptions.ConnectionError) -> str:
    """The innermost reason of a connection error, without the objects around it."""
    inner: BaseException = error
    while (deeper := getattr(inner, "reason", None) or (inner.args[0] if inner.args else None)) is not None:
        if not isinstance(deeper, BaseException):
            break
        inner = deeper
    words = str(inner)
    said = re.sub(r"^\w+\(.*?\): ", "", words.rpartition(">: ")[2] or words)  # `HTTPConnection(host=…): `
    return re.sub(r"\s*\(.*\Z", "", said.removeprefix("Failed to establish a new connection: ")) or shown(words)
