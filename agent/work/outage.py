"""Whether a set-up failed for want of the network: then it may go well a while later, and nobody has to mend anything.

A tool's exit code does not reach us through the shell that ran it, so the end of the output is looked at.  Most signs
are not wording of one tool but the network's own: errno names, the C library's texts for them, the resolver's, and
statuses of a server that is away.  The rest is what tools put in their place, with the tool beside it.
"""

from __future__ import annotations

import re

LINES = 60
"""Of the end of the output: a connection that was lost long before something else failed is not why."""

SIGNS: tuple[tuple[str, str], ...] = (
    ("errno", r"\bE(?:CONNREFUSED|CONNRESET|CONNABORTED|TIMEDOUT|NETUNREACH|NETDOWN|HOSTUNREACH|HOSTDOWN|AI_AGAIN)\b"),
    ("strerror(3)", r"\bconnection (?:refused|reset by peer|timed out|aborted)\b"),
    ("strerror(3)", r"\bnetwork is (?:unreachable|down)\b|\bno route to host\b|\bhost is down\b"),
    ("gai_strerror(3)", r"temporary failure in name resolution|name or service not known"),
    ("gai_strerror(3)", r"no address associated with hostname|nodename nor servname"),
    ("node, npm, yarn, pnpm", r"\b(?:ENOTFOUND|ESOCKETTIMEDOUT|ERR_SOCKET_TIMEOUT|UND_ERR_\w*TIMEOUT)\b"),
    ("npm, HTTP", r"\b(?:E|ERR_PNPM_FETCH_)(?:429|502|503|504)\b"),
    ("pip, urllib3", r"\b(?:NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProxyError)\b"),
    ("uv, reqwest", r"tcp connect error|dns error: |operation timed out|error sending request for url"),
    ("curl, git, cargo, composer", r"could ?n(?:o|')t resolve (?:host|proxy)|failed to connect to "),
    ("curl, composer", r"\bcurl(?: error|:) \(?(?:5|6|7|28|35|52|55|56)\b"),
    ("cargo, libcurl", r"spurious network error|\[(?:5|6|7|28|35|52|55|56)\] (?:could|time|ssl connect|failure)"),
    ("git", r"could not read from remote repository|the remote end hung up unexpectedly"),
    ("wget", r"unable to resolve host address|\bread error \(connection"),
    ("go", r"\bdial tcp\b|\bi/o timeout\b|: no such host\b|tls handshake timeout"),
    ("apt", r"temporary failure resolving|unable to connect to \S+:|could not connect to \S+ \("),
    ("maven, gradle", r"\b(?:UnknownHost|NoRouteToHost|SocketTimeout|ConnectTimeout)Exception\b|ConnectException\b"),
    ("bundler, rubygems", r"\bNet::(?:Open|Read)Timeout\b|\bSocketError\b"),
    (
        "HTTP",
        r"\b(?:429 too many requests|502 bad gateway|503 service (?:temporarily )?unavailable|504 gateway time-?out)",
    ),
    (
        "HTTP",
        r"\b(?:http(?:/[\d.]+)?|status(?: code)?|error|got|returned)\W{0,3}(?:error\W{0,2})?(?:429|502|503|504)\b",
    ),
    ("HTTP", r"\b(?:429|502|503|504) (?:client|server) error\b"),
)
"""(who says it, what it says), any case."""

_SIGN = re.compile("|".join(f"(?:{pattern})" for _, pattern in SIGNS), re.IGNORECASE)


def is_of_the_network(output: bytes) -> bool:
    """Whether the end of what a command printed says that somebody on the network was not reached, or was away."""
    lines = output[-(1 << 16) :].decode("utf-8", "replace").splitlines()[-LINES:]
    return any(_SIGN.search(line[:2000]) for line in lines)
