"""Serves one connection that a client inside the sandbox opened to the proxy: reads the request, checks it, and passes
it on, or answers with the reason if the request is refused or the server cannot be reached."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import HostRefused, HostUnreached, RequestUnreadable
from agent.sandbox.network import request
from agent.sandbox.network.relay import relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.sandbox.network.dial import Dialer
    from agent.sandbox.network.traffic import Traffic

HEAD_SECONDS = 30.0
"""Maximum seconds without a byte while the head of a request is read."""

IDLE_SECONDS = 600.0
"""After this time in seconds without a byte in either direction, a connection is closed; servers that build the
response may send nothing for minutes."""

PARTING_SECONDS = 1.0


def serve(client: socket.socket, dialer: Dialer, traffic: Traffic, keep: Callable[[socket.socket], bool]) -> None:
    """Serve the connection of `client` to its end.

    `keep(server)` registers the connection to the server, so that the end of the proxy closes that connection; `keep`
    returns False if the proxy has ended already.
    """
    client.settimeout(HEAD_SECONDS)
    try:
        wanted = request.read(*request.receive(client))
    except RequestUnreadable as error:
        answer(client, 400, str(error))
        return
    host, port = wanted.host, wanted.port
    try:
        server = dialer.open(host, port, wanted.scheme)
    except HostRefused as error:
        traffic.count(host, port, refused=str(error))
        answer(client, 403, str(error))
        return
    except HostUnreached as error:
        traffic.count(host, port)
        answer(client, 502, str(error))
        return
    with server, traffic.connected():
        if not keep(server):
            return
        traffic.count(host, port)
        if wanted.scheme == "https":
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")

        def sent(size: int) -> None:
            traffic.count(host, port, sent=size, new=False)

        def received(size: int) -> None:
            traffic.count(host, port, received=size, new=False)

        relay(client, server, first=wanted.first, body=wanted.body, idle=IDLE_SECONDS, sent=sent, received=received)


def answer(client: socket.socket, status: int, why: str) -> None:
    """Send to the client an answer of the proxy itself. Most clients show the text of the status line, but not the
    body, so `why` is in both."""
    words = why.encode("ascii", "replace")
    head = b"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    client.sendall(head % (status, words, len(words) + 1) + words + b"\n")
    # Closing a socket with unread bytes could discard the answer, so the client's remaining bytes are read first, until
    # the client sends none for PARTING_SECONDS.
    with suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(PARTING_SECONDS)
        while client.recv(1 << 16):
            pass
