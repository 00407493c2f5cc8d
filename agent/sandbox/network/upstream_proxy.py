"""Connects through a proxy that this host itself needs: HTTP (CONNECT), with or without TLS, and SOCKS 4 and 5."""

from __future__ import annotations

import base64
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agent.config.host_allowlist import in_url
from agent.errors import HostUnreached

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config.proxies import Proxy

LONGEST = 1 << 14
"""The maximum number of bytes in the head of the proxy's answer."""

DEFAULT_PORTS = {"http": 80, "https": 443}


def looks_up(proxy: Proxy) -> bool:
    """Whether the proxy resolves the name of the target host itself; the proxy may know names that this host does
    not."""
    return urlsplit(proxy.address).scheme not in ("socks5", "socks4")


def through(proxy: Proxy, host: str, port: int, connect: Callable[..., socket.socket], seconds: float) -> socket.socket:
    """Open a connection to `host`, a name or an address, through `proxy`; raises HostUnreached if that fails."""
    parts = urlsplit(proxy.address)
    at = (parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme, 1080))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    try:
        if parts.scheme.startswith("socks"):
            return _socks(parts.scheme, at, (user, password), (host, port), seconds)
        return _http(parts.scheme, at, (user, password), (host, port), connect, seconds)
    except OSError as error:
        way = f"by way of the proxy of this host ({proxy.variable})"
        raise HostUnreached(f"{host}:{port} was not reached {way}: {error}") from error


def _socks(
    scheme: str, at: tuple[str, int], login: tuple[str, str], target: tuple[str, int], seconds: float
) -> socket.socket:
    import socks  # type: ignore[import-untyped]

    kind = socks.SOCKS4 if scheme.startswith("socks4") else socks.SOCKS5
    made: Any = socks.socksocket()
    try:
        by_name = scheme in ("socks5h", "socks4a")
        made.set_proxy(kind, *at, rdns=by_name, username=login[0] or None, password=login[1] or None)
        made.settimeout(seconds)
        made.connect(target)
        # The descriptor is moved to a plain socket, because the socket class of PySocks overrides `send`.
        return socket.socket(fileno=made.detach())
    except BaseException:
        with suppress(OSError):
            made.close()
        raise


def _http(
    scheme: str,
    at: tuple[str, int],
    login: tuple[str, str],
    target: tuple[str, int],
    connect: Callable[..., socket.socket],
    seconds: float,
) -> socket.socket:
    made = connect(at, seconds)
    try:
        if scheme == "https":
            import ssl

            made = ssl.create_default_context().wrap_socket(made, server_hostname=at[0])
        name = in_url(target[0])
        lines = [f"CONNECT {name}:{target[1]} HTTP/1.1", f"Host: {name}:{target[1]}"]
        if login[0]:
            word = base64.b64encode(":".join(login).encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {word}")
        made.sendall("\r\n".join([*lines, "", ""]).encode())
        _tunnelled(made)
    except BaseException:
        made.close()
        raise
    return made


def _tunnelled(proxy: socket.socket) -> None:
    """Read exactly the head of the proxy's answer; raises ConnectionError if the status is not 200, the head is longer
    than LONGEST, or the proxy closes the connection first."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = proxy.recv(1)  # one byte at a time, since the bytes after the head belong to the target's stream
        if not byte or len(head) > LONGEST:
            raise ConnectionError("it closed the connection without an answer")
        head += byte
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if status.split()[1:2] != ["200"]:
        raise ConnectionRefusedError(f"it says {status[:200]!r}")
