"""Hashes of forgotten events and records.  By them the store refuses the same text later without knowing it."""

from __future__ import annotations

import hashlib


def tombstone(*parts: str) -> str:
    """The hash of these parts: the place of a forgotten text, and the hash of the text."""
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
