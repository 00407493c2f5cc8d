"""The connections of the page: the connection of a client that sends nothing, sends half a request, or does not read
its answer is ended.

uvicorn limits only the time between an answer and the next request.  A client that never sends the rest of a request or
of a form, or never reads, would hold one of the MOST places, and the token is checked only when the headers of a
request are complete. `Connection` knows since when the server has waited for its client; `end_waiting` ends the
connections on which the server has waited too long. When all places are taken, a new client gets the place of a client
for which the server waits: the longest waiting one without an allowed request, else the longest waiting one.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.registry import without

# uvicorn would import watchfiles, if it is installed, but only its reloader needs it
with without("watchfiles"):
    from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, MutableMapping

    import uvicorn
    from uvicorn.server import ServerState

MOST = 150
"""If there are more connections than this number, a new one ends another one on which the server waits for its
client."""
WAIT_SECONDS = 15.0
"""The maximum number of seconds that a client may take for each of these: to send the headers of a request (from the
connection or the last answer on), to send the body, and to read the next LEAST_READ bytes of an answer."""
LEAST_READ = 16 << 10
"""The number of bytes of an answer that a client has to read within WAIT_SECONDS, unless fewer are left."""
MOST_UNREAD = 16 << 20
"""The maximum number of bytes, over all connections, of answers that the clients have not read yet."""
LOOK_SECONDS = 1.0
KEY = "connection"
"""The key of `scope["state"]` that holds a weak reference to the connection of a request."""


class Connection(H11Protocol):
    """One connection. `is_allowed`: a request on this connection was allowed, so the connection is ended for a new
    client only if the server waits for no client without an allowed request."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        # If the state of a connection had a strong reference to the connection, only the garbage collector would free
        # both of them.
        super().__init__(config, server_state, {**app_state, KEY: weakref.ref(self)}, _loop)
        self.is_allowed = False
        self._since = clock.monotonic()
        self._unread = 0

    @property
    def unread(self) -> int:
        """The number of bytes of an answer that the client has not read."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """Note the new connection; if there are more than MOST, end one on which the server waits for its client."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            _make_room(one for one in self.connections if isinstance(one, Connection) and one is not self)

    def data_received(self, data: bytes) -> None:
        """Note the beginning of a request."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._since = clock.monotonic()

    def on_response_complete(self) -> None:
        """Note the end of an answer."""
        super().on_response_complete()
        self._since = clock.monotonic()

    def waits_since(self) -> float | None:
        """The time (of `clock.monotonic`) from which on the server has waited for the client to send a request or its
        body, or to read the answer; None while the client waits for the server."""
        if unread := self.unread:
            if not self._unread or unread <= self._unread - LEAST_READ:
                self._unread, self._since = unread, clock.monotonic()
            self._unread = max(self._unread, unread)
            return self._since
        self._unread = 0
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._since if is_answered or self.cycle.more_body else None

    def end(self) -> None:
        """End the connection, and free its place at once; what the client has not read is dropped."""
        self.connections.discard(self)
        self.transport.abort()


def end_waiting(connections: Iterable[Any]) -> None:
    """End the connections on which the server has waited for more than WAIT_SECONDS. While the clients have more than
    MOST_UNREAD bytes of answers left to read, end a connection with such bytes too, the longest waiting one first."""
    now = clock.monotonic()
    known = [one for one in connections if isinstance(one, Connection)]
    waiting = [(since, one) for one in known if (since := one.waits_since()) is not None]
    unread = sum(one.unread for _, one in waiting)
    for since, one in sorted(waiting, key=lambda found: found[0]):
        is_too_much = unread > MOST_UNREAD and one.unread > 0
        if now - since > WAIT_SECONDS or is_too_much:
            unread -= one.unread
            one.end()


def note_allowed(scope: MutableMapping[str, Any]) -> None:
    """Note, in the connection of a request, that the request is allowed."""
    found = scope.get("state", {}).get(KEY)
    if found is not None and (connection := found()) is not None:
        connection.is_allowed = True


def _make_room(connections: Iterable[Connection]) -> None:
    """End the connection on which the server has waited the longest; one with an allowed request only if the server
    waits on no other. End none if the server waits for no client."""
    waiting = [(one.is_allowed, since, one) for one in connections if (since := one.waits_since()) is not None]
    if waiting:
        min(waiting, key=lambda one: one[:2])[2].end()
