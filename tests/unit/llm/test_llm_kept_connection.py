"""One connection serves the turns of a task, and a stream that stays open behind its end delays nobody."""

from __future__ import annotations

import io
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from agent import clock
from agent.llm.transport import KEEP, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

DONE = b"data: [DONE]\n\n"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends
        self.connections = 0
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), Answer)

    def process_request(self, request: object, client_address: object) -> None:
        self.connections += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(DONE), DONE))
        if self.server.ends:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.server.over.wait(30)
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(*, ends: bool) -> Iterator[Server]:
    server = Server(ends=ends)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def ask(transport: Transport, server: Server) -> None:
    """As a client does: stop reading at the mark."""
    with transport.post(f"http://127.0.0.1:{server.server_port}/", io.BytesIO(b"{}")) as stream:
        assert next(stream.lines()) == b"data: [DONE]"
        stream.rest()


@pytest.mark.parametrize(("ends", "connections"), [(True, 1), (False, 3)])
def test_a_stream_that_ends_at_its_mark_leaves_the_connection_to_the_next_request(
    *, ends: bool, connections: int
) -> None:
    with serving(ends=ends) as server:
        transport = Transport("server", {}, idle=30, whole=30)
        for _ in range(3):
            ask(transport, server)
        transport.close()
        assert server.connections == connections


def test_a_connection_that_was_not_used_for_some_seconds_is_not_used_again() -> None:
    with serving(ends=True) as server, clock.use(clock.FakeClock()) as time:
        transport = Transport("server", {}, idle=30, whole=30)
        ask(transport, server)
        time.sleep(KEEP + 1)
        ask(transport, server)
        transport.close()
        assert server.connections == 2
