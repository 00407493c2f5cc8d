"""Translates an error answer of GitHub into an error of this program.

The functions in this module are pure: they get the status and the text of an answer.
"""

from __future__ import annotations

import json

from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable, IssueUnreadable


def parse_error(text: str) -> tuple[str, tuple[str, ...]]:
    """(message, one sentence per entry of `errors`) from the body of an error; for a text that is no JSON object, such
    as an HTML page, its first 200 characters and no sentences."""
    try:
        data = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:200], ()
    if not isinstance(data, dict):
        return str(data)[:200], ()
    reasons = []
    for error in data.get("errors") or () if isinstance(data.get("errors"), list) else ():
        if isinstance(error, dict):
            parts = [str(error[key]) for key in ("resource", "field", "code") if error.get(key)]
            reasons.append(str(error.get("message") or " ".join(parts)))
        else:
            reasons.append(str(error))
    return str(data.get("message") or ""), tuple(reasons)


def error_of(what: str, verb: str, status: int, message: str, reasons: tuple[str, ...]) -> ForgeError:
    """The program's error for a GitHub answer with a status of 400 or above, except for a rate limit."""
    said = ": ".join(part for part in (message, "; ".join(reasons)) if part)
    if status >= 500:
        return ForgeUnreachable(f"{what}: {status} {said}", maybe=verb != "GET")
    if status == 401:
        return ForgeAccessRefused(f"{what}: 401 {said}; the token is wrong, expired or revoked: set a new one")
    if status == 403 and "archived" in said.lower():
        return IssueUnreadable(f"{what}: 403 {said}; unarchive it", code="repository_archived")
    if status == 403:
        return ForgeAccessRefused(f"{what}: 403 {said}; the token lacks a right (docs/forges.md lists them)")
    return ForgeRefused(f"{what}: {status} {said}", status=status, reasons=reasons or (message,))
