"""Extracts the cause from an error of a library, as text for a person.

`requests` and urllib3 wrap the cause of an error three times, and print pools, memory addresses and error numbers with
it. The functions of the module `error_text` are pure; callers add the URL and advice.
"""

from __future__ import annotations

import re
import ssl

_NUMBERED = re.compile(r"\[Errno -?\d+\] |Error -?\d+ (?=connecting to )")
_OBJECT = re.compile(r"^<?[\w.]+(?:\(.*?\)| object at 0x[0-9a-f]+>): ")
_START = "Failed to establish a new connection: "
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG")


LONGEST = 2000
"""Maximum number of characters of `named`."""


def text_of(error: object) -> str:
    """`str(error)`; if that raises an error itself, as the class of a plug-in may, a sentence that says so."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - the class of the error may be that of a plug-in
        return f"(its text cannot be read: {type(second).__name__})"


def named(error: BaseException) -> str:
    """The class and the text of an error, for a message about an error of a plug-in, a library or this program."""
    return f"{type(error).__name__}: {text_of(error)}"[:LONGEST]


def innermost(error: BaseException) -> BaseException:
    """The innermost error of a chain of errors: each outer error has it as `reason` or as an argument."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = [getattr(error, "reason", None), *error.args]
        error = next((one for one in inner if isinstance(one, BaseException)), error)
    return error


def reason(error: object) -> str:
    """The text of the innermost error, on one line and without the error number; the name of the error's class if it
    has no text."""
    inner = innermost(error) if isinstance(error, BaseException) else error
    words = _OBJECT.sub("", _NUMBERED.sub("", " ".join(text_of(inner).split()))).removeprefix(_START)
    if words.startswith("Failed to resolve"):
        words = words.partition("(")[0].rstrip()
    return words or type(inner).__name__


def is_untrusted(error: BaseException) -> bool:
    """Whether TLS failed because the server's certificate is not trusted."""
    return isinstance(innermost(error), ssl.SSLCertVerificationError)


def is_no_tls(error: BaseException) -> bool:
    """Whether TLS failed because the server does not use TLS on this port."""
    return getattr(innermost(error), "reason", None) in _NO_TLS


def tls_reason(error: BaseException) -> str:
    """The cause of a TLS failure, as text."""
    inner = innermost(error)
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({_verified(inner)})"
    if is_no_tls(inner):
        return "it does not speak TLS on this port"
    if isinstance(inner, ssl.SSLEOFError):
        return "the connection was cut"
    named = getattr(inner, "reason", None)
    return named.replace("_", " ").lower() if isinstance(named, str) and named else reason(inner)


def _verified(error: ssl.SSLCertVerificationError) -> str:
    """The result of OpenSSL's check of the server's certificate."""
    said = getattr(error, "verify_message", "") or reason(error)
    return str(said).rstrip(".")
