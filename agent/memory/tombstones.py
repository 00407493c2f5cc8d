"""Hashes of what was forgotten.  They keep the same texts from coming back, and say nothing else."""

from __future__ import annotations

import hashlib


def tombstone(*parts: str) -> str:
    """The hash that stands for something forgotten: where it was, and the hash of its text."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def event_tombstone(actor_id: str, session_id: str, sha: str) -> str:
    """Of an event, by its text."""
    return tombstone("event", actor_id, session_id, sha)


def token_tombstone(client_token: str) -> str:
    """Of an event, by its `client_token`."""
    return tombstone("token", client_token)


def record_tombstone(namespace: str, sha: str) -> str:
    """Of a record, by its text."""
    return tombstone("record", namespace, sha)
