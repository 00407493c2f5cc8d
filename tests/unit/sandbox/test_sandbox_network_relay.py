"""Bytes go both ways, whole, in bounded memory, to the end of both sides and no longer."""

import shutil
import socket
import threading
import time
from contextlib import suppress

import pytest
from outside import Files, Serving, World

from agent.config.host_allowlist import parse_all
from agent.sandbox.network.proxy import SandboxProxy
from agent.sandbox.network.relay import CHUNK, relay
from agent.sandbox.network.traffic import Traffic

LARGE = bytes(range(256)) * 16_384


def tcp():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    one.settimeout(20)
    return one, other


class Between:
    """`client` and `server` are the far ends; `sent` and `received` what was counted."""

    def __init__(self, first=b"", body=None, idle=20.0):
        self.client, inner = tcp()
        self.server, outer = tcp()
        self.sent = self.received = 0

        def sent(size):
            self.sent += size

        def received(size):
            self.received += size

        def run():
            with inner, outer, suppress(OSError):
                relay(inner, outer, first=first, body=body, idle=idle, sent=sent, received=received)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.server.close()
        self.thread.join(20)
        assert not self.thread.is_alive()


def whole(sock):
    found = b""
    while chunk := sock.recv(1 << 20):
        found += chunk
    return found


def test_both_ways_at_once_and_to_the_end_of_both():
    with Between(first=b"first") as between:
        threads = [
            threading.Thread(target=lambda one=one: (one.sendall(LARGE), one.shutdown(socket.SHUT_WR)), daemon=True)
            for one in (between.client, between.server)
        ]
        for thread in threads:
            thread.start()
        got = []
        reader = threading.Thread(target=lambda: got.append(whole(between.client)), daemon=True)
        reader.start()
        assert whole(between.server) == b"first" + LARGE
        reader.join(20)
        assert got == [LARGE]
        between.thread.join(20)
        assert not between.thread.is_alive()
    assert (between.sent, between.received) == (len(LARGE) + 5, len(LARGE))


def test_a_client_that_has_said_all_gets_the_whole_answer_however_slowly_it_reads():
    with Between() as between:
        between.client.sendall(b"ask")
        between.client.shutdown(socket.SHUT_WR)
        assert whole(between.server) == b"ask"
        writer = threading.Thread(target=lambda: (between.server.sendall(LARGE), between.server.close()), daemon=True)
        writer.start()
        first = between.client.recv(10)
        writer.join(0.3)  # the buffers on the way are full, or all is in them
        assert first + whole(between.client) == LARGE


def test_no_more_of_a_client_is_passed_on_than_its_body_has():
    with Between(first=b"head ab", body=3) as between:
        between.client.sendall(b"cdeGET http://other/ HTTP/1.1")
        found = b""
        while len(found) < 10:
            found += between.server.recv(100)
        assert found == b"head abcde"
        between.server.sendall(b"answer")
        between.server.close()
        assert between.client.recv(100) == b"answer"
        between.thread.join(20)
        assert not between.thread.is_alive(), "the connection is over with the answer"
    assert between.sent == 10


def test_a_connection_that_stands_still_is_closed():
    with Between(idle=0.05) as between:
        assert between.client.recv(1) == b""
        assert between.server.recv(1) == b""


def test_a_side_that_breaks_off_ends_both():
    with Between() as between:
        between.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        between.server.close()
        with suppress(ConnectionError):
            assert between.client.recv(1) == b""
        between.thread.join(20)
        assert not between.thread.is_alive()


def test_what_is_held_is_bounded():
    with Between() as between:
        between.client.settimeout(0.5)
        put = 0
        with suppress(TimeoutError):
            while put < 64 << 20:
                put += between.client.send(b"x" * CHUNK)
        assert put < 64 << 20, "the sender waits; what it could put is in the kernel's buffers"


def test_what_was_sent_one_way_is_counted_where_the_other_way_then_fails():
    client, inner = tcp()
    server, outer = tcp()
    counted = []
    with client, inner, server, outer:
        client.sendall(b"the last bytes")
        server.sendall(b"an answer")
        inner.shutdown(socket.SHUT_WR)
        with pytest.raises(BrokenPipeError):
            relay(inner, outer, first=b"", body=None, idle=20, sent=counted.append, received=counted.append)
        assert server.recv(100) == b"the last bytes"
    assert counted == [14]


class LateTraffic(Traffic):
    """Counts as late as a thread that waits for a processor."""

    def count(self, *args, **named):
        time.sleep(0.05)
        super().count(*args, **named)


def test_a_command_that_ends_with_the_last_byte_has_all_bytes_counted(tmp_path):
    """The command ends as soon as it has the answer, before the proxy's thread has counted it."""
    (tmp_path / "f").write_bytes(LARGE[:100_000])
    world = World()
    with Serving(Files, tmp_path) as server:
        world.put("www.example.org", 80, server.port)
        with (
            SandboxProxy(world.dialer(parse_all(["www.example.org"])), shutil.which("python3")) as proxy,
            socket.create_server(("127.0.0.1", 0)) as listener,
        ):
            proxy.traffic = LateTraffic()
            with socket.socket(fileno=socket.dup(proxy.descriptor)) as opener:
                socket.send_fds(opener, [b"x"], [listener.fileno()])
            with socket.create_connection(listener.getsockname()) as command:
                command.settimeout(20)
                command.sendall(b"GET http://www.example.org/f HTTP/1.1\r\nHost: www.example.org\r\n\r\n")
                got = b""
                while len(got.partition(b"\r\n\r\n")[2]) < 100_000:
                    got += command.recv(1 << 20)
    (contact,) = proxy.contacts()
    assert contact.received == len(got)
    assert contact.sent > 0
