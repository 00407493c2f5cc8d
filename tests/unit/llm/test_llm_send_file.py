"""A request goes from its file to the socket: whole, however slowly it is taken, and not for ever."""

import os
import socket
import tempfile
import threading

import pytest

from agent.llm.transport import send_file

SIZE = 3_000_000


@pytest.fixture
def body():
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(SIZE))
        file.flush()
        yield file


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        yield ours, theirs


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_it_arrives_whole_where_the_socket_takes_a_little_at_a_time(pair, body, seconds):
    ours, theirs = pair
    ours.settimeout(seconds)
    got = bytearray()

    def take():
        while len(got) < SIZE and (more := theirs.recv(1 << 13)):
            got.extend(more)

    reader = threading.Thread(target=take)
    reader.start()
    send_file(ours, body)
    reader.join()
    assert bytes(got) == os.pread(body.fileno(), SIZE, 0)


def test_a_server_that_takes_nothing_is_a_time_out(pair, body):
    ours, _ = pair
    ours.settimeout(0.05)
    with pytest.raises(TimeoutError):
        send_file(ours, body)


def test_a_socket_that_was_shut_ends_it(pair, body):
    ours, _ = pair
    ours.settimeout(60.0)
    socket.socket.shutdown(ours, socket.SHUT_RDWR)
    with pytest.raises(OSError):
        send_file(ours, body)
