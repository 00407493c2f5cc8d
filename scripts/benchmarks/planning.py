"""Planning a request: p95 with 100 messages in working memory and 1,000 memories, and behind 100,000 messages.

Each of the first plans is made by a planner that has seen nothing yet: it reads, checks and counts all messages, asks
the memory, and plans.  In a task this happens once; each later plan reads what is new.  The others are those of one
task whose history grows to 100,000 messages, in a window of 16,000 tokens, compactions by the program's own means.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine
from benchmarks.figures import at_most, median, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORKING, MEMORIES = 100, 1_000
RESULT = 4_000
ROUNDS = 300
ALLOWED = 100.0  # ms

HISTORY = 100_000  # messages
PART = HISTORY // 10  # messages at the beginning and at the end between which plans are compared
LATE = 1.0  # ms that a plan may take at the end
WINDOW = 16_000
SHORT = 600  # characters of a result
MEMORY = 8.0  # MiB that the process may grow from the first part to the last


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
        times = children.run("planning", "new", place)
    with children.workplace() as place:
        grown = children.run("planning", "history", place)
    early, late = grown["early"], grown["late"]
    return {
        "planning.p95": at_most(
            percentile(times, 0.95),
            ALLOWED,
            1.0,
            "ms",
            f"p95 of a plan from nothing, {WORKING} messages, {MEMORIES} memories, against the {ALLOWED:g} ms allowed",
            median_ms=round(median(times), 2),
        ),
        "planning.history": at_most(
            percentile(late, 0.95), LATE, 1.0, "ms", f"p95 of a plan behind {HISTORY - PART:,} messages and more"
        ),
        "planning.growth": at_most(
            median(late), median(early), 1.3, "ms", f"median of those plans against the first {PART // 2:,}"
        ),
        "planning.memory": at_most(
            grown["memory"] / machine.MIB, MEMORY, 1.0, "MiB", f"growth of RSS from {PART:,} messages to {HISTORY:,}"
        ),
    }


def part(place: Path) -> None:
    """Plan again and again."""
    from agent.context import MessageStore
    from agent.window import ContextAssembler
    from agent.window.budgets import Shares
    from agent.window.limits import WindowLimits
    from agent.window.recall_layers import recall_memories
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
    limits = WindowLimits.from_settings(chosen, None, provider="openai", model=chosen.provider().model, exact=False)
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        planner = ContextAssembler(store, limits, store.counter)
        query = "each price is rounded before they are added to the sum of the order"
        found = recall_memories({"episodes": memory}, query, 5, Shares.for_window(limits).memory, store.counter.count)
        plan = planner.plan()
        times.append((time.perf_counter() - started) * 1000)
        assert plan.metadata["working_memory_count"] == WORKING
        assert found.count
    print(json.dumps(times))


class Stores:
    """What a window needs of a task."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def get_message_store(self) -> Any:
        """The conversation."""
        return self.store

    def get_summary_store(self) -> Any:
        """Its summaries."""
        return self.store.summaries


def history(place: Path) -> None:
    """Append, plan and compact as a task does, until there are as many messages as that."""
    from agent.context import MessageStore, ToolStore
    from agent.llm import make_client
    from agent.window import make_window
    from benchmarks import texts
    from benchmarks.settings import settings

    chosen = settings(place, window=WINDOW, context_storage={"base_dir": str(place), "strategy": "sliding_window"})
    store, tools = MessageStore(place, chosen), ToolStore(place)
    client = make_client(chosen, store, place)
    window = make_window(chosen, Stores(store), client)
    store.add_message("system", "You are a careful coding agent.")
    store.add_message("user", "Mend the sum: each price is rounded before they are added.")
    contents = texts.of_size(SHORT)
    times: dict[str, list[float]] = {"early": [], "late": []}
    memory = 0
    while (number := store.last()["seq"]) < HISTORY:
        started = time.perf_counter()
        plan = window.plan()
        took = (time.perf_counter() - started) * 1000
        assert plan.tokens <= plan.limit
        if number < PART or number > HISTORY - PART:
            times["early" if number < PART else "late"].append(took)
        elif not memory:
            memory = resident()
        arguments = {"command": f"make part{number}"}
        call = {"id": f"call_{number}", "name": "run_command", "arguments": arguments}
        store.add_message("assistant", "I look at the next part.", tool_calls=[call])
        text = next(contents)
        seq = tools.add_tool_call("run_command", arguments, text, "success", 1)
        store.add_message("tool", text, "run_command", tool_call_id=call["id"], tool_seq=seq)
        if window.needs_compaction():
            window.compact()
    print(json.dumps({**times, "memory": max(0, resident() - memory)}))


def resident() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    {"new": part, "history": history}[sys.argv[1]](Path(sys.argv[2]))
