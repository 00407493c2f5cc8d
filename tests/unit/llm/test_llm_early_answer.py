"""Servers that do not read a request to its end: they answer before, close in the middle, or take nothing at all."""

import json
import os
import resource
import socket
import threading
from contextlib import ExitStack, suppress

import pytest
from certificates import self_signed

from agent.errors import ContextOverflow, ModelStalled
from agent.llm.transport import Transport

LONG = 16 << 20  # more than any two socket buffers hold
TOO_LARGE = json.dumps({"error": {"message": "the body is too large"}}).encode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("tls"))


class Impatient:
    """Reads the head of each request, says `answer`, and closes or (`holds`) does nothing more until it is closed."""

    def __init__(self, answer, tls=None, *, holds=False):
        self.answer, self.tls, self.holds = answer, tls, holds
        self.over = threading.Event()
        self.asked = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if tls else ''}://localhost:{self.socket.getsockname()[1]}/v1"
        self.threads = [threading.Thread(target=self._serve)]
        self.threads[0].start()

    def _serve(self):
        with suppress(OSError):
            while True:
                self.threads.append(threading.Thread(target=self._one, args=(self.socket.accept()[0],)))
                self.threads[-1].start()

    def _one(self, plain):
        with suppress(OSError), ExitStack() as stack:
            stack.enter_context(plain)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as servers do: the answer leaves at once
            connection = stack.enter_context(self.tls.wrap_socket(plain, server_side=True)) if self.tls else plain
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            self.asked += 1
            if self.answer:
                length = f"Content-Length: {len(self.answer)}".encode()
                connection.sendall(b"HTTP/1.1 413 Payload Too Large\r\n" + length + b"\r\n\r\n" + self.answer)
            if self.holds:
                self.over.wait()

    def close(self):
        self.over.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def impatient(certificate, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[1]))
    made = []

    def make(answer, *, tls, **more):
        made.append(Impatient(answer, certificate[0] if tls else None, **more))
        return made[-1]

    yield make
    for server in made:
        server.close()


def post(tmp_path, url, transport):
    path = tmp_path / "request.json"
    path.write_bytes(b" " * LONG)
    with path.open("rb") as body, transport.post(url, body) as stream:
        return list(stream.chunks())


@pytest.mark.parametrize(("tls", "holds"), [(False, False), (False, True), (True, False)])
def test_a_request_that_is_too_large_is_known_before_it_is_read(impatient, tmp_path, tls, holds):
    """Also twice: the connection with half a request in it is not used again."""
    server = impatient(TOO_LARGE, tls=tls, holds=holds)
    transport = Transport("test", {}, idle=60, whole=600)
    for _ in range(2):
        with pytest.raises(ContextOverflow, match="413: the body is too large"):
            post(tmp_path, server.url, transport)
    assert server.asked == 2
    transport.close()


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_takes_nothing_is_waited_for_as_long_as_for_one_that_says_nothing(impatient, tmp_path, tls):
    """Not as long as for a connection: a server that is busy reads later."""
    transport = Transport("test", {}, idle=0.3, whole=600)
    with pytest.raises(ModelStalled, match=r"for 0\.3 s \(idle_timeout\)"):
        post(tmp_path, impatient(b"", tls=tls, holds=True).url, transport)
    transport.close()


@pytest.mark.parametrize("tls", [False, True])
def test_it_is_waited_for_too_where_more_files_are_open_than_select_can_name(impatient, tmp_path, tls):
    most = 1 << 10  # FD_SETSIZE
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(2 * most, before[1])), before[1]))
    opened = []
    try:
        while not opened or opened[-1] < most:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        transport = Transport("test", {}, idle=0.3, whole=600)
        with pytest.raises(ModelStalled, match=r"for 0\.3 s \(idle_timeout\)"):
            post(tmp_path, impatient(b"", tls=tls, holds=True).url, transport)
        transport.close()
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
