"""Requests that the proxy serves, as it passes them on, and those that it refuses."""

import pytest

from agent.errors import RequestUnreadable
from agent.sandbox.network.request import LONGEST, read, receive


def test_a_tunnel_has_what_came_behind_the_head():
    found = read(b"CONNECT Git.Example.ORG.:443 HTTP/1.1\r\nHost: evil", b"hello")
    assert (found.host, found.port, found.scheme, found.first, found.body) == (
        "git.example.org",
        443,
        "https",
        b"hello",
        None,
    )
    assert read(b"CONNECT [2606:4700::1111]:443 HTTP/1.1", b"").host == "2606:4700::1111"


def test_a_plain_request_is_written_anew():
    head = (
        b"POST http://u:p@A.example.org:8080/x?y=1#z HTTP/1.1\r\nHost: evil.net\r\nConnection: x-hop, close\r\n"
        b"X-Hop: 1\r\nProxy-Authorization: Basic a\r\nUpgrade: h2c\r\nTE: trailers\r\nAccept: */*\r\nContent-Length: 3"
    )
    found = read(head, b"abcGET http://b/ HTTP/1.1\r\n\r\n")
    assert (found.host, found.port, found.scheme, found.body) == ("a.example.org", 8080, "http", 0)
    assert found.first == (
        b"POST /x?y=1 HTTP/1.1\r\nHost: a.example.org:8080\r\nAccept: */*\r\nContent-Length: 3\r\n"
        b"Connection: close\r\n\r\nabc"
    )


def test_a_body_that_is_still_to_come_is_counted():
    assert read(b"PUT http://a/ HTTP/1.1\r\nContent-Length: 10", b"abc").body == 7
    assert read(b"GET http://a HTTP/1.1", b"").first == b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HTTP/1.1",
        b"GET https://a/ HTTP/1.1",
        b"GET ftp://a/ HTTP/1.1",
        b"GET http://a/ HTTP/2",
        b"GET http:///x HTTP/1.1",
        b"GET http://a:0/ HTTP/1.1",
        b"GET http://a:99999/ HTTP/1.1",
        b"GET http://a b/ HTTP/1.1",
        b"GET http://[::1%25lo]/ HTTP/1.1",
        b"CONNECT a HTTP/1.1",
        b"CONNECT a:b HTTP/1.1",
        b"CONNECT a:443/x HTTP/1.1",
        b"CONNECT u@a:443 HTTP/1.1",
        b"CONNECT a_\xff:443 HTTP/1.1",
        b"CONNECT -a.b:443 HTTP/1.1",
        b"GET http://a/ HTTP/1.1\r\nA b: c",
        b"GET http://a/ HTTP/1.1\r\n folded",
        b"GET http://a/ HTTP/1.1\r\nA : c",
        b"GET http://a/ HTTP/1.1\r\nA: b\nB: c",
        b"GET http://a/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        b"GET http://a/ HTTP/1.1\r\nContent-Length: +1",
        b"GET http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked",
    ],
)
def test_this_is_refused(head):
    with pytest.raises(RequestUnreadable):
        read(head, b"")


class Client:
    def __init__(self, *chunks):
        self.chunks = list(chunks)

    def recv(self, size):
        return self.chunks.pop(0) if self.chunks else b""


def test_a_head_is_taken_in_pieces_and_only_so_long():
    assert receive(Client(b"GET x\r", b"\n\r", b"\nrest")) == (b"GET x", b"rest")
    with pytest.raises(RequestUnreadable, match="too long"):
        receive(Client(b"x" * LONGEST, b"x"))
    with pytest.raises(RequestUnreadable, match="no end"):
        receive(Client(b"GET"))
