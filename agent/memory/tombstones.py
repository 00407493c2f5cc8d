"""Hashes of forgotten events and records.  By the hash of a forgotten text the store refuses to store the same text
again, although the store no longer has the text.
"""

from __future__ import annotations

import hashlib


def tombstone(*parts: str) -> str:
    """The hash of several strings together, such as the namespace of a forgotten record and the hash of its text."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def event_tombstone(actor_id: str, session_id: str, sha: str) -> str:
    """The hash for a forgotten event; `sha` is `log_projection.sha_of` of its text."""
    return tombstone("event", actor_id, session_id, sha)


def token_tombstone(client_token: str) -> str:
    """The hash for the `client_token` of a forgotten event."""
    return tombstone("token", client_token)


def record_tombstone(namespace: str, sha: str) -> str:
    """The hash for a forgotten record; `sha` is `log_projection.sha_of` of its text."""
    return tombstone("record", namespace, sha)
