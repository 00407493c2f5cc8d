"""A token goes to its host alone, and no answer takes more memory, pages or time than one that is right."""

import gzip
import socket
import threading
import time
from contextlib import suppress

import pytest
import requests
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent import clock
from agent.errors import AnswerOdd, ForgeError
from agent.forge import http
from agent.forge.http import Moved, OneHost, TooLarge


@pytest.fixture
def server():
    """A server that answers each connection with what `say(connection)` writes."""
    listener = socket.create_server(("127.0.0.1", 0))
    says = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    says[0](connection)
                except OSError:
                    pass

    threading.Thread(target=serve, daemon=True).start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    yield address, says.append
    listener.close()


def test_an_answer_that_unpacks_to_a_bomb_is_not_taken(server, monkeypatch):
    address, say = server
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1 << 20)
    bomb = gzip.compress(b"0" * (64 << 20), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    say(lambda connection: connection.sendall(head + bomb))
    with pytest.raises(TooLarge, match="larger than 1 MiB") as raised:
        OneHost(address).get(address, timeout=5)
    assert not http.may_pass(raised.value)
    assert "larger" in http.why(raised.value)


def test_a_redirects_own_body_is_no_way_around_it(server, monkeypatch):
    address, say = server
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1 << 16)
    head = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 1000000\r\n\r\n"
    say(lambda connection: connection.sendall(head + b"0" * 1_000_000))
    with pytest.raises(TooLarge):
        OneHost(address).get(address, timeout=5)


def test_an_answer_that_trickles_ends(server, monkeypatch):
    address, say = server
    monkeypatch.setattr(http, "LONGEST_ANSWER", 0.2)

    def trickle(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.02)

    say(trickle)
    with pytest.raises(TooLarge, match="not come whole"):
        OneHost(address).get(address, timeout=5)


def test_a_right_answer_is_read_whole(server):
    address, say = server
    body = gzip.compress(b"[1, 2, 3]" * 1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    say(lambda connection: connection.sendall(head + body))
    assert OneHost(address).get(address, timeout=5).text == "[1, 2, 3]" * 1000


def test_a_body_that_ends_early_is_an_error_that_may_pass(server):
    address, say = server
    say(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1"))
    with pytest.raises(requests.exceptions.RequestException) as raised:
        OneHost(address).get(address, timeout=5)
    assert http.may_pass(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://other.example/x",
        "http://api.example:81/x",
        "http://api.example:80@other.example/x",
        "ftp://api.example/",
    ],
)
def test_a_session_sends_nothing_to_another_host_port_or_scheme(url):
    with pytest.raises((Moved, requests.exceptions.InvalidSchema)):
        OneHost("http://api.example").get(url, timeout=1)


@pytest.fixture(params=[GitHubPlace, GitLabPlace])
def wire(request, tmp_path):
    with clock.use(clock.FakeClock()):
        place = request.param(tmp_path)
        yield place.forge.wire
        place.close()


def test_the_next_page_is_below_the_api(wire):
    for path in ("@other.example:81/x", ".other.example/x", ":81/x"):
        link = f'<{wire.base_url}{"/api/v4" if "/api/v4" in wire.prefix else ""}{path}?page=2>; rel="next"'
        with suppress(AnswerOdd):
            following = wire._next(link)
            assert following is None or following.startswith("/")


def test_a_list_without_an_end_ends():
    http.a_page_more(http.MOST_PAGES, "GET /x")
    with pytest.raises(AnswerOdd, match="more than 1000 pages"):
        http.a_page_more(http.MOST_PAGES + 1, "GET /x")


@pytest.mark.parametrize("change", [("http://", "ssh://"), ("http://", "http://a:b@"), ("127.0.0.1", "other.example")])
def test_git_goes_where_the_api_is(tmp_path, change):
    place = GitHubPlace(tmp_path)
    key = place.issue()
    place.repo.clone_url = place.repo.clone_url.replace(*change)
    with pytest.raises(ForgeError, match="goes nowhere else"):
        place.forge.repository(key, place.forge.read(key))
    place.close()
