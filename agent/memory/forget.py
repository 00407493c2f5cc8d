"""Forgets events and records: removes them from every table and from the log.

The selection of what to forget consists of the events and records that match the selector, and of every record with
only forgotten sources.  Of a forgotten text two things remain: a hash, by which the same text is refused if it is
stored again, and the log entry without the text.  After a text is forgotten, `purge.py` removes the deleted bytes from
memory.db and checks that the bytes are gone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import UsageError
from agent.memory.full_text_search import as_json
from agent.memory.namespaces import actor_in, session_of, span
from agent.memory.tombstones import event_tombstone, record_tombstone, token_tombstone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.memory.base import Selector
    from agent.memory.database import MemoryDatabase
    from agent.memory.write_transaction import Writing

FORGOTTEN = "forgotten"
"""Name of the log operation that forgets events and records."""
PAGE = 500


@dataclass(slots=True)
class ForgetSelection:
    """Events and records to forget: the numbers of the events, the ids of the records, and the texts and sessions of
    both; `purge.py` checks afterwards that memory.db and its exports no longer contain the texts."""

    events: set[int] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)


def select(database: MemoryDatabase, selector: Selector) -> ForgetSelection:
    """Select the events and records that match `selector`, and every record that was made only from selected ones.
    Raises UsageError if the selector is empty, or names an id that does not exist."""
    if not (selector.ids or selector.session or selector.actor or selector.namespace or selector.match):
        raise UsageError("nothing to forget is named; name ids, a session, an actor, a namespace or a text")
    found = ForgetSelection()
    _select_ids(database, selector.ids, found)
    for row in _rows(database, "events_page", "id"):
        if _fits_event(row, selector):
            found.events.add(row["id"])
    for row in _rows(database, "records_page", "key"):
        if _fits_record(row, selector):
            found.records.add(row["id"])
    _close(database, found)
    found.texts += texts_of(database, found.events, found.records)
    found.sessions |= {row["session_id"] for one in found.events for row in database.run("event_get", id=one)}
    found.sessions |= {row["session_id"] for one in found.records for row in database.run("record_row", id=one)}
    found.sessions |= {selector.session or ""}
    return found


def named_sessions_and_actors(database: MemoryDatabase) -> tuple[set[str], set[str]]:
    """The sessions and the actors that events, records and the history of commits name."""
    sessions, actors = set[str](), {str(row["actor_id"]) for row in database.run("history_actors")}
    for row in _rows(database, "events_page", "id"):
        sessions.add(row["session_id"])
        actors.add(row["actor_id"])
    for row in _rows(database, "records_page", "key"):
        sessions.add(session_of(row["namespace"]))
        actors.add(actor_in(row["namespace"]))
    return sessions - {""}, actors - {""}


def _select_ids(database: MemoryDatabase, ids: Iterable[str], found: ForgetSelection) -> None:
    for one in ids:
        if one.isdecimal() and database.run("event_get", id=int(one)):
            found.events.add(int(one))
        elif database.run("record_row", id=one):
            found.records.add(one)
        else:
            raise UsageError(f"there is no memory record or event {one}")


def _rows(database: MemoryDatabase, name: str, key: str) -> Iterator[dict[str, Any]]:
    after = 0
    while rows := database.run(name, after=after, limit=PAGE):
        yield from rows
        after = rows[-1][key]


def _fits_event(row: dict[str, Any], selector: Selector) -> bool:
    return (
        selector.session == row["session_id"]
        or selector.actor == row["actor_id"]
        or _contains(selector.match, row["text"], row["source"], row["metadata"], row["speaker"])
    )


def _fits_record(row: dict[str, Any], selector: Selector) -> bool:
    if selector.namespace is not None:
        first, end = span(selector.namespace)
        if first <= row["namespace"] < end:
            return True
    return (
        (selector.session is not None and session_of(row["namespace"]) == selector.session)
        or (selector.actor is not None and f"/{selector.actor}/" in row["namespace"])
        or _contains(selector.match, row["text"], row["title"], row["metadata"], row["files"] or "")
    )


def _contains(match: str | None, *texts: str) -> bool:
    return bool(match) and any(match.casefold() in text.casefold() for text in texts if match)


def _close(database: MemoryDatabase, found: ForgetSelection) -> None:
    """Add records that have all their sources in the selection, until no such record is left."""
    sources: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in database.run("sources_all"):
        sources[row["record_id"]].append(row)
    while True:
        lost = {
            record_id
            for record_id, rows in sources.items()
            if all(row["event_id"] in found.events or row["source_id"] in found.records for row in rows)
        } - found.records
        if not lost:
            return
        found.records |= lost


def forget(write: Writing, found: ForgetSelection, reason: str, *, commits: Sequence[str], actor: str | None) -> None:
    """Remove the selected events and records from the log and from the tables; the caller must have begun a
    transaction. `commits` and `actor` describe the removed part of the history of commits; other hosts read them from
    the log and remove the same part."""
    tombstones = []
    for event_id in sorted(found.events):
        (row,) = write.run("event_get", id=event_id)
        tombstones.append(event_tombstone(row["actor_id"], row["session_id"], row["sha"]))
        if row["client_token"] is not None:
            tombstones.append(token_tombstone(row["client_token"]))
    for record_id in sorted(found.records):
        (row,) = write.run("record_row", id=record_id)
        tombstones.append(record_tombstone(row["namespace"], row["sha"]))
    numbers = entries_of(write.projection.database, found.events, found.records)
    payload: dict[str, Any] = {
        "events": sorted(found.events),
        "records": sorted(found.records),
        "tombstones": tombstones,
        "commits": list(commits),
        "actor": actor,
    }
    write.append(FORGOTTEN, "", payload, reason)
    write.log.blank(numbers)


def entries_of(database: MemoryDatabase, events: Iterable[int], records: Iterable[str]) -> list[int]:
    """The numbers of the log entries that contain texts of these events and records."""
    entries = (row["number"] for one in sorted(records) for row in database.run("log_of_subject", subject=one))
    return [*sorted(events), *entries]


def texts_of(database: MemoryDatabase, events: Iterable[int], records: Iterable[str]) -> Iterator[str]:
    """The texts of the events and records with these numbers and ids."""
    for event_id in events:
        for row in database.run("event_get", id=event_id):
            yield from (row["text"], row["source"], row["metadata"])
    for row in database.run("records_of", ids=as_json(records)):
        yield from (row["text"], row["title"], row["metadata"], row["files"] or "")
