"""Translates GitLab's error answers into errors of this program, and interprets its rate-limit headers.

The functions in this module are pure: they get the status, the headers or the body of an answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable
from agent.forge.http import retry_after, server_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST = 300


def parse_error(body: bytes) -> tuple[str, ...]:
    """The messages in the body of a GitLab error, one sentence for each.

    A GitLab error has its messages in one of several forms: `message` as text, list, or mapping of field to list;
    `error` with `error_description`; plain text, for example of a proxy.
    """
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except ValueError:
        plain = " ".join(text.split())
        return (plain[:LONGEST],) if plain else ()
    if not isinstance(data, dict):
        return (str(data)[:LONGEST],)
    found = [
        *_sentences(data.get("message")),
        *_sentences(data.get("error")),
        *_sentences(data.get("error_description")),
    ]
    return tuple(dict.fromkeys(found))


def _sentences(value: Any, field: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _sentences(inner, "" if name in ("base", "error") else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _sentences(inner, field)
    elif value not in (None, ""):
        yield f"{field} {value}".strip()[:LONGEST]


def error_of(what: str, verb: str, status: int, reasons: tuple[str, ...]) -> ForgeError:
    """The program's error for a GitLab answer with a status of 400 or above, except for a rate limit."""
    words = f"{what}: {status} {'; '.join(reasons)}".rstrip()
    if status >= 500:
        return ForgeUnreachable(words, maybe=verb != "GET")
    if status == 401:
        return ForgeAccessRefused(f"{words}; the token is wrong, expired or revoked: set a new one")
    if status == 403:
        scope = any("insufficient_scope" in reason for reason in reasons)
        needed = "the token needs the scope `api`" if scope else "the account lacks a right (docs/forges.md lists them)"
        return ForgeAccessRefused(f"{words}; {needed}")
    if status == 410:
        words += "; is this GitLab older than 16? its API v4 is needed"
    return ForgeRefused(words, status=status, reasons=reasons)


def retry_delay(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait after GitLab answered 429: the value of Retry-After, else the time until `RateLimit-Reset`; None
    if neither header has a valid value."""
    wait = retry_after(headers)
    if wait is not None:
        return wait
    try:
        return max(1.0, float(headers["ratelimit-reset"]) - server_now(headers))
    except (KeyError, ValueError):
        return None


def budget(headers: Mapping[str, str]) -> tuple[int, int, float] | None:
    """The rate limit from the `RateLimit-*` headers: (remaining requests, limit, seconds until the reset); None if a
    header is missing or malformed."""
    try:
        remaining, limit = int(headers["ratelimit-remaining"]), int(headers["ratelimit-limit"])
        return remaining, limit, float(headers["ratelimit-reset"]) - server_now(headers)
    except (KeyError, ValueError):
        return None
