"""One source of issues that is ill never holds the others."""

from __future__ import annotations

import gzip
import signal
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import yaml
from flow_home import finish, finished, until, write
from forge_home import OFTEN, TASK

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
    here.pin()
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


def slowly(connection, _over):
    """An empty list, a second later; the account is asked for too."""
    time.sleep(1)
    connection.sendall(JSON + b'ETag: "1"\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[]')


def test_run_once_gives_a_source_that_hangs_a_minute_and_works_on_what_the_others_have(home):
    here = home({"Of the well": [write("a.txt"), finish()]})
    with ill(hangs) as (address, _):
        sources(here, ["github", "local"], github={"base_url": address, "token": "t" * 20, "projects": ["acme/web"]})
        here.issue(1, "Of the well")
        began = time.monotonic()
        text = here.once(code=3)
        assert 55 < time.monotonic() - began < 90
    assert here.label(1) == "coding agent done"
    assert "has answered nothing for 60 s and is not waited for" in text
    assert "Traceback" not in text


def test_run_once_polls_all_sources_at_the_same_time(home):
    here = home({"Of the well": [write("a.txt"), finish()]})
    with ExitStack() as stack:
        servers = [stack.enter_context(ill(slowly)) for _ in range(6)]
        hosts = [
            {"base_url": address, "token": "t" * 20, "projects": ["acme/web"], "bot_name": "makimono"}
            for address, _ in servers
        ]
        sources(here, ["github", "local"], github=hosts)
        here.issue(1, "Of the well")
        moments = []
        for _, asked in servers:
            threading.Thread(
                target=lambda one=asked: (one.wait(60), moments.append(time.monotonic())), daemon=True
            ).start()
        here.once(code=3)  # the repository of each is a list, which is odd
    assert len(moments) == 6
    assert max(moments) - min(moments) < 1, "one after the other they take a second each"
    assert here.label(1) == "coding agent done"


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_run_once_starts_no_task_before_its_pause_is_read(homes, kind):
    """Another source has long been polled, and its task waits until the slow one has been polled too."""
    home = homes(kind, {TASK: [finish()], "Of the well": [write("a.txt"), finish()]})
    key = home.issue()
    home.flow.run("run", "--once", "--role", "producer", code=0)
    home.flow.half_a_minute_later()
    home.flow.issue(1, "Of the well")
    here = home.flow
    settings = yaml.safe_load(here.config.read_text())
    settings |= {
        "task_sources": ["local", kind],
        "local": {"tracker": "tracker", "repos": {"default": "repos/default.git"}},
    }
    here.config.write_text(yaml.safe_dump(settings))
    here.repository("default")
    home.place.comment(key, "/pause")
    body = {} if kind == "github" else {"body": {"message": "502"}}
    home.server.fault("GET", "/issues$", status=502, times=2, call=lambda: time.sleep(2), **body)
    here.once()
    assert here.label(1) == "coding agent done"
    assert home.labels(key) == ["coding agent paused"]
    assert not any(TASK.encode() in request.body for request in here.server.journal)
