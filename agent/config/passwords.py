"""Passwords in addresses, found by where they stand: however short one is, and whoever declared it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

MASK = "********"
_LOGIN = re.compile(r"(?<=://)([^\s/?#@:\"'<>]{0,200}+:)[^\s/?#@\"'<>]{1,400}+@")
_QUERY = re.compile(
    r"([?&][^\s=&#\"'<>]{0,60}?(?:key|token|secret|passw|sig)[^\s=&#\"'<>]{0,60}+=)[^\s&#\"'<>]{1,2000}+", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """`text` in which the password of `scheme://user:password@host` and the values of a query with a telling name
    (`?access_token=`) are masks."""
    if "://" not in text:
        return text
    text = _LOGIN.sub(rf"\1{MASK}@", text) if "@" in text else text
    return _QUERY.sub(rf"\1{MASK}", text) if "?" in text else text


def shown(address: str) -> str:
    """One address as it may be shown: its user stays, password and query go.  A path stays as it is."""
    parts = urlsplit(address)
    if not parts.scheme:
        return address
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{at}{host}", parts.path, "", ""))
