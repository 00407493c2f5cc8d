"""Reads the head of a client's request to the proxy, and rewrites it for `http://` addresses.

The proxy answers CONNECT with a tunnel (RFC 9110, 9.3.6). A request other than CONNECT must name the absolute address
(RFC 9112, 3.2.2), and a connection serves only one such request. From that request the proxy removes the header fields
that concern the connection, derives `Host` from the address, and passes on exactly the bytes of the body. Bytes after
the body are not sent to the server: they could be a second request, for a host that the proxy has not checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.config import host_allowlist
from agent.errors import RequestUnreadable

if TYPE_CHECKING:
    import socket

LONGEST = 1 << 16
"""The maximum number of bytes that are read of a client's request until its head is complete."""

END = b"\r\n\r\n"

_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]{1,16000}) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+([^\r\n\0]*+)")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/@?#]+):([0-9]{1,5})")
_OF_THE_CONNECTION = {b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"host"}


@dataclass(frozen=True, slots=True)
class Request:
    """`host` is the target host of the request, in the form that `host_allowlist.normalize_host` returns.

    `scheme` is "https" for a tunnel: then `first` is the data that the client sent after the head of the request, and
    `body` is None. For an `http://` request `first` begins with the head for the server, and `body` is the number of
    body bytes still to read.
    """

    host: str
    port: int
    scheme: str
    first: bytes
    body: int | None = None


def receive(client: socket.socket) -> tuple[bytes, bytes]:
    """(the head of the request without the empty line at its end, the data after the head). Raises RequestUnreadable if
    the client ends the connection before the head is complete, or if the head is too long, and OSError if the
    connection fails or times out."""
    found = bytearray()
    end = -1
    while end < 0:
        chunk = client.recv(LONGEST)
        if not chunk or len(found) + len(chunk) > LONGEST:
            raise RequestUnreadable("the head of the request is too long" if chunk else "the request has no end")
        # if the head arrives slowly, the part that was searched before is not searched again
        looked = max(0, len(found) - len(END))
        found += chunk
        end = found.find(END, looked)
    return bytes(found[:end]), bytes(found[end + len(END) :])


def read(head: bytes, rest: bytes) -> Request:
    """Parse the head of the client's request; raises RequestUnreadable for a request that the proxy does not serve."""
    first, *fields = head.split(b"\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise RequestUnreadable("this is a proxy for HTTP/1.1 alone")
    method, target = match[1], match[2].decode("ascii")
    if method == b"CONNECT":
        host, port = _authority(target)
        return Request(host, port, "https", rest)
    return _parse_http_request(method, target, fields, rest)


def _authority(text: str) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 1 << 16:
        raise RequestUnreadable("the request names no host and port")
    try:
        return host_allowlist.normalize_host(match[1]), int(match[2])
    except ValueError:
        raise RequestUnreadable("the request names a host that there cannot be") from None


def _parse_http_request(method: bytes, target: str, fields: list[bytes], rest: bytes) -> Request:
    scheme, separator, address = target.partition("://")
    if scheme.lower() != "http" or not separator:
        raise RequestUnreadable("the request must name an address http://...; use CONNECT for https")
    try:
        parts = urlsplit(f"http://{address}")
        named = parts.netloc.rpartition("@")[2].removesuffix(":") + ("" if parts.port else ":80")
    except ValueError:
        raise RequestUnreadable("the address of the request cannot be understood") from None
    host, port = _authority(named)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    length, kept = _fields(fields)
    name = host_allowlist.in_url(host)
    authority = name if port == 80 else f"{name}:{port}"
    lines = [b"%s %s HTTP/1.1" % (method, path.encode()), b"Host: " + authority.encode(), *kept, b"Connection: close"]
    body = rest[:length]
    return Request(host, port, "http", b"\r\n".join(lines) + END + body, length - len(body))


def _fields(lines: list[bytes]) -> tuple[int, list[bytes]]:
    """(length of the request's body, 0 without Content-Length; header fields for the server). Raises RequestUnreadable
    for a malformed field, for Transfer-Encoding, and for invalid or different values of Content-Length."""
    found = []
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise RequestUnreadable("a field of the request cannot be read")
        found.append((match[1].lower(), match[2].strip(), line))
    gone = set(_OF_THE_CONNECTION)
    for name, value, _ in found:
        if name == b"connection":
            gone |= {word.strip().lower() for word in value.split(b",")}
    lengths = {value for name, value, _ in found if name == b"content-length"}
    if any(name == b"transfer-encoding" for name, _, _ in found):
        raise RequestUnreadable("the request must say its Content-Length")
    if len(lengths) > 1 or any(not value.isdigit() or len(value) > 18 for value in lengths):
        raise RequestUnreadable("the request has no clear Content-Length")
    kept = [
        line
        for name, _, line in found
        if name == b"content-length" or (name not in gone and not name.startswith(b"proxy-"))
    ]
    return int(lengths.pop()) if lengths else 0, kept
