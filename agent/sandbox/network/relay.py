"""Bytes between a client and a server, both ways, in bounded memory, until both have said all."""

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
    """One direction: from `source` to `target`; `left` bytes may still come, None for any number."""

    source: socket.socket
    target: socket.socket
    left: int | None = None
    buffer: bytearray = field(default_factory=bytearray)
    ended: bool = False
    closed: bool = False

    def wants(self) -> bool:
        return not self.ended and len(self.buffer) < CHUNK and self.left != 0

    def take(self) -> int:
        """Read what is there; how many bytes."""
        try:
            chunk = self.source.recv(CHUNK if self.left is None else min(CHUNK, self.left))
        except WAITS:
            return 0
        self.ended = not chunk
        self.buffer += chunk
        if self.left is not None:
            self.left -= len(chunk)
        return len(chunk)

    def give(self) -> int:
        """Send what is held; how many bytes went.  The end is passed on when all has gone."""
        sent = 0
        if self.buffer:
            try:
                sent = self.target.send(self.buffer)
            except WAITS:
                return 0
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
    count: Callable[[int, int], None],
) -> None:
    """Pass bytes on until both ends are there, one breaks off, or `idle` seconds pass without a byte.

    `first` is for the server, before anything else.  `body`: how many more bytes of the client are passed on; then the
    connection is over with the server's answer.  `count(sent, received)` hears each step in bytes.
    """
    out, back = _Way(client, server, body, bytearray(first)), _Way(server, client)
    client.setblocking(False)
    server.setblocking(False)
    last = time.monotonic()
    while not (back.closed and (out.closed or body is not None)):
        poll = select.poll()
        for way in (out, back):
            other = back if way is out else out
            if wanted := (select.POLLIN if way.wants() else 0) | (select.POLLOUT if other.buffer else 0):
                poll.register(way.source, wanted)  # with nothing wanted the end of one side would be told for ever
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
                moved += way.take()
        sent, received = out.give(), back.give()
        count(sent, received)
        if moved or sent or received:
            last = time.monotonic()


def _holds_back(source: socket.socket) -> bool:
    """Whether TLS has bytes ready that the descriptor does not show."""
    return isinstance(source, ssl.SSLSocket) and source.pending() > 0
