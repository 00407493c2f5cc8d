"""An answer in HTTP chunks: whole, compressed, and cut at each place where it can be."""

from __future__ import annotations

import gzip
import socket
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from agent.errors import ModelStalled
from agent.llm.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
LINES = [b"data: one", b"", b"data: two", b""]
BODY = b"\n".join(LINES) + b"\n"


def in_chunks(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads requests of two bytes and gives these answers, over one connection, then closes it; its
    address, and the heads of the requests that it got."""
    heads: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            for answer in answers:
                request = b""
                while not request.endswith(b"\r\n\r\n{}"):
                    if not (more := connection.recv(1 << 16)):
                        return  # the client gave up
                    request += more
                heads.append(request)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/", heads
    finally:
        server.close()
        thread.join()


def ask(transport: Transport, url: str) -> list[bytes]:
    with tempfile.TemporaryFile() as body:
        body.write(b"{}")
        body.flush()
        with transport.post(url, body) as stream:
            return list(stream.lines())


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_the_same_however_they_are_cut(size: int, *, packed: bool) -> None:
    body = gzip.compress(BODY) if packed else BODY
    encoding = b"Content-Encoding: gzip\r\n" if packed else b""
    with answering(HEAD + encoding + b"\r\n" + in_chunks(body, size)) as (url, _):
        transport = Transport("server", {}, idle=30, whole=30)
        assert ask(transport, url) == LINES
        transport.close()


@pytest.mark.parametrize("left", [b"", b"10", b"10\r\n", b"10\r\ndata: ", b"zz\r\ndata: one\n\r\n0\r\n\r\n"])
def test_a_body_that_is_cut_or_broken_inside_is_a_cut(left: bytes) -> None:
    with answering(HEAD + b"\r\n" + b"a\r\ndata: one\n\r\n" + left) as (url, _):
        transport = Transport("server", {}, idle=30, whole=30)
        with pytest.raises(ModelStalled, match="cut the answer"):
            ask(transport, url)
        transport.close()


def test_a_cookie_is_not_sent_back() -> None:
    answer = HEAD + b"Set-Cookie: who=you; Path=/\r\n\r\n" + in_chunks(BODY, 20)
    with answering(answer, answer) as (url, heads):
        transport = Transport("server", {}, idle=30, whole=30)
        assert ask(transport, url) == ask(transport, url) == LINES
        transport.close()
    assert len(heads) == 2
    assert b"cookie" not in heads[1].lower()
