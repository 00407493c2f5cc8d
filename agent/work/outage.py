"""Whether a set-up failed for want of the network, or of what the host had none of: then it may go well a while later.

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
    ("git", r"could not read from remote repository|(?:the )?remote end hung up unexpectedly|\bearly eof\b"),
    ("git", r"\brpc failed\b|unexpected disconnect while reading|fetch-pack: invalid index-pack output"),
    ("git", r"unable to access '[^']*': (?!the requested url returned error: 4(?!29))"),
    ("git", r"\bunable to connect to \S+:|gnutls_handshake|gnutls recv error"),
    (
        "ssh",
        r"\bssh: connect to host|could not resolve hostname|kex_exchange_identification|ssh_exchange_identification",
    ),
    (
        "ssh",
        r"connection (?:to \S+ )?closed by (?:remote host|\S+ port)|timeout, server \S+ not responding|client_loop: ",
    ),
    ("libcurl", r"(?:recv|send) failure: |empty reply from server|transfer closed with .* remaining|ssl_error_syscall"),
    ("libcurl", r"http/2 stream \d+ was not closed cleanly|proxy connect aborted|received http code \d+ from proxy"),
    ("libcurl", r"operation too slow|connection time-?out|unexpected eof while reading|http/2 framing layer"),
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

HOST: tuple[tuple[str, str], ...] = (
    ("errno", r"\bE(?:NOMEM|AGAIN|MFILE|NFILE)\b"),
    ("strerror(3)", r"cannot allocate memory|resource temporarily unavailable|too many open files"),
    ("shells, make", r"\b(?:cannot fork|fork failed|fork: retry|vfork: )"),
    ("git, python, go, java", r"can'?t start new thread|unable to create (?:\w+ )*thread|newosproc|outofmemoryerror"),
    ("python, c++, node", r"\bmemoryerror\b|std::bad_alloc|javascript heap out of memory|virtual memory exhausted"),
)
"""As SIGNS, of a host that refuses memory, a process, a thread or an open file."""

_SIGN = re.compile("|".join(f"(?:{pattern})" for _, pattern in SIGNS), re.IGNORECASE)
_HOST = re.compile("|".join(f"(?:{pattern})" for _, pattern in HOST), re.IGNORECASE)


def is_of_the_network(output: bytes) -> bool:
    """Whether the end of what a command printed says that somebody on the network was not reached, or was away."""
    return _says(_SIGN, output)


def is_of_the_host(output: bytes) -> bool:
    """Whether the end of what a command printed says that the host refused it memory, a process or an open file."""
    return _says(_HOST, output)


def _says(sign: re.Pattern[str], output: bytes) -> bool:
    lines = output[-(1 << 16) :].decode("utf-8", "replace").splitlines()[-LINES:]
    return any(sign.search(line[:2000]) for line in lines)
