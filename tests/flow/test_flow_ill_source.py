"""One source of issues that is ill never holds the others."""

from __future__ import annotations

import gzip
import signal
import socket
import threading
from contextlib import ExitStack, contextmanager

import yaml
from flow_home import finish, finished, until, write
from forge_home import OFTEN

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def hangs(_connection, over):
    over.wait()


def trickles(connection, over):
    connection.sendall(JSON + b"Content-Length: 1000000\r\n\r\n[")
    while not over.wait(0.2):
        connection.sendall(b" ")


def is_limited(connection, _over):
    connection.sendall(b"HTTP/1.1 429 Slow down\r\nRetry-After: 3600\r\nContent-Length: 2\r\n\r\n{}")


def fails(connection, _over):
    connection.sendall(b"HTTP/1.1 500 Broken\r\nContent-Length: 2\r\n\r\n{}")


def unpacks_to_a_bomb(connection, _over):
    body = gzip.compress(b"[" * (64 << 20), 9)
    connection.sendall(JSON + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def is_deep(connection, _over):
    connection.sendall(JSON + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000)


@contextmanager
def ill(answer):
    """(address, an event that is set when it was asked) of a server that answers each connection so."""
    over, asked = threading.Event(), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def one(connection):
        with connection:
            try:
                connection.recv(65536)
                asked.set()
                answer(connection, over)
            except OSError:
                pass

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        over.set()
        listener.close()


def sources(here, names, **more):
    settings = yaml.safe_load(here.config.read_text()) | {"task_sources": names} | more
    here.config.write_text(yaml.safe_dump(settings))


def test_a_source_that_never_answers_holds_neither_the_tasks_of_another_nor_what_is_told_there(home):
    here = home({"Of the well": [write("a.txt"), finish()]}, config=OFTEN)
    sources(here, ["tests.forges.hanging:HangingForge", "local"])
    daemon = here.start("run")
    until((here.folder / "asked").exists, "the question")
    here.issue(1, "Of the well")
    until(lambda: here.label(1) == "coding agent done", "the end")
    assert not (here.folder / "answer").exists()
    assert len(here.said(1)) == 1
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)


def test_sources_that_are_ill_in_each_way_hold_no_other(home):
    here = home({"Of the well": [write("a.txt"), finish()]}, config=OFTEN)
    ways = [hangs, trickles, is_limited, fails, unpacks_to_a_bomb, is_deep]
    with ExitStack() as stack:
        servers = [stack.enter_context(ill(way)) for way in ways]
        hosts = [{"base_url": address, "token": "t" * 20, "projects": ["acme/web"]} for address, _ in servers]
        sources(here, ["github", "local"], github=hosts)
        daemon = here.start("run")
        for way, (_, asked) in zip(ways, servers, strict=True):
            until(asked.is_set, f"a question to what {way.__name__}")
        here.issue(1, "Of the well")
        until(lambda: here.label(1) == "coding agent done", "the end")
        daemon.send_signal(signal.SIGTERM)
        finished(daemon)
