"""Creates memory records, with consolidation, and reads them by id.

A text that was forgotten in this namespace before is not stored. Consolidation compares the text of a new record with
the existing ones of the same namespace. If the text is a duplicate (of an equal text, or of nearly the same text in a
record with at least the trust of the new one), no record is added: the existing record gets the new sources as well. If
the text is no duplicate, the new record supersedes the similar ones, unless they are pinned, are newer or have a higher
trust. A quarantined record, and one that names the records that it supersedes, is compared only with equal texts.
Consolidation neither changes the text of a record nor deletes a record. `record_changes.py` changes existing records.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import UsageError
from agent.memory.base import MemoryRecord
from agent.memory.events import masked, shortened, stamp_of
from agent.memory.full_text_search import as_json
from agent.memory.log import data_of
from agent.memory.log_projection import sha_of
from agent.memory.namespaces import check_namespace, scope, session_of, span
from agent.memory.record_changes import newest_block
from agent.memory.terms import words
from agent.memory.tombstones import record_tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.memory.database import MemoryDatabase
    from agent.memory.full_text_search import FullTextSearch
    from agent.memory.terms import Terms
    from agent.memory.write_transaction import Writing

SIMILAR = 0.8
"""Minimum Jaccard similarity of the words of two texts for one to be a duplicate or a new version of the other."""
NEIGHBOURS = 5
"""Maximum number of existing records of the namespace with which a new record is compared."""
_NEGATIONS = frozenset(
    ("no", "not", "never", "none", "without", "cannot", "don", "doesn", "won", "isn", "aren", "nicht")
)
_NUMBER = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to store; the fields are the arguments of `MemoryStore.create_memory_record`."""

    namespace: str
    text: str
    strategy: str
    title: str
    timestamp: str | None
    trust: int
    event_ids: tuple[int, ...]
    record_ids: tuple[str, ...]
    files: tuple[str, ...]
    metadata: Mapping[str, Any]
    expires_at: str | None
    supersedes: tuple[str, ...]
    quarantine: str
    session_id: str


class Records:
    """Creates records, and reads them by id."""

    def __init__(
        self, database: MemoryDatabase, terms: Terms, search: FullTextSearch, mask: Callable[[str], str], cap: int
    ) -> None:
        self.database = database
        self.terms = terms
        self.search = search
        self.mask = mask
        self.cap = cap

    def create(self, write: Writing, new: NewRecord) -> MemoryRecord:
        """Store a record after consolidation; return the new record, the existing one that it was merged into, or a
        record without id and text, with the status `forgotten`, if the text was forgotten before.

        Raises UsageError for a wrong namespace or trust, an empty text, or a source that does not exist."""
        check_namespace(new.namespace)
        if not 0 <= new.trust <= 3:
            raise UsageError(f"trust {new.trust} is not allowed; allowed are 0 to 3")
        text = shortened(self.mask(new.text)).strip()
        if not text:
            raise UsageError("a memory record needs a text")
        sha = sha_of(text)
        if write.has_forgotten and write.run("tombstone_get", sha=record_tombstone(new.namespace, sha)):
            return MemoryRecord("", new.namespace, new.strategy, "", status="forgotten", reason="forgotten before")
        trust = self._least_trust(write, new)
        sources = {"event_ids": list(new.event_ids), "record_ids": list(new.record_ids), "files": self._files(new)}
        for row in write.run("record_of_sha", sha=sha, namespace=new.namespace):
            write.append("merged", row["id"], {**sources, "trust": trust}, "the same text")
            return self.get(row["id"])
        ends = [one for one in new.supersedes if self._is_active(write, one, new.namespace)]
        if not new.quarantine and not ends:
            for row in self._similar(write, new.namespace, text):
                if _says_the_same(row["text"], text) and row["trust"] >= trust:
                    write.append("merged", row["id"], {**sources, "trust": row["trust"]}, "nearly the same text")
                    return self.get(row["id"])
                if row["trust"] <= trust and row["timestamp"] <= stamp_of(new.timestamp) and not row["pinned"]:
                    ends.append(row["id"])
        record_id = f"mem-{uuid.uuid4().hex[:20]}"
        self._append(write, record_id, new, text, trust, sources)
        for old in ends:
            (row,) = write.run("record_row", id=old)
            carried = {name: row[name] for name in CARRIED}
            write.append("superseded", old, {"by": record_id, **carried}, "a newer record says otherwise")
        self._keep_cap(write, new.namespace, record_id)
        return self.get(record_id)

    def _append(
        self,
        write: Writing,
        record_id: str,
        new: NewRecord,
        text: str,
        trust: int,
        sources: Mapping[str, Any],
    ) -> None:
        session_id = self._session(write, new)
        write.append(
            "created",
            record_id,
            {
                "namespace": new.namespace,
                "strategy": new.strategy,
                "session_id": session_id,
                "block": newest_block(write, new.namespace, session_id),
                "title": shortened(self.mask(new.title)),
                "text": text,
                "timestamp": stamp_of(new.timestamp),
                "status": "quarantined" if new.quarantine else "active",
                "reason": new.quarantine,
                "trust": trust,
                "pinned": 0,
                "expires_at": None if new.expires_at is None else stamp_of(new.expires_at),
                "metadata": masked(new.metadata, self.mask),
                **sources,
            },
        )

    def _files(self, new: NewRecord) -> list[str]:
        return [str(masked(path, self.mask)) for path in new.files]

    def _least_trust(self, write: Writing, new: NewRecord) -> int:
        """The lowest trust among that of the record and those of its sources.  Raises UsageError for a source that does
        not exist."""
        least = new.trust
        for event_id in new.event_ids:
            rows = write.run("event_get", id=event_id)
            if not rows:
                raise UsageError(f"there is no event {event_id}")
            least = min(least, int(rows[0]["trust"]))
        for record_id in new.record_ids:
            rows = write.run("record_row", id=record_id)
            if not rows:
                raise UsageError(f"there is no memory record {record_id}")
            least = min(least, int(rows[0]["trust"]))
        return least

    def _session(self, write: Writing, new: NewRecord) -> str:
        """The session of a record: that of its namespace, else `new.session_id`, else that of its first event."""
        named = session_of(new.namespace) or new.session_id
        if named or not new.event_ids:
            return named
        return str(write.run("event_get", id=new.event_ids[0])[0]["session_id"])

    def _is_active(self, write: Writing, record_id: str, namespace: str) -> bool:
        rows = write.run("record_row", id=record_id)
        return bool(rows) and rows[0]["status"] == "active" and rows[0]["namespace"] == namespace

    def _similar(self, write: Writing, namespace: str, text: str) -> list[dict[str, Any]]:
        """Active records of the namespace with a similarity of at least SIMILAR to the text, most similar first."""
        # the search for similar records must also find those that this transaction added
        write.projection.records.flush()
        asked = self.search.query(self.terms.of_query(text))
        if not asked.known:
            return []
        among = {"first": namespace, "end": f"{namespace}\x01", "min_trust": 0, "now": clock.stamp()}
        keys = as_json(self.search.candidates(asked, 1, **among)[:NEIGHBOURS])
        mine = set(words(text))
        scored = [(similarity(mine, set(words(row["text"]))), row) for row in write.run("record_rows", keys=keys)]
        near = sorted((one for one in scored if one[0] >= SIMILAR), key=lambda one: (-one[0], one[1]["key"]))
        return [row for _, row in near]

    def _keep_cap(self, write: Writing, namespace: str, newest: str) -> None:
        """If there are more than `cap` records below the first two parts of the namespace, make the least useful ones
        invalid, but no pinned one and not the record `newest`."""
        first, end = span(scope(namespace))
        more = int(write.run("record_count", first=first, end=end)[0]["records"]) - self.cap
        if more > 0:
            for row in write.run("record_worst", first=first, end=end, newest=newest, limit=more):
                write.append("invalidated", row["id"], {}, f"more than {self.cap:,} records below {first}")

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, record_id: str) -> MemoryRecord:
        """The record with this id.  Raises UsageError if there is no record with this id."""
        rows = self.database.run("record_row", id=record_id)
        if not rows:
            raise UsageError(f"there is no memory record {record_id}; `memory list` shows them")
        return self.of_rows(rows)[0]

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[MemoryRecord]:
        """The records for rows of the table `memory_records`, with their sources and files."""
        ids = orjson.dumps([row["id"] for row in rows]).decode()
        sources = _by_record(self.database.run("sources_of", ids=ids))
        files = _by_record(self.database.run("files_of", ids=ids))
        return [
            MemoryRecord(
                event_ids=tuple(one["event_id"] for one in sources[row["id"]] if one["event_id"]),
                record_ids=tuple(one["source_id"] for one in sources[row["id"]] if one["source_id"]),
                files=tuple(one["path"] for one in files[row["id"]]),
                pinned=bool(row["pinned"]),
                metadata=data_of(row["metadata"], f"the metadata of record {row['id']}"),
                **{name: row[name] for name in COLUMNS},
            )
            for row in rows
        ]


CARRIED = ("helped", "hurt", "uses", "last_used_at", "pinned")
"""Columns of a superseded record; their values are merged into those of the record that supersedes it."""
COLUMNS = (
    *("id", "namespace", "strategy", "text", "title", "timestamp", "created_at", "status", "reason", "trust"),
    *("session_id", "uses", "last_used_at", "helped", "hurt", "valid_to", "superseded_by", "expires_at"),
)


def _by_record(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, list[Mapping[str, Any]]]:
    """record id → the rows about this record; [] for a record that has no rows."""
    found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["record_id"]].append(row)
    return found


def similarity(one: set[str], other: set[str]) -> float:
    """The Jaccard similarity of two sets of words, 0 for two empty ones."""
    both = len(one | other)
    return len(one & other) / both if both else 0.0


def _says_the_same(old: str, new: str) -> bool:
    """Whether two similar texts mean the same: they differ in no number and no negation, and the words that both
    contain are in the same order."""
    before, after = list(words(old)), list(words(new))
    if any(_NUMBER.search(word) or word in _NEGATIONS for word in set(before) ^ set(after)):
        return False
    both = set(before) & set(after)
    return _only(before, both) == _only(after, both)


def _only(found: Iterable[str], kept: set[str]) -> list[str]:
    return list(dict.fromkeys(word for word in found if word in kept))
