"""Runs the server of the page: it listens, answers until `stop`, Ctrl-C or SIGTERM, and then ends the streams of
events.

`server.py` imports uvicorn and starlette, so only the command `dashboard` imports it.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent.registry import without

# uvicorn would import watchfiles, if it is installed, but only its reloader needs it
with without("watchfiles"):
    import uvicorn

from agent.dashboard import connections
from agent.dashboard.access import Access, refused_to_listen
from agent.dashboard.app import Site
from agent.errors import ConfigError, HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.config import Settings

KEEP_ALIVE_SECONDS = 10
END_SECONDS = 3
SEND_BUFFER = 1 << 17
"""The size in bytes of the kernel's send buffer of a connection; Linux doubles the number (socket(7)). The kernel
accepts more bytes only after it has sent a part of the buffer. With the default size of megabytes, a slow client would
seem to read nothing for minutes, and `connections.py` would end the client's connection."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - the program only compares these addresses with the configured host


class PageServer:
    """The server of one page, which listens from its construction on.

    With `port` 0 the server listens on a free port. `has_actions`: pages have buttons that change tasks. Raises
    ConfigError for a `host` that other machines can reach while `dashboard.token` is not set, and HostError when the
    port cannot be opened.
    """

    def __init__(self, settings: Settings, host: str, port: int, *, has_actions: bool = False) -> None:
        token = settings.dashboard.token.get_secret_value() if settings.dashboard.token is not None else ""
        if why := refused_to_listen(host, token):
            raise ConfigError(why)
        self.settings = settings
        self.access = Access(host, token, settings.dashboard.hosts)
        self.has_actions = has_actions
        self._socket = _listening(host, port)
        name = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self._socket.getsockname()[1]}/"
        self._server: _Server | None = None

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Answer requests until `stop`, Ctrl-C or SIGTERM; `ready` is called when the server has begun to answer."""
        with self._socket:
            asyncio.run(self._run(ready))

    def stop(self) -> None:
        """End `run`; any thread may call this. As long as `run` has not made its uvicorn server, `stop` does
        nothing."""
        if self._server is not None:
            self._server.stop()

    async def _run(self, ready: Callable[[], None]) -> None:
        site = Site(self.settings, self.access, has_actions=self.has_actions)
        await site.warm()
        config = uvicorn.Config(
            site.app(),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=connections.Connection,
            loop="asyncio",
            ws="none",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=connections.MOST + 1,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=END_SECONDS,
        )
        self._server = _Server(config, site, ready)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            await site.close()


class _Server(uvicorn.Server):
    """uvicorn's server, changed so that it ends the streams of events before it waits for connections to end, and does
    not raise again the signal that has ended it."""

    def __init__(self, config: uvicorn.Config, site: Site, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.site = site
        self.ready = ready
        self.loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def main_loop(self) -> None:
        """Serve until the server is ended; meanwhile, end connections of clients that let the server wait too long."""
        looking = asyncio.create_task(self._end_idle_connections())
        try:
            await super().main_loop()
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _end_idle_connections(self) -> None:
        while True:
            await asyncio.sleep(connections.LOOK_SECONDS)
            connections.end_waiting(self.server_state.connections)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the server; outside the main thread, leave the signals alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            self.loop.add_signal_handler(number, self.end)
        try:
            yield
        finally:
            for number in numbers:
                self.loop.remove_signal_handler(number)

    def end(self) -> None:
        """End the server; must be called in its event loop."""
        self.should_exit = True
        self.site.is_closing.set()

    def stop(self) -> None:
        """End the server; may be called in any thread."""
        self.loop.call_soon_threadsafe(self.end)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            made.bind(address)
            made.listen(128)
        except OSError:
            made.close()
            raise
    except OSError as error:
        hint = "; give another one with --port, or --port 0 for a free one" if error.errno == errno.EADDRINUSE else ""
        raise HostError(f"dashboard: cannot listen on {host}:{port}: {error.strerror or error}{hint}") from error
    return made
