"""Imports entries that only memory.db has into the shared log: those of a host that had a memory of its own, or those
that are missing since the shared log was restored from a backup.

The entries with which both logs begin stay unchanged.  If the shared log has no other entries, the other entries of
memory.db are appended to it with their numbers.  If both logs have entries that the other lacks, those of memory.db get
new numbers: an event with a known `client_token` is not added again, a record with the same text in its namespace is
merged, and a text that was forgotten in either log stays forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.memory.events import append_event, event_of_token, forgotten_by
from agent.memory.forget import entries_of
from agent.memory.log import entry_of
from agent.memory.log_projection import sha_of
from agent.memory.maintenance import apply_entries
from agent.memory.record_changes import newest_block
from agent.memory.tombstones import record_tombstone
from agent.memory.write_transaction import Writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.memory.base import Entry
    from agent.memory.log_projection import LogProjection
    from agent.memory.shared_entries import SharedEntries

PAGE = 500
ABOUT_A_RECORD = frozenset(("merged", "superseded", "invalidated", "promoted", "pinned"))
"""Operations that change an existing record, of which the id is the subject of the entry."""


class Join:
    """One import of entries from memory.db into the shared log, in one transaction of memory.db and one of
    PostgreSQL."""

    def __init__(self, log: SharedEntries, projection: LogProjection) -> None:
        self.log = log
        self.projection = projection
        self.local = log.local
        self.common = 0
        """The last number up to which memory.db and the shared log have the same entries."""
        self.database = log.local.database
        self.events: dict[int, int] = {}
        """Number of an imported event in memory.db → its number in the shared log, 0 if it was forgotten there."""
        self.records: dict[str, str] = {}
        """Id of a record in memory.db → its id in the shared log, if it was merged; "" if it was left out."""
        self.known: dict[tuple[str, ...], int] = {}
        """Key of an entry (`_key`) → its number in the shared log."""

    def run(self) -> int:
        """Import the entries that only memory.db has; return the number of imported entries."""
        try:
            with self.local.transaction(), self.log.locked():
                last = int(self.log.run("shared_last")[0]["number"])
                self.common = self._common(min(last, self.local.last()))
                found = self._append_as_they_are() if self.common == last else self._append_anew()
                self._blank_what_was_forgotten()
                return found
        except BaseException:
            self.projection.forget_stale()
            raise

    def _common(self, most: int) -> int:
        """The last number up to which memory.db and the shared log have the same entries, found by binary search: after
        the first difference all entries differ.
        """
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.log.is_common(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _blank_what_was_forgotten(self) -> None:
        """Remove from the shared log the texts that memory.db has forgotten: a shared log that was restored from an
        older backup has them again."""
        if numbers := [row["number"] for row in self.database.run("log_blanked", most=self.common)]:
            self.log.blank(numbers)

    def _append_as_they_are(self) -> int:
        """Append the entries that only memory.db has to the shared log under the same numbers, so that the tables of
        memory.db need no change."""
        found = 0
        for entry in self._pages(self.common):
            self.log.add(entry)
            found += 1
        self.log.send()
        return found

    def _append_anew(self) -> int:
        """Rebuild the tables of memory.db from the shared log, and append the entries that only memory.db had under new
        numbers."""
        self.database.run("log_set_aside", after=self.common)
        self.log.refill()
        projection = self.projection
        projection.clear()
        self.database.run("vectors_clear")  # their keys may now be keys of other records, so all vectors are removed
        apply_entries(self.local, projection, 0)
        for entry in self._pages(self.common):
            self.known[_key(entry)] = entry.number
        write, found = Writing(self.log, projection, "import"), 0
        for entry in self._aside():
            if entry.payload is not None and self._append(write, entry, entry.payload):
                found += 1
        projection.flush()
        self.database.run("log_drop_aside")
        self.log.send()
        return found

    def _pages(self, after: int) -> Iterator[Entry]:
        while page := self.local.entries(after, PAGE):
            yield from page
            after = page[-1].number

    def _aside(self) -> Iterator[Entry]:
        """The log entries to import, in their order; their numbers were made negative to set the entries aside."""
        below = 0
        while rows := self.database.run("log_aside", below=below, limit=PAGE):
            yield from map(entry_of, rows)
            below = int(rows[-1]["number"])

    # --- one entry -------------------------------------------------------------------------------------------

    def _append(self, write: Writing, entry: Entry, payload: Mapping[str, Any]) -> bool:
        """Append one entry, with the ids that its subject and payload have in the shared log; return False if the
        shared log does not need the entry."""
        # the shared log has the same entry: from a host with a copy of this memory.db, or from an import that was
        # interrupted
        if number := self.known.get(_key(entry)):
            self.events[-entry.number] = number
            return False
        if entry.operation == "event":
            return self._append_event(write, entry, payload)
        if entry.operation == "created":
            return self._append_record(write, entry, payload)
        is_about_a_record = entry.operation in ABOUT_A_RECORD
        subject = self.records.get(entry.subject, entry.subject) if is_about_a_record else entry.subject
        changed = self._translated(entry.operation, payload)
        if changed is None or (is_about_a_record and not self._is_record(subject)):
            return False
        numbers = entries_of(self.database, changed["events"], changed["records"]) if "tombstones" in changed else []
        self._apply(write, entry, entry.operation, subject, changed)
        if numbers:
            self.log.blank(numbers)
        return True

    def _append_event(self, write: Writing, entry: Entry, payload: Mapping[str, Any]) -> bool:
        self.events[-entry.number] = 0
        if write.has_forgotten and forgotten_by(write, payload):
            return False
        number = event_of_token(write, payload["client_token"])
        is_new = number == 0
        if is_new:
            number = append_event(write, payload, at=entry.at, who=entry.who)
        self.events[-entry.number] = number
        return is_new

    def _append_record(self, write: Writing, entry: Entry, payload: Mapping[str, Any]) -> bool:
        namespace, sha = payload["namespace"], sha_of(payload["text"])
        made = {**payload, **self._sources(payload)}
        if write.run("tombstone_get", sha=record_tombstone(namespace, sha)):
            self.records[entry.subject] = ""
            return False
        for row in write.run("record_of_sha", sha=sha, namespace=namespace):
            self.records[entry.subject] = str(row["id"])
            if (entry.at, "merged", entry.who, "", "") in self.known:
                return False
            names = ("event_ids", "record_ids", "files", "trust")
            self._apply(write, entry, "merged", row["id"], {name: made[name] for name in names})
            return True
        made["block"] = newest_block(write, namespace, made["session_id"])
        self._apply(write, entry, "created", entry.subject, made)
        return True

    def _apply(self, write: Writing, entry: Entry, operation: str, subject: str, payload: Mapping[str, Any]) -> None:
        write.append(operation, subject, payload, entry.reason, at=entry.at, who=entry.who)

    def _translated(self, operation: str, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The payload with the ids that events and records have in the shared log; None if the entry would have no
        effect in the shared log."""
        if operation in ("invalidated", "promoted", "pinned"):
            return payload
        if operation == "merged":
            return {**payload, **self._sources(payload)}
        if operation == "superseded":
            return {**payload, "by": next(iter(self._ids([payload["by"]])), None)}
        if operation in ("used", "judged"):
            ids = self._ids(payload["ids"])
            return {**payload, "ids": ids} if ids else None
        # an entry about a removal names an event or record only if the shared log has it: forgotten texts that only
        # this host had are not imported
        if operation == "forgotten":
            events = [one for one in payload["events"] if one <= self.common]
            return {**payload, "events": events, "records": self._ids(payload["records"])}
        return None

    def _sources(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        events = (self.events.get(one, one if one <= self.common else 0) for one in payload.get("event_ids", ()))
        return {
            "event_ids": list(dict.fromkeys(one for one in events if one)),
            "record_ids": self._ids(payload.get("record_ids", ())),
        }

    def _ids(self, ids: Iterable[str]) -> list[str]:
        """The ids that these records have in the shared log; a record that the shared log does not have is left out."""
        found = dict.fromkeys(self.records.get(one, one) for one in ids)
        return [one for one in found if self._is_record(one)]

    def _is_record(self, record_id: str) -> bool:
        return bool(record_id) and bool(self.database.run("record_row", id=record_id))


def _key(entry: Entry) -> tuple[str, ...]:
    """The values by which an entry is recognised in both logs, since its number may differ."""
    text = str((entry.payload or {}).get("text") or "")
    return (entry.at, entry.operation, entry.who, entry.subject if text else "", sha_of(text) if text else "")
