"""Builds the tables that are used for searching from the entries of the log; the same entries always give the same
tables.

Each operation of the log has one method in `LogProjection`; the tables that are made from the log are changed only by
applying an entry, except that `schema.py` makes them again.  Writers (`records.py`, `events.py`) decide everything
before they append an entry, so that applying an entry decides nothing.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import orjson

from agent.error_text import named
from agent.errors import MemoryUnavailable
from agent.memory.full_text_index import FullTextIndex
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.memory.base import Entry
    from agent.memory.database import MemoryDatabase
    from agent.memory.terms import Terms

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
APPLIED = "applied"
"""Name of the row in the table `memory_state` that has the number of the last entry of the log that was applied to the
tables."""
UNPURGED = "unpurged"
"""Name of the row in the table `memory_state` that exists while bytes of a forgotten text may remain in memory.db
(`purge.py`); its value is the number of the last entry that forgot a text.
"""


def sha_of(text: str) -> str:
    """The SHA-256 of a text in lower case and with single spaces; texts with the same hash count as equal."""
    return hashlib.sha256(" ".join(text.lower().split()).encode("utf-8", "surrogatepass")).hexdigest()


def day_words(timestamp: str) -> str:
    """The date as terms, like `2023 may 8`, which are indexed together with an event, since people ask by date; ""
    without a date.
    """
    found = _DATE.match(timestamp)
    return f"{found[1]} {MONTHS[int(found[2]) - 1]} {int(found[3])}" if found and 1 <= int(found[2]) <= 12 else ""


class LogProjection:
    """The tables of one memory.db that are used for searching.  Inside a transaction, `apply` is called for each entry,
    and `flush` after the last entry."""

    def __init__(self, database: MemoryDatabase, terms: Terms) -> None:
        self.database = database
        self.terms = terms
        self.events = FullTextIndex(database, "event")
        self.records = FullTextIndex(database, "record")
        self._number = 0
        self._operations: Mapping[str, Callable[[Entry, Mapping[str, Any]], None]] = {
            "event": self._event,
            "created": self._created,
            "merged": self._merged,
            "superseded": self._superseded,
            "invalidated": self._invalidated,
            "promoted": self._promoted,
            "pinned": self._pinned,
            "used": self._used,
            "judged": self._judged,
            "forgotten": self._forgotten,
        }

    def apply(self, entry: Entry) -> None:
        """Apply one entry to the tables. An entry without payload, or with an unknown operation, changes nothing.
        Raises MemoryUnavailable if the payload of the entry is damaged."""
        operation = self._operations.get(entry.operation)
        if operation is not None and entry.payload is not None:
            try:
                operation(entry, entry.payload)
            # each of these errors means that the payload of the log entry is damaged
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                what = f"entry {entry.number} of the log ({entry.operation})"
                log.mistake("memory", what, error)
                raise MemoryUnavailable(f"{what} cannot be used: {named(error)}") from error
        self._number = max(self._number, entry.number)

    def flush(self) -> None:
        """Write the collected changes to the indexes, and store the number of the last applied entry."""
        self.events.flush()
        self.records.flush()
        if self._number:
            self.database.run("state_put", name=APPLIED, value=str(self._number))

    def forget_stale(self) -> None:
        """Drop the collected changes of a transaction that was rolled back."""
        self._number = 0
        self.events.forget_stale()
        self.records.forget_stale()

    def clear(self) -> None:
        """Empty every table that is made from the log."""
        self.events.clear()
        self.records.clear()
        for name in ("events_clear", "records_clear", "sources_clear", "files_clear", "tombstones_clear"):
            self.database.run(name)
        self._number = 0

    def optimize(self) -> None:
        """Merge the segments of the full-text indexes, which removes deleted terms from the file."""
        self.events.optimize()
        self.records.optimize()

    # --- operations ------------------------------------------------------------------------------------------

    def _event(self, entry: Entry, event: Mapping[str, Any]) -> None:
        block = event["block"] or entry.number
        parts = (event["speaker"], event["text"], day_words(event["timestamp"]))
        made = " ".join(term for part in parts for term in self.terms(part))
        self.database.run(
            "event_insert",
            id=entry.number,
            block=block,
            terms=made,
            sha=sha_of(event["text"]),
            metadata=orjson.dumps(event["metadata"]).decode(),
            **{name: event[name] for name in EVENT},
        )
        self.events.add(entry.number, made, block, (event["actor_id"], event["session_id"]))

    def _created(self, entry: Entry, record: Mapping[str, Any]) -> None:
        block = record["block"] or entry.number
        made = " ".join(self.terms("\n".join((record["title"], record["text"], *record["files"]))))
        self.database.run(
            "record_insert",
            key=entry.number,
            id=entry.subject,
            block=block,
            terms=made,
            sha=sha_of(record["text"]),
            created_at=entry.at,
            metadata=orjson.dumps(record["metadata"]).decode(),
            **{name: record[name] for name in RECORD},
        )
        self._sources(entry.subject, record)
        if record["status"] == "active":
            self.records.add(entry.number, made, block, (record["namespace"], record["session_id"]))

    def _sources(self, record_id: str, payload: Mapping[str, Any]) -> None:
        for event_id in payload.get("event_ids", ()):
            self.database.run("source_insert", record_id=record_id, event_id=event_id, source_id="")
        for source_id in payload.get("record_ids", ()):
            self.database.run("source_insert", record_id=record_id, event_id=0, source_id=source_id)
        for path in payload.get("files", ()):
            self.database.run("file_insert", record_id=record_id, path=path)

    def _merged(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self._sources(entry.subject, payload)
        self.database.run("record_merge", id=entry.subject, trust=payload["trust"])

    def _superseded(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self._end_record(entry, "superseded", by := payload.get("by"))
        if by and "helped" in payload:  # entries that earlier versions of this program wrote lack the counts
            names = ("helped", "hurt", "uses", "last_used_at", "pinned")
            self.database.run("record_carry", id=by, **{name: payload[name] for name in names})

    def _invalidated(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        del payload
        self._end_record(entry, "invalid", None)

    def _end_record(self, entry: Entry, status: str, by: str | None) -> None:
        for row in self._row(entry.subject):
            if row["status"] == "active":
                self.records.remove(row["key"], row["block"], (row["namespace"], row["session_id"]))
            self.database.run("record_end", id=entry.subject, status=status, at=entry.at, by=by, reason=entry.reason)

    def _promoted(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        for row in self._row(entry.subject):
            self.database.run("record_promote", id=entry.subject, trust=payload["trust"], reason=entry.reason)
            if row["status"] != "active":
                self.records.add(row["key"], row["terms"], row["block"], (row["namespace"], row["session_id"]))

    def _pinned(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self.database.run("record_pin", id=entry.subject, pinned=int(payload["pinned"]))

    def _used(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        for record_id in payload["ids"]:
            self.database.run("record_use", id=record_id, at=entry.at)

    def _judged(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        del entry
        helped = int(payload["helped"])
        for record_id in payload["ids"]:
            self.database.run("record_judge", id=record_id, helped=helped, hurt=1 - helped)

    def _forgotten(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        for event_id in payload["events"]:
            for row in self.database.run("event_get", id=event_id):
                self.events.remove(event_id, row["block"], (row["actor_id"], row["session_id"]))
            self.database.run("event_delete", id=event_id)
            self.database.run("source_delete_event", event_id=event_id)
        for record_id in payload["records"]:
            for row in self._row(record_id):
                if row["status"] == "active":
                    self.records.remove(row["key"], row["block"], (row["namespace"], row["session_id"]))
                self.database.run("vector_delete", key=row["key"])
            self.database.run("record_delete", id=record_id)
            self.database.run("source_delete_record", id=record_id)
            self.database.run("file_delete_record", id=record_id)
        for sha in payload["tombstones"]:
            self.database.run("tombstone_insert", sha=sha, number=entry.number)
        self.database.run("state_put", name=UNPURGED, value=str(entry.number))

    def _row(self, record_id: str) -> Sequence[dict[str, Any]]:
        return self.database.run("record_row", id=record_id)


EVENT = ("actor_id", "session_id", "timestamp", "role", "speaker", "source", "trust", "text", "client_token")
RECORD = (
    *("namespace", "strategy", "session_id", "title", "text", "timestamp"),
    *("status", "reason", "trust", "pinned", "expires_at"),
)
