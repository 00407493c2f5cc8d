"""A small HTTP server in a thread of its own, for the metrics and for webhooks.

Each connection has a thread, so that a slow client does not block the others. `most` limits the number of connections
at a time and `seconds` the duration of each, so that clients that send nothing, or a byte now and then, cannot use up
all threads.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from agent import clock
from agent.errors import HostError
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable


class HttpServer:
    """A server for one WSGI application, which answers from `start` to `close`.

    `name` is the name of the server's thread and the beginning of its error messages. `most`, the maximum number of
    simultaneous connections, and `seconds`, the maximum duration of each, may be None for no limit.
    """

    def __init__(
        self, name: str, app: Callable[..., Any], *, most: int | None = None, seconds: float | None = None
    ) -> None:
        self.name = name
        self.app = app
        self.most = most
        self.seconds = seconds
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self, address: str, port: int) -> int:
        """Listen at the address; returns the port (with `port` 0 a free port is chosen). Raises HostError if the port
        cannot be opened."""
        kind = _Server6 if ":" in address else _Server
        try:
            server = kind((address, port), _Silent)
        except OSError as error:
            raise HostError(f"{self.name}: cannot listen on {address}:{port}: {error.strerror}") from error
        server.set_app(self.app)
        server.most, server.seconds = self.most, self.seconds
        self._server = server
        self._thread = Thread(target=server.serve_forever, name=self.name, daemon=True)
        self._thread.start()
        return int(server.server_port)

    def close(self) -> None:
        """Stop listening; requests that are being answered are not waited for, and the end of the process ends them."""
        if self._server is not None and self._thread is not None:
            # this wakes the server's thread, which otherwise checks only twice a second whether it has to end
            self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    most: int | None = None
    seconds: float | None = None

    def __init__(self, *args: Any) -> None:
        self._lock = Lock()
        self._since: dict[socket.socket, float] = {}
        super().__init__(*args)

    def server_bind(self) -> None:
        """Bind the socket as the base class does, but without its DNS query for the name of this host, which may take
        seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the new connection `request` is served, because fewer than `most` connections are open."""
        del client_address
        with self._lock:
            if self.most is not None and len(self._since) >= self.most:
                return False
            self._since[request] = clock.monotonic()
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close the connections that have lasted too long; the base class calls this method at least twice a second."""
        if self.seconds is None:
            return
        oldest = clock.monotonic() - self.seconds
        with self._lock:
            for request, since in self._since.items():
                if since < oldest:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a connection that ended a request, instead of writing a traceback to stderr."""
        del request, client_address
        log.get("http").debug("http_request_failed", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    """An HTTP request handler that writes no log."""

    def log_message(self, *_: Any) -> None:
        pass
