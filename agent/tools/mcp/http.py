"""The HTTP client for an MCP server with a `url`: bounded bodies, no compression, and the proxy of the environment.

The SDK for MCP follows redirects within the origin of the server's address only; this HTTP client follows no redirect
by itself.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from agent.config.environment import network_environment
from agent.config.proxies import in_the_way
from agent.errors import ConfigError
from agent.tools.mcp.traffic import LONGEST_MESSAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from agent.tools.mcp.traffic import McpTraffic

CONNECT = 15.0
"""Maximum seconds to open a connection to the MCP server, and to send a part of a request."""

RESUME_SECONDS = 0.5
"""Seconds of an additional wait before the HTTP client requests a stream again that broke off."""


def http_client(url: str, headers: Mapping[str, str], timeout: float, traffic: McpTraffic) -> httpx2.AsyncClient:
    """An HTTP client for an MCP server; the headers `headers` are sent to the origin of `url` only.

    `timeout` is the maximum number of seconds without data from the server.  Raises ConfigError for a proxy that cannot
    be used.
    """
    environ = network_environment()
    host = httpx2.URL(url).host
    loopback = host in ("localhost", "127.0.0.1", "::1") or host.startswith("127.")
    proxy = None if loopback else in_the_way(url, environ)
    context = ssl.create_default_context()
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if environ.get(name):
            context.load_verify_locations(cafile=environ[name])
            break
    try:
        inner = httpx2.AsyncHTTPTransport(
            verify=context, trust_env=False, proxy=proxy.address if proxy is not None else None
        )
    except (ImportError, ValueError) as error:
        assert proxy is not None
        raise ConfigError(f"{proxy.description} cannot be used for MCP servers: {error}; {proxy.advice}") from error
    return httpx2.AsyncClient(
        transport=_Bounded(inner, traffic),
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(timeout, connect=CONNECT, write=CONNECT),
        trust_env=False,
        follow_redirects=False,
    )


class _Bounded(httpx2.AsyncBaseTransport):
    """An HTTP transport that limits and counts the bytes of each body, refuses compressed bodies, records the status of
    the answers to POST, and does not open the stream for messages outside of calls."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, traffic: McpTraffic) -> None:
        self.inner = inner
        self.traffic = traffic

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            if "last-event-id" not in request.headers:
                # Messages that an MCP server sends outside of calls are not used, so the stream for these messages is
                # not opened; the SDK would open this stream again after each end.
                return httpx2.Response(405, request=request)
            await anyio.sleep(RESUME_SECONDS)
        response = await self.inner.handle_async_request(request)
        if request.method == "POST":
            self.traffic.status = response.status_code
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            self.traffic.why = "it compressed its answer, although none was asked for"
            raise httpx2.DecodingError(self.traffic.why, request=request)
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        stream: Any = response.stream
        response.stream = _BoundedBody(stream, self.traffic, 0 if events else LONGEST_MESSAGE)
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()


class _BoundedBody(httpx2.AsyncByteStream):
    """Counts the bytes of one HTTP body; `most` is its maximum size, 0 for a stream of events, for which only the
    limits of the traffic count."""

    def __init__(self, inner: httpx2.AsyncByteStream, traffic: McpTraffic, most: int) -> None:
        self.inner = inner
        self.traffic = traffic
        self.most = most
        self.size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.inner:
            self.size += len(chunk)
            self.traffic.add(len(chunk))
            if self.most and self.size > self.most:
                self.traffic.flood(f"it sent a body of more than {self.most >> 20} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self.inner.aclose()
