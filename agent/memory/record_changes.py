"""Changes existing memory records by entries in the log: promotes, pins and invalidates them, and counts uses and
outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.errors import UsageError
from agent.memory.full_text_index import BLOCK
from agent.memory.log import entry_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.memory.write_transaction import Writing


def newest_block(write: Writing, namespace: str, session_id: str) -> int:
    """The number of the session document (`full_text_index.py`) to which a new record is added; 0 begins a new
    document."""
    found = write.run("record_block", namespace=namespace, session_id=session_id) if session_id else []
    return int(found[0]["block"]) if found and found[0]["records"] < BLOCK else 0


VERSIONS = 100
"""Maximum number of steps from a superseded record to its newest version."""


def promote(write: Writing, record_id: str, *, trust: int | None, reason: str) -> None:
    """Make a record active that is quarantined, invalid or superseded, with the trust `trust`; None leaves its trust as
    it is.  Of a record that is active already, only the trust is changed.  Raises UsageError if there is no such
    record, or if it is active and `trust` is None."""
    row = _row(write, record_id)
    if row["status"] == "active" and trust is None:
        raise UsageError(f"memory record {record_id} is active already")
    write.append("promoted", record_id, {"trust": row["trust"] if trust is None else trust}, reason)


def pin(write: Writing, record_id: str, *, pinned: bool) -> None:
    """Pin or unpin a record.  A pinned record does not lose rank with age, is not made invalid because of `memory.cap`,
    and is recalled first."""
    _row(write, record_id)
    write.append("pinned", record_id, {"pinned": pinned})


def invalidate(write: Writing, record_id: str, reason: str) -> None:
    """Mark an active or quarantined record as invalid because it is no longer true; any other record stays as it is.
    An invalid record stays in memory.db and is not recalled."""
    if _row(write, record_id)["status"] in ("active", "quarantined"):
        write.append("invalidated", record_id, {}, reason)


def mark_used(write: Writing, record_ids: Iterable[str], session_id: str) -> None:
    """Log that a task got the records, so that the ranking counts the age of these records from now.  A record that the
    log already names for the session `session_id` is not logged again."""
    entries = [entry_of(row) for row in write.run("log_of_subject", subject=session_id)] if session_id else []
    known = {one for entry in entries if entry.operation == "used" for one in (entry.payload or {}).get("ids", ())}
    if ids := [one for one in _existing(write, record_ids) if one not in known]:
        write.append("used", session_id, {"ids": ids})


def mark_outcome(write: Writing, record_ids: Iterable[str], *, helped: bool, reason: str) -> None:
    """Count the outcome of a task for each record that the task got, as `helped` or as `hurt`."""
    if ids := _existing(write, record_ids):
        write.append("judged", "", {"ids": ids, "helped": helped}, reason)


def end_expired(write: Writing) -> int:
    """Make the records with a past `expires_at` invalid; return their number."""
    rows = write.run("records_expired", now=clock.stamp())
    for row in rows:
        write.append("invalidated", row["id"], {}, "expired")
    return len(rows)


def _row(write: Writing, record_id: str) -> dict[str, object]:
    rows = write.run("record_row", id=record_id)
    if not rows:
        raise UsageError(f"there is no memory record {record_id}; `memory list` shows them")
    return rows[0]


def _existing(write: Writing, record_ids: Iterable[str]) -> list[str]:
    """The ids of the records that exist; the id of a superseded record is replaced by that of its newest version."""
    return list(dict.fromkeys(newest for one in record_ids if (newest := _newest(write, one))))


def _newest(write: Writing, record_id: str) -> str:
    """The id of the newest version of a record; "" if there is no such record."""
    for _ in range(VERSIONS):
        rows = write.run("record_row", id=record_id)
        if not rows or not rows[0]["superseded_by"]:
            return record_id if rows else ""
        record_id = str(rows[0]["superseded_by"])
    return record_id
