"""Makes the pages of long-term memory: figures, the list of records, the search, and one record with its lineage.

memory.db is only read. The search and the list get their results from `MemoryStore`, which tasks use too.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

from agent.dashboard.conversation import LONGEST_TEXT, cut
from agent.memory.base import STATUSES, STRATEGIES, TRUST
from agent.wiring.memory import open_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.memory import MemoryRecord, MemoryStore
    from agent.values import Json

PAGE = 50
BUSY_SECONDS = 0.5
SHOWN_STATUSES = STATUSES[:-1]


def matching_records(settings: Settings, given: Mapping[str, str]) -> Json:
    """The memory records that match the parameters of the address: `text` is a search, `namespace` filters; without
    `text`, `strategy` and `status` filter too, and `after` is the id of the last record of the previous page. Raises
    MemoryUnavailable, or UsageError for a filter that is not allowed or an unknown `after`."""
    text, after = given.get("text", "").strip()[:500], given.get("after") or None
    namespace = given.get("namespace") or "/"
    strategy, status = given.get("strategy") or None, given.get("status") or None
    view: Json = {
        "page": "memory",
        "problems": [],
        "enabled": settings.memory.enabled,
        "exists": False,
        "query": {"text": text, "namespace": namespace, "strategy": strategy or "", "status": status or ""},
        "strategies": list(STRATEGIES),
        "statuses": list(SHOWN_STATUSES),
        "records": [],
        "next": "",
    }
    with closing(_open(settings)) as store:
        if not store.path.exists():
            return view
        figures = store.figures()
        view |= {"exists": True, "events": figures["events"], "jobs": figures["jobs"], "bytes": figures["bytes"]}
        view["counts"] = figures["records"]
        if text:
            hits = store.retrieve_memory_records(text, namespace, top_k=PAGE, relevance_score=0.0)
            view["records"] = [{**_line(hit.record), "score": round(hit.score, 3)} for hit in hits]
        else:
            if after is not None:
                store.get_memory_record(after)  # raises an error for an id that no record has
            found = store.list_memory_records(namespace, strategy=strategy, status=status, limit=PAGE + 1, after=after)
            view["records"] = [_line(record) for record in found[:PAGE]]
            view["next"] = found[PAGE - 1].id if len(found) > PAGE else ""
    return view


def record(settings: Settings, record_id: str) -> Json | None:
    """One memory record with the events from which it was extracted, and its history; None if there is no such record.
    Raises MemoryUnavailable."""
    from agent.errors import UsageError

    with closing(_open(settings)) as store:
        if not store.path.exists():
            return None
        try:
            found = store.get_memory_record(record_id)
        except UsageError:
            return None
        events = store.get_events(found.event_ids)
        history = store.history_of(record_id)
    return {
        "page": "memory",
        "problems": [],
        "record": {**asdict(found), **cut(found.text, LONGEST_TEXT), "trust_name": TRUST.get(found.trust, "")},
        "events": [{**asdict(one), "text": cut(one.text, 2000)["text"]} for one in events],
        "history": [
            {"at": one.at, "operation": one.operation, "who": one.who, "reason": one.reason, "number": one.number}
            for one in history
        ],
    }


def _line(found: MemoryRecord) -> Json:
    names = ("id", "namespace", "strategy", "status", "title", "timestamp", "pinned", "uses", "helped", "hurt", "trust")
    return {**{name: getattr(found, name) for name in names}, "text": cut(found.text, 400)["text"]}


def _open(settings: Settings) -> MemoryStore:
    store = open_memory(settings, "dashboard")
    store.busy_timeout = BUSY_SECONDS
    return store
