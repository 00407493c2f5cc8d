"""Copies bytes between a client and a server in both directions, in bounded memory, until the streams end, fail, or are
idle too long."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 16
TICK = 60_000
WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(slots=True)
class _Way:
    """One direction of the relay, from `source` to `target`; at most `left` more bytes are read, None means no
    maximum."""

    source: socket.socket
    target: socket.socket
    count: Callable[[int], None]
    left: int | None = None
    buffer: bytearray = field(default_factory=bytearray)
    ended: bool = False
    closed: bool = False

    def wants(self) -> bool:
        return not self.ended and len(self.buffer) < CHUNK and self.left != 0

    def read_source(self) -> int:
        """Read the available bytes from the source; returns their number, 0 if there are none yet or the stream has
        ended."""
        try:
            chunk = self.source.recv(CHUNK if self.left is None else min(CHUNK, self.left))
        except WAITS:
            return 0
        self.ended = not chunk
        self.buffer += chunk
        if self.left is not None:
            self.left -= len(chunk)
        return len(chunk)

    def write_target(self) -> int:
        """Send buffered bytes to the target and count the sent bytes at once; returns the number of sent bytes.

        If the source's stream has ended and all its bytes are sent, the stream to the target is ended too.
        """
        sent = 0
        if self.buffer:
            try:
                sent = self.target.send(self.buffer)
            except WAITS:
                return 0
            self.count(sent)
            del self.buffer[:sent]
        if self.ended and not self.buffer and not self.closed:
            self.closed = True
            with suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)
        return sent


def relay(
    client: socket.socket,
    server: socket.socket,
    *,
    first: bytes,
    body: int | None,
    idle: float,
    sent: Callable[[int], None],
    received: Callable[[int], None],
) -> None:
    """Copy bytes until both directions have ended, one connection fails (which may raise OSError), or no byte moves for
    `idle` seconds. If `body` is a number, the end of the server's answer ends the copying, whether the client has ended
    its stream or not.

    The bytes `first` are sent to the server before anything else. `body` is the maximum number of further bytes copied
    from the client, None for no maximum. `sent(size)` is called directly after each send to the server, and
    `received(size)` directly after each send to the client.
    """
    out, back = _Way(client, server, sent, body, bytearray(first)), _Way(server, client, received)
    client.setblocking(False)
    server.setblocking(False)
    last = time.monotonic()
    while not (back.closed and (out.closed or body is not None)):
        poll = select.poll()
        for way in (out, back):
            other = back if way is out else out
            if wanted := (select.POLLIN if way.wants() else 0) | (select.POLLOUT if other.buffer else 0):
                # a socket with nothing to read or write is not polled, since poll would report an ended stream at once
                # each time
                poll.register(way.source, wanted)
        held = any(way.wants() and _holds_back(way.source) for way in (out, back))
        left = idle - (time.monotonic() - last)
        if left <= 0:
            return
        events = dict(poll.poll(0 if held else min(TICK, left * 1000)))
        moved = 0
        for way in (out, back):
            event = events.get(way.source.fileno(), 0)
            if event & (select.POLLERR | select.POLLNVAL):
                return
            if way.wants() and (event or held):
                moved += way.read_source()
        moved += out.write_target()
        moved += back.write_target()
        if moved:
            last = time.monotonic()


def _holds_back(source: socket.socket) -> bool:
    """Whether `source` is a TLS socket with received bytes in its buffer, which polling the descriptor does not
    show."""
    return isinstance(source, ssl.SSLSocket) and source.pending() > 0
