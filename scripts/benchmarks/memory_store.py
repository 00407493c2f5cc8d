"""Long-term memory: the import of events, retrieval among 50,000 records, the history of 20,000 commits, RSS.

Words are drawn so that the one of rank r occurs in proportion to 1 / (100 + r), as content words do in English.  Each
part is a process of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine
from benchmarks.figures import at_most, median, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS, RECORDS, COMMITS, NEW = 100_000, 50_000, 20_000, 20
WORDS = 30_000
LENGTH = 40  # words of a text
SESSION = 40  # texts of a session
QUERIES = 200
ACTORS = 5
RECALL = 50.0  # ms
IMPORT, RETRIEVAL, HISTORY, AGAIN, MEMORY = 60.0, 20.0, 20.0, 1.0, 8.0  # s, ms, s, s, MiB


def measure() -> dict[str, Any]:
    with children.workplace(needed=2 << 30) as place:
        machine.say(f"{EVENTS:,} events")
        imported = children.run("memory_store", "events", place)
        machine.say(f"{RECORDS:,} records")
        children.run("memory_store", "records", place)
        machine.say(f"{QUERIES} queries")
        asked = children.run("memory_store", "queries", place)
        memory = children.run("memory_store", "memory", place)
    with children.workplace(needed=1 << 30) as place:
        machine.say(f"{COMMITS:,} commits")
        history = children.run("memory_store", "history", place)
        machine.say(f"recall among {RECORDS:,} records and {COMMITS:,} commits")
        children.run("memory_store", "records", place)
        recalled = children.run("memory_store", "recall", place)
    return {
        "memory_store.import": at_most(
            imported["cpu"], IMPORT, 1.0, "s", f"{EVENTS:,} events of {LENGTH} words: CPU", wall_s=imported["wall"]
        ),
        "memory_store.retrieval": at_most(
            percentile(asked["retrieve"], 0.95),
            RETRIEVAL,
            1.0,
            "ms",
            f"retrieve_memory_records among {RECORDS:,} records: p95 of CPU",
            median_ms=round(median(asked["retrieve"]), 2),
            wall_p95_ms=round(percentile(asked["retrieve_wall"], 0.95), 1),
        ),
        "memory_store.events": at_most(
            percentile(asked["search"], 0.95),
            2.5 * RETRIEVAL,
            1.0,
            "ms",
            f"search_events among {EVENTS:,} events: p95 of CPU",
            median_ms=round(median(asked["search"]), 2),
        ),
        "memory_store.memory": at_most(
            memory["grown"] / machine.MIB, MEMORY, 1.0, "MiB", f"growth of RSS by the store and {QUERIES} retrievals"
        ),
        "memory_store.history": at_most(
            history["cpu"],
            HISTORY,
            1.0,
            "s",
            f"index_commits of {COMMITS:,} commits: CPU, that of git included",
            wall_s=history["wall"],
        ),
        "memory_store.again": at_most(history["again"], AGAIN, 1.0, "s", f"… with {NEW} new commits"),
        "memory_store.files": at_most(
            percentile(history["asked"], 0.95), RETRIEVAL, 1.0, "ms", "likely_files in that history: p95 of CPU"
        ),
        "memory_store.recall": at_most(
            percentile(recalled["cpu"], 0.95),
            RECALL,
            1.0,
            "ms",
            f"recall of a task that opens memory.db, among {RECORDS:,} records and {COMMITS:,} commits: p95 of CPU",
            median_ms=round(median(recalled["cpu"]), 1),
            first_ms=round(recalled["cpu"][0], 1),
            wall_p95_ms=round(percentile(recalled["wall"], 0.95), 1),
        ),
    }


class Texts:
    """Random texts, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.words = [_word(number) for number in range(WORDS)]
        self.weights = list(accumulate(1 / (100 + rank) for rank in range(WORDS)))

    def of(self, length: int) -> str:
        """A text of `length` words."""
        return " ".join(self.chance.choices(self.words, cum_weights=self.weights, k=length))

    def queries(self) -> Iterator[str]:
        """Queries of 3 to 12 words."""
        for number in range(QUERIES):
            yield self.of(3 + number % 10)


def _word(number: int) -> str:
    """A word that is no other's: syllables for the digits of the number."""
    syllables = ("ka", "mo", "ri", "tu", "ne", "so", "la", "vi", "pe", "do")
    return "".join(syllables[int(digit)] for digit in str(number))


def store(place: Path) -> Any:
    """The memory in `place`."""
    from agent.memory import MemoryStore
    from benchmarks.settings import settings

    return MemoryStore(place, settings(place).memory)


def events(place: Path) -> dict[str, float]:
    """Import events, a thousand at a time."""
    from agent.memory import NewEvent

    made, texts = store(place), Texts(1)
    batches = [
        [
            NewEvent(f"a{number // SESSION % ACTORS}", f"s{number // SESSION}", texts.of(LENGTH))
            for number in range(start, start + 1000)
        ]
        for start in range(0, EVENTS, 1000)
    ]
    wall, cpu = time.perf_counter(), machine.cpu_of_self()
    for batch in batches:
        made.create_events(batch)
    return {"wall": round(time.perf_counter() - wall, 1), "cpu": machine.cpu_of_self() - cpu}


def records(place: Path) -> dict[str, int]:
    """Append records to the log as they are after consolidation, which compares each with its neighbours."""
    made, texts = store(place), Texts(2)
    for start in range(0, RECORDS, 1000):
        with made.writing() as write:
            for number in range(start, start + 1000):
                actor, session = f"a{number % ACTORS}", f"s{number // ACTORS // 4}"
                kind = ("facts", "episodes")[number // ACTORS % 2]
                write.append(
                    "created",
                    f"mem-{number:020}",
                    {
                        "namespace": f"/{kind}/{actor}/" + (f"{session}/" if kind == "episodes" else ""),
                        "strategy": kind,
                        "session_id": session,
                        "block": 0,
                        "title": "",
                        "text": texts.of(LENGTH),
                        "timestamp": "2026-11-01T00:00:00.000000Z",
                        "status": "active",
                        "reason": "",
                        "trust": 1,
                        "pinned": 0,
                        "expires_at": None,
                        "metadata": {},
                        "event_ids": [],
                        "record_ids": [],
                        "files": [],
                    },
                )
    return {"records": RECORDS}


def queries(place: Path) -> dict[str, list[float]]:
    """Ask for records and for events."""
    made, texts = store(place), Texts(3)
    found: dict[str, list[float]] = {"retrieve": [], "retrieve_wall": [], "search": []}
    made.retrieve_memory_records("warm up", "/facts/a0/")
    for number, query in enumerate(texts.queries()):
        actor = f"a{number % ACTORS}"
        namespace = f"/{('facts', 'episodes')[number % 2]}/{actor}/"
        wall, cpu = time.perf_counter(), time.thread_time()
        assert made.retrieve_memory_records(query, namespace, relevance_score=0)
        found["retrieve"].append((time.thread_time() - cpu) * 1000)
        found["retrieve_wall"].append((time.perf_counter() - wall) * 1000)
        cpu = time.thread_time()
        assert made.search_events(query, actor)
        found["search"].append((time.thread_time() - cpu) * 1000)
    return found


def memory(place: Path) -> dict[str, int]:
    """What a worker pays: the process has imported its own modules already."""
    import agent.worker.handler

    del agent.worker.handler
    texts = list(Texts(4).queries())
    before = machine.peak()
    made = store(place)
    for number, query in enumerate(texts):
        made.retrieve(query, f"a{number % ACTORS}")
    return {"grown": machine.peak() - before}


def recall(place: Path) -> dict[str, Any]:
    """The recall of tasks with queries of 60 words, each with a connection of its own, as at the start of a worker."""
    import agent.worker.handler
    from agent.memory.recall import TaskRecall

    del agent.worker.handler
    texts = Texts(6)
    found: dict[str, list[float]] = {"cpu": [], "wall": []}
    for number in range(100):
        query, actor = texts.of(60), f"a{number % ACTORS}"
        wall, cpu = time.perf_counter(), time.thread_time()
        task = TaskRecall(lambda: store(place), [actor, "a"], "now")
        assert task.recall(query)
        found["cpu"].append((time.thread_time() - cpu) * 1000)
        found["wall"].append((time.perf_counter() - wall) * 1000)
        task.close()
    return found


def history(place: Path) -> dict[str, Any]:
    """A repository of commits that each touch one to five of 4,000 files."""
    repository = place / "repository.git"
    texts = Texts(5)
    paths = [f"{texts.of(1)}/{texts.of(1)}_{number}.py" for number in range(4000)]
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    fast_import(repository, texts, paths, COMMITS, "")
    made = store(place)
    wall, cpu = time.perf_counter(), _cpu()
    assert made.index_commits(repository, "a", branch="main") == COMMITS
    found: dict[str, Any] = {"wall": round(time.perf_counter() - wall, 1), "cpu": _cpu() - cpu}
    fast_import(repository, texts, paths, NEW, "from refs/heads/main^0\n")
    cpu = _cpu()
    assert made.index_commits(repository, "a", branch="main") == NEW
    found["again"] = _cpu() - cpu
    found["asked"] = []
    for query in texts.queries():
        cpu = time.thread_time()
        made.likely_files(query, "a")
        found["asked"].append((time.thread_time() - cpu) * 1000)
    return found


def _cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    import os

    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def fast_import(repository: Path, texts: Texts, paths: list[str], commits: int, parent: str) -> None:
    """Write commits with `git fast-import`."""
    lines = []
    for number in range(commits):
        message = f"{texts.of(6)}\n\n{texts.of(20)}\n"
        lines.append(
            f"commit refs/heads/main\ncommitter a <a@example.org> {1_700_000_000 + number} +0000\n"
            f"data {len(message)}\n{message}\n{parent if number == 0 else ''}"
        )
        for path in texts.chance.sample(paths, 1 + number % 5):
            content = texts.of(30)
            lines.append(f"M 100644 inline {path}\ndata {len(content)}\n{content}\n")
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=repository, input="".join(lines).encode(), check=True, timeout=600
    )


PARTS = {
    "events": events,
    "records": records,
    "queries": queries,
    "memory": memory,
    "history": history,
    "recall": recall,
}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](Path(sys.argv[2]))))
