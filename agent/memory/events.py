"""Events of a session (comments, plans, failed commands, outcomes): storing them, and the search in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import UsageError
from agent.memory import ranking
from agent.memory.base import EventHit, NewEvent
from agent.memory.full_text_index import AFTER, BEFORE, BLOCK
from agent.memory.full_text_search import as_json
from agent.memory.log_projection import sha_of
from agent.memory.namespaces import check_name
from agent.memory.terms import words
from agent.memory.tombstones import event_tombstone, token_tombstone
from agent.security.terminal import mark_terminal_controls
from agent.store.storable_text import fit_json, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.memory.database import MemoryDatabase
    from agent.memory.full_text_search import FullTextSearch, SearchQuery
    from agent.memory.terms import Terms
    from agent.memory.write_transaction import Writing

ROLES = frozenset(("user", "assistant", "tool", "system", "other", "USER", "ASSISTANT", "TOOL", "OTHER"))
LONGEST = 32_000
"""Maximum number of characters of the text of an event.  Only the beginning and the end of a longer text of an event
are stored."""
LONGEST_QUERY = 10_000
"""Maximum number of characters of a query for events; the rest of the query is ignored."""
MOST_COVERED = 100
"""Maximum number of events for which the share of the query that they cover is computed, unless `top_k` is more."""
_NAMED = re.compile(r"\s*([A-Z][\w.-]{1,30}(?: [A-Z][\w.-]{1,30})?): ")


def add_event(write: Writing, event: NewEvent, mask: Callable[[str], str]) -> int:
    """Append an event and return its number.

    An event with a `client_token` that is already stored is not stored again: the number of the stored event is
    returned. An event that was removed by `memory forget` before is not stored again: the number of the log entry of
    that removal is returned. Raises UsageError for an actor, session, trust or timestamp that is not allowed.
    """
    check_name(event.actor_id, "actor")
    check_name(event.session_id, "session")
    if not 0 <= event.trust <= 3:
        raise UsageError(f"trust {event.trust} is not allowed; allowed are 0 to 3")
    text = shortened(mask(event.text))
    if number := event_of_token(write, event.client_token):
        return number
    payload = {
        "actor_id": event.actor_id,
        "session_id": event.session_id,
        "timestamp": stamp_of(event.timestamp),
        "role": masked(event.role, mask),
        "speaker": masked(speaker_of(event), mask),
        "source": masked(event.source, mask),
        "trust": event.trust,
        "text": text,
        "metadata": masked(event.metadata, mask),
        "client_token": event.client_token,
    }
    if write.has_forgotten and (number := forgotten_by(write, payload)):
        return number
    return append_event(write, payload)


def append_event(write: Writing, payload: Mapping[str, Any], *, at: str | None = None, who: str | None = None) -> int:
    """Append an event that memory does not have yet; return its number. `at` defaults to the present time, `who` to the
    writer of the transaction.
    """
    place = payload["actor_id"], payload["session_id"]
    block, events = _newest_block(write, place)
    made = {**payload, "block": block if events < BLOCK else 0}
    entry = write.append("event", place[1], made, at=at, who=who)
    write.blocks[place] = (block, events + 1) if events < BLOCK and block else (entry.number, 1)
    return entry.number


def event_of_token(write: Writing, client_token: str | None) -> int:
    """The number of the event that has this `client_token`, 0 for none."""
    if client_token is None:
        return 0
    return next((int(row["id"]) for row in write.run("event_of_token", client_token=client_token)), 0)


def forgotten_by(write: Writing, payload: Mapping[str, Any]) -> int:
    """The number of the log entry by which the event in `payload` was forgotten, 0 if it was not forgotten."""
    hashes = [event_tombstone(payload["actor_id"], payload["session_id"], sha_of(payload["text"]))]
    if payload["client_token"] is not None:
        hashes.append(token_tombstone(payload["client_token"]))
    return next((int(row["number"]) for sha in hashes for row in write.run("tombstone_get", sha=sha)), 0)


def _newest_block(write: Writing, place: tuple[str, str]) -> tuple[int, int]:
    """The number of the newest block (a document of the index) of the session, and the number of events in it; (0, 0)
    if the session has no block."""
    if place not in write.blocks:
        found = write.run("event_block", actor_id=place[0], session_id=place[1])
        write.blocks[place] = (int(found[0]["block"]), int(found[0]["events"])) if found else (0, 0)
    return write.blocks[place]


def shortened(text: str) -> str:
    """The text of an event as it is stored: only beginning and end if it is longer than LONGEST, without lone
    surrogates, and without characters that are unsafe on a terminal, where people read memory.db with sqlite3."""
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return mark_terminal_controls(replace_surrogates(text))


def masked(value: Any, mask: Callable[[str], str]) -> Any:
    """The value as JSON data; every text in it is masked, and safe on a terminal."""
    if isinstance(value, str):
        return mark_terminal_controls(replace_surrogates(mask(value)))
    if isinstance(value, Mapping):
        return {masked(str(key), mask): masked(one, mask) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked(one, mask) for one in value]
    return fit_json(value) if value is None or isinstance(value, bool | int | float) else masked(str(value), mask)


def stamp_of(timestamp: Any) -> str:
    """A time in the format of `clock.stamp`; None stands for the present time. Raises UsageError if `timestamp` is not
    a time.
    """
    if timestamp is None:
        return clock.stamp()
    try:
        if isinstance(timestamp, str):
            return clock.format_stamp(clock.parse(timestamp))
        return clock.format_stamp(clock.parse(timestamp.isoformat()))
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{timestamp!r} is no time; allowed is ISO 8601 like 2026-11-29T09:15:00Z") from error


def speaker_of(event: NewEvent) -> str:
    """The name of the speaker: `speaker` or `author` of the metadata, else a role that is a name, else `Name:` at the
    beginning of the text, else ""."""
    for name in ("speaker", "author"):
        if isinstance(found := event.metadata.get(name), str) and found:
            return found
    if event.role not in ROLES:
        return event.role
    named = _NAMED.match(event.text)
    return named[1] if named else ""


class EventSearch:
    """The search in the events of an actor."""

    def __init__(self, database: MemoryDatabase, terms: Terms, search: FullTextSearch) -> None:
        self.database = database
        self.terms = terms
        self.search = search

    def __call__(
        self, query: str, actor_id: str, *, top_k: int, session_id: str | None, before: str | None
    ) -> list[EventHit]:
        text = query[:LONGEST_QUERY]
        asked = self.search.query(self.terms.of_query(text))
        if not asked.known:
            return []
        before = None if before is None else stamp_of(before)
        found = self.search.candidates(asked, top_k, actor_id=actor_id, session_id=session_id, before=before)
        # The AFTER events before each candidate of the search and the BEFORE events after it get a score too, because
        # an event is also scored together with its neighbours, such as the candidate.
        near = {one for _, one in self.search.around(found, before=AFTER, after=BEFORE)}
        places = self.database.run("event_places", ids=as_json({*found, *near}), before=before)
        scores = self.search.scores(asked, {row["id"]: row["block"] for row in places})
        names = set(words(text))
        named = {row["id"]: ranking.SPEAKER for row in places if names & set(words(row["speaker"]))}
        ranked = ranking.relevance(scores, named)
        best = sorted(ranked, key=lambda key: (-ranked[key], key))[: max(MOST_COVERED, top_k)]
        covered = self._coverage(asked, best)
        best = sorted(best, key=lambda key: (-ranked[key] * covered[key], key))[:top_k]
        rows = {row["id"]: row for row in self.database.run("event_rows", ids=as_json(best))}
        return [hit_of(rows[key], ranked[key] * covered[key]) for key in best]

    def _coverage(self, asked: SearchQuery, keys: Sequence[int]) -> dict[int, float]:
        """key of an event → share of the query that the event together with its neighbours contains, 0 to 1."""
        around = self.search.around(keys)
        needed = {*keys, *(one for _, one in around)}
        terms = {row["id"]: row["terms"].split(" ") for row in self.database.run("event_terms", ids=as_json(needed))}
        windows = {key: set(terms[key]) for key in keys}
        for key, neighbour in around:
            windows[key].update(terms[neighbour])
        coverage = self.search.coverage(asked, self.search.total())
        return {key: coverage(windows[key]) for key in keys}


def hit_of(row: Mapping[str, Any], score: float) -> EventHit:
    """Make the EventHit for a row of an event and its relevance."""
    return EventHit(
        event_id=row["id"],
        text=row["text"],
        score=score,
        session_id=row["session_id"],
        timestamp=row["timestamp"],
        role=row["role"],
        source=row["source"],
        trust=row["trust"],
    )
