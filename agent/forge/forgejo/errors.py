"""Translates Forgejo's error answers into errors of this program.

The functions in this module are pure: they get the status and the body of an answer.
"""

from __future__ import annotations

import json

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable, IssueUnreadable

LONGEST = 300


def parse_error(body: bytes) -> tuple[str, ...]:
    """The messages in the body of a Forgejo error: `message`, and the list `errors`; for a body that is not JSON, such
    as that of a proxy, the body's first characters."""
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except ValueError:
        plain = " ".join(text.split())
        return (plain[:LONGEST],) if plain else ()
    if not isinstance(data, dict):
        return (str(data)[:LONGEST],)
    more = data.get("errors")
    found = [data.get("message"), *(more if isinstance(more, list) else ())]
    return tuple(dict.fromkeys(str(one)[:LONGEST] for one in found if one))


def error_of(what: str, verb: str, status: int, reasons: tuple[str, ...]) -> ForgeError:
    """The program's error for a Forgejo answer with a status of 400 or above, except for a rate limit."""
    words = f"{what}: {status} {'; '.join(reasons)}".rstrip()
    if status >= 500:
        return ForgeUnreachable(words, maybe=verb != "GET")
    if status == 401:
        return ForgeAccessRefused(f"{words}; the token is wrong, expired or revoked: set a new one")
    if status == 403:
        scope = any("required scope" in reason for reason in reasons)
        needed = "make a token with these scopes" if scope else "the account lacks a right"
        return ForgeAccessRefused(f"{words}; {needed} (docs/forges.md lists them)")
    if status == 423:
        return IssueUnreadable(f"{words}; unarchive it", code="repository_archived")
    return ForgeRefused(words, status=status, reasons=reasons)
