"""Standing preferences: those that a briefing has for every task, also if no term of the issue leads to them.

"Use unittest" has no term in common with "The importer skips the last row", and is meant for it too.  Few preferences
are all standing.  Of many, those are that several tasks have shown; the others need a term of the issue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.memory.base import MemoryHit
from agent.memory.context_search import as_json
from agent.memory.namespaces import span

if TYPE_CHECKING:
    from agent.memory.base import RetrievalConfig
    from agent.memory.database import MemoryDatabase
    from agent.memory.records import Records

SHOWN_BY = 2
"""Number of tasks that have shown a preference which is standing among many."""
TRUST = 1
"""Minimum trust: a text from outside is no preference."""
TOKENS = 200
"""Maximum number of tokens of standing preferences."""
CONSIDERED = 200
"""Maximum number of preferences, the newest of a namespace, among which the standing ones are searched."""
RELEVANCE = 0.0
"""Their relevance: no term of the query has led to them."""


def standing_preferences(
    database: MemoryDatabase, records: Records, namespace: str, config: RetrievalConfig
) -> list[MemoryHit]:
    """The standing preferences below `namespace`, at most `config.top_k`.

    Pinned ones come first, then by support: the tasks that have shown one, and the outcomes of tasks that got it.
    """
    first, end = span(namespace)
    trust = max(TRUST, config.min_trust)
    rows = database.run(
        "preferences_by_support", first=first, end=end, now=clock.stamp(), min_trust=trust, most=CONSIDERED
    )
    if len(rows) > config.top_k:
        rows = [row for row in rows if row["sessions"] >= SHOWN_BY]
    keys = [row["key"] for row in rows[: config.top_k]]
    found = {row["key"]: row for row in database.run("record_rows", keys=as_json(keys))}
    return [MemoryHit(record, RELEVANCE) for record in records.of_rows([found[key] for key in keys])]
