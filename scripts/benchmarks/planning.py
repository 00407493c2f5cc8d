"""Planning a request: p95 with 100 messages in working memory and 1,000 memories.

Each plan is made by a planner that has seen nothing yet: it reads, checks and counts all messages, asks the memory, and
plans.  In a task this happens once; each later plan reads what is new.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children
from benchmarks.figures import at_most, median, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORKING, MEMORIES = 100, 1_000
RESULT = 4_000
ROUNDS = 300
ALLOWED = 100.0  # ms


class InMemory:
    """Records ranked by the words that they share with the query."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.records = [(frozenset(str(one["content"]).lower().split()), one) for one in records]

    def recall(self, query: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most `limit`, most relevant first."""
        words = frozenset(query.lower().split())
        ranked = [{**one, "relevance": len(words & has) / max(1, len(words))} for has, one in self.records]
        return sorted(ranked, key=lambda one: -one["relevance"])[:limit]


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        times = children.run("planning", place)
    return {
        "planning.p95": at_most(
            percentile(times, 0.95),
            ALLOWED,
            1.0,
            "ms",
            f"p95 of a plan from nothing, {WORKING} messages, {MEMORIES} memories, against the {ALLOWED:g} ms allowed",
            median_ms=round(median(times), 2),
        )
    }


def part(place: Path) -> None:
    """Plan again and again."""
    from agent.context import MessageStore
    from agent.window import ContextAssembler
    from agent.window.limits import Limits
    from benchmarks import texts
    from benchmarks.settings import settings

    chosen = settings(place)
    store = MessageStore(place, chosen)
    store.add_message("system", "You are a careful coding agent.")
    store.add_message("user", "Mend the sum: each price is rounded before they are added.")
    contents = texts.of_size(RESULT)
    for number in range(WORKING // 2):
        call = {"id": f"call_{number}", "name": "run_command", "arguments": {"command": f"make {number}"}}
        store.add_message("assistant", "I look at the next part.", tool_calls=[call])
        store.add_message("tool", next(contents), tool_name="run_command")
    source = texts.source().splitlines()
    memory = InMemory([{"content": " ".join(source[at : at + 3]), "source": f"episode {at}"} for at in range(MEMORIES)])
    limits = Limits.of(chosen, None, provider="openai", model=chosen.provider().model, exact=False)
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        planner = ContextAssembler(store, limits, store.counter, memory=memory)
        assert planner.recall("each price is rounded before they are added to the sum of the order")
        plan = planner.plan()
        times.append((time.perf_counter() - started) * 1000)
        assert plan.metadata["working_memory_count"] == WORKING
        assert plan.metadata["semantic_memory_count"] > 0
    print(json.dumps(times))


if __name__ == "__main__":
    part(Path(sys.argv[1]))
