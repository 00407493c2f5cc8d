"""Hashes of forgotten events and records.  With these hashes the store refuses the same text later, although it does
not have the text any more.
"""

from __future__ import annotations

import hashlib


def tombstone(*parts: str) -> str:
    """The hash of several parts, for example of the place of a forgotten text and the text's own hash."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def event_tombstone(actor_id: str, session_id: str, sha: str) -> str:
    """The hash of a forgotten event with this text; `sha` is `views.sha_of` of it."""
    return tombstone("event", actor_id, session_id, sha)


def token_tombstone(client_token: str) -> str:
    """The hash of a forgotten event with this `client_token`."""
    return tombstone("token", client_token)


def record_tombstone(namespace: str, sha: str) -> str:
    """The hash of a forgotten record with this text; `sha` is `views.sha_of` of it."""
    return tombstone("record", namespace, sha)
