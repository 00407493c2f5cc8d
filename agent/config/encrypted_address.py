"""Checks that a URL is encrypted (https, or http to this machine) and has no user or password in it."""

from __future__ import annotations

from urllib.parse import urlsplit

from agent.config.host_allowlist import is_loopback


def encrypted_or_here(value: str | None, login: str) -> str | None:
    """Returns the address (or None) unchanged; raises ValueError for http to another machine, and for a user or a
    password in the address; `login` is the advice in the message about a user or a password."""
    if value is None:
        return value
    parts = urlsplit(value)
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"has a user or a password in it; {login}")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError(
            f"http to {parts.hostname} is not encrypted; allowed are https://… and, on this machine, "
            "http://localhost…, http://127.0.0.1… or http://[::1]…"
        )
    return value
