"""Selects the standing preferences: those that the briefing of every task gets, even if no term of the issue matches
them.

For example, the preference "Use unittest" has no term in common with the issue "The importer skips the last row", but
applies to this issue too. If a namespace has at most `top_k` preferences of sufficient trust, all these preferences are
standing. If a namespace has more than `top_k` preferences of sufficient trust, at most `top_k` of those that come from
the events of at least SHOWN_BY tasks are standing; a search with the text of the issue may find the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.memory.base import MemoryHit
from agent.memory.full_text_search import as_json
from agent.memory.namespaces import span

if TYPE_CHECKING:
    from agent.memory.base import RetrievalConfig
    from agent.memory.database import MemoryDatabase
    from agent.memory.records import Records

SHOWN_BY = 2
"""If there are more than `top_k` preferences, the minimum number of tasks from the events of which a standing one
comes."""
TRUST = 1
"""Minimum trust of a standing preference, so that text from outside cannot become one."""
TOKENS = 200
"""Maximum number of tokens of all standing preferences of one actor together."""
CONSIDERED = 200
"""Only this number of the newest preferences of a namespace can be standing."""
RELEVANCE = 0.0
"""The relevance of standing preferences, which are recalled without a search."""


def standing_preferences(
    database: MemoryDatabase, records: Records, namespace: str, config: RetrievalConfig
) -> list[MemoryHit]:
    """The standing preferences below `namespace`, at most `config.top_k`.

    Pinned preferences come first. Preferences that are not pinned are ordered by a number, the largest first: tasks
    from the events of which the preference comes, plus tasks that it helped, minus tasks that it hurt. Of preferences
    with equal numbers the newest comes first.
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
