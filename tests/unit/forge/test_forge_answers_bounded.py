"""A token goes to its host alone, and no answer takes more memory, pages or time than one that is right."""

import gzip
import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import requests
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent import clock
from agent.config.forge_sections import Forgejo, GitHub
from agent.errors import AnswerOdd, ForgeError, PictureRefused
from agent.forge import http, pictures
from agent.forge.forgejo.http import ForgejoWire
from agent.forge.forgejo.pictures import ForgejoPictures
from agent.forge.github.repositories import Repositories
from agent.forge.http import AnswerTooLarge, HostChanged, OneHost


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
    with pytest.raises(AnswerTooLarge, match="larger than 1 MiB") as raised:
        OneHost(address).get(address, timeout=5)
    assert not http.may_pass(raised.value)
    assert "larger" in http.failure_text(raised.value)


def test_a_redirects_own_body_is_no_way_around_it(server, monkeypatch):
    address, say = server
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1 << 16)
    head = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 1000000\r\n\r\n"
    say(lambda connection: connection.sendall(head + b"0" * 1_000_000))
    with pytest.raises(AnswerTooLarge):
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
    with pytest.raises(AnswerTooLarge, match="not come whole"):
        OneHost(address).get(address, timeout=5)


@pytest.mark.parametrize("body", ["trickle", "bomb"])
def test_a_picture_is_bounded_like_an_answer(server, monkeypatch, tmp_path, body):
    address, say = server
    monkeypatch.setattr(http, "LONGEST_ANSWER", 0.2)
    monkeypatch.setattr(pictures, "LARGEST", 1 << 16)

    def trickle(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.02)

    def bomb(connection):
        packed = gzip.compress(b"0" * (16 << 20), 9)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        connection.sendall(head + packed)

    say({"trickle": trickle, "bomb": bomb}[body])
    with pytest.raises(PictureRefused, match="not come whole" if body == "trickle" else "larger than"):
        pictures.fetch(address, ForgejoPictures(ForgejoWire(Forgejo(token="a token"), address, tmp_path, "host")))


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
    with pytest.raises((HostChanged, requests.exceptions.InvalidSchema)):
        OneHost("http://api.example").get(url, timeout=1)


def test_an_error_that_is_kept_keeps_no_answer(server, monkeypatch):
    """The lists of a poll that came too large were in memory together, 32 MiB each."""
    address, say = server
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1 << 20)
    say(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9_000_000))
    with pytest.raises(AnswerTooLarge) as raised:
        OneHost(address).get(address, timeout=5)
    frames = [entry.frame.f_locals.get("pieces") for entry in raised.traceback]
    assert [one for one in frames if one is not None] == [[]]


@pytest.mark.parametrize("kind", [GitHubPlace, GitLabPlace, ForgejoPlace])
def test_after_lists_without_an_answer_the_host_is_asked_whether_it_is_there(tmp_path, kind):
    """The answer to that request was taken for a bug, so the poll of the other projects ended."""
    with clock.use(clock.FakeClock()):
        place = kind(tmp_path)
        assert place.forge.unanswered.is_away() is False
        place.server.fault("GET", r"/(rate_limit|version)$", status=502, times=-1)
        assert place.forge.unanswered.is_away() is True
        place.close()


@pytest.fixture(params=[GitHubPlace, GitLabPlace])
def wire(request, tmp_path):
    with clock.use(clock.FakeClock()):
        place = request.param(tmp_path)
        yield place.forge.wire
        place.close()


def test_the_next_page_is_below_the_api(wire):
    for path in ("@other.example:81/x", ".other.example/x", ":81/x"):
        link = f'<{wire.base_url}{getattr(wire, "api", "")}{path}?page=2>; rel="next"'
        with suppress(AnswerOdd):
            following = wire._next(link)
            assert following is None or following.startswith("/")


def test_a_list_without_an_end_ends():
    http.a_page_more(http.MOST_PAGES, "GET /x")
    with pytest.raises(AnswerOdd, match="more than 1000 pages"):
        http.a_page_more(http.MOST_PAGES + 1, "GET /x")


@pytest.mark.parametrize(
    "change",
    [
        ("http://", "ssh://"),
        ("http://", "https://"),
        ("http://", "http://a:b@"),
        ("http://", "http://a@"),
        ("http://", "//"),
        ("127.0.0.1", "other.example"),
        ("127.0.0.1", "127.0.0.1.other.example"),
        ("127.0.0.1", "other.example\\@127.0.0.1"),
        ("127.0.0.1", "other.example#@127.0.0.1"),
        ("127.0.0.1", "127.0.0\n.1"),
        ("127.0.0.1", "127.0.0.1\u3002"),
        ("127.0.0.1", "[127.0.0.1"),
        (":PORT/", ":9/"),
        (":PORT/", "/"),
        (":PORT/", ":0/"),
        (":PORT/", ":0x1/"),
        (":PORT/", ":99999/"),
        (":PORT/", ":PORT@other.example/"),
    ],
)
def test_git_goes_where_the_api_is(tmp_path, change):
    place = GitHubPlace(tmp_path)
    key = place.issue()
    port = f":{urlsplit(place.address).port}"
    old, new = (part.replace(":PORT", port) for part in change)
    assert old in place.repo.clone_url
    place.repo.clone_url = place.repo.clone_url.replace(old, new)
    with pytest.raises(ForgeError, match=r"goes nowhere else|is no address"):
        place.forge.repository(key, place.forge.read_issue(key))
    place.close()


@pytest.mark.parametrize(
    ("base_url", "clone_url"),
    [
        ("https://api.github.com", "https://github.com/acme/web.git"),
        ("https://api.github.com", "https://github.com:443/acme/web.git"),
        ("https://ghe.example:8443/api/v3", "https://GHE.example:8443/acme/web.git"),
    ],
)
def test_the_own_host_with_its_port_is_taken(base_url, clone_url):
    assert Repositories(SimpleNamespace(base_url=base_url, host="h"), GitHub()).check_host(clone_url) == clone_url
