"""Determines whether a set-up failed because the network was unavailable or the host lacked a resource, so that a retry
may succeed.

The shell that ran a tool hides the tool's exit code, so this module examines the end of the output. Most patterns do
not depend on a tool: names of errno, the C library's texts for them, the resolver's messages, and HTTP statuses of an
unavailable server. Some patterns match a message of a single tool; the table names the tool beside the pattern.
"""

from __future__ import annotations

import re

LINES = 60
"""The number of lines at the end of the output that are examined: a connection that was lost long before another
failure is not the cause of that failure."""

SIGNS: tuple[tuple[str, str], ...] = (
    ("errno", r"\be(?:connrefused|connreset|connaborted|timedout|netunreach|netdown|hostunreach|hostdown|ai_again)\b"),
    ("strerror(3)", r"\bconnection (?:refused|reset by peer|timed out|aborted)\b"),
    ("strerror(3)", r"\bnetwork is (?:unreachable|down)\b|\bno route to host\b|\bhost is down\b"),
    ("gai_strerror(3)", r"temporary failure in name resolution|name or service not known"),
    ("gai_strerror(3)", r"no address associated with hostname|nodename nor servname"),
    ("node, npm, yarn, pnpm", r"\benotfound\b|\besockettimedout\b|\berr_socket_timeout\b|\bund_err_\w*timeout\b"),
    ("npm, HTTP", r"\be(?:rr_pnpm_fetch_)?(?:429|502|503|504)\b"),
    ("pip, urllib3", r"\bnewconnectionerror\b|\bconnecttimeouterror\b|\breadtimeouterror\b"),
    ("pip, urllib3", r"\bnameresolutionerror\b|\bproxyerror\b"),
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
    ("libcurl", r"(?:recv|send) failure: |empty reply from server|ssl_error_syscall"),
    ("libcurl", r"transfer closed with (?:(?!transfer closed with (?!remaining)).)*? remaining"),
    ("libcurl", r"http/2 stream \d+ was not closed cleanly|proxy connect aborted|received http code \d+ from proxy"),
    ("libcurl", r"operation too slow|connection time-?out|unexpected eof while reading|http/2 framing layer"),
    ("wget", r"unable to resolve host address|\bread error \(connection"),
    ("go", r"\bdial tcp\b|\bi/o timeout\b|: no such host\b|tls handshake timeout"),
    ("apt", r"temporary failure resolving|unable to connect to \S+:|could not connect to \S+ \("),
    ("maven, gradle", r"\bunknownhostexception\b|\bnoroutetohostexception\b|\bsockettimeoutexception\b"),
    ("maven, gradle", r"\bconnecttimeoutexception\b|connectexception\b"),
    ("bundler, rubygems", r"\bnet::(?:open|read)timeout\b|\bsocketerror\b"),
    (
        "HTTP",
        r"\b(?:429 too many requests|502 bad gateway|503 service (?:temporarily )?unavailable|504 gateway time-?out)",
    ),
    (
        "HTTP",
        (
            r"(?:\bhttp(?:/[\d.]+)?|\bstatus(?: code)?|\berror|\bgot|\breturned)\W{0,3}(?:error\W{0,2})?"
            r"(?:429|502|503|504)\b"
        ),
    ),
    ("HTTP", r"\b(?:429|502|503|504) (?:client|server) error\b"),
)
"""Patterns for a failed network: (source of the message, pattern of the line in lower case).

If the end of a match may be far from its beginning, the pattern forbids a second beginning in between; otherwise the
search would scan the rest of the line from each beginning.
"""

HOST: tuple[tuple[str, str], ...] = (
    ("errno", r"\be(?:nomem|again|mfile|nfile)\b"),
    ("strerror(3)", r"cannot allocate memory|resource temporarily unavailable|too many open files"),
    ("shells, make", r"\b(?:cannot fork|fork failed|fork: retry|vfork: )"),
    ("git, python, go, java", r"can'?t start new thread|newosproc|outofmemoryerror"),
    ("git", r"unable to create (?:(?>(?:(?!unable to create )\w)+) )*thread"),
    ("python, c++, node", r"\bmemoryerror\b|std::bad_alloc|javascript heap out of memory|virtual memory exhausted"),
)
"""Patterns for messages about a host that refuses memory, a process, a thread or an open file: (source of the message,
pattern of the line in lower case)."""

_BOUNDARY = re.compile(r"\\b([a-z])")


def _compiled(table: tuple[tuple[str, str], ...]) -> tuple[re.Pattern[str], ...]:
    """One compiled pattern for each row of `table`. `re` passes quickly over text without the first letter of a
    pattern, but not where the pattern begins with a word boundary; so each boundary is rewritten: the pattern begins
    with the letter and then checks the boundary before it."""
    return tuple(re.compile(_BOUNDARY.sub(r"\1(?<=\\b\1)", pattern)) for _, pattern in table)


_SIGN, _HOST = _compiled(SIGNS), _compiled(HOST)


def is_of_the_network(output: bytes) -> bool:
    """Whether the end of a command's output reports an unreachable or unavailable server."""
    return _says(_SIGN, output)


def is_of_the_host(output: bytes) -> bool:
    """Whether the end of a command's output reports that the host refused memory, a process, a thread or an open
    file."""
    return _says(_HOST, output)


def _says(signs: tuple[re.Pattern[str], ...], output: bytes) -> bool:
    lines = output[-(1 << 16) :].decode("utf-8", "replace").splitlines()[-LINES:]
    return any(sign.search(line) for line in (line[:2000].lower() for line in lines) for sign in signs)
