"""What survives: thirty facts are planted in a task, filler work follows, and after 1, 3 and 10 compactions it is
counted how many of them are in the next request.

Each cell is a whole task of the local tracker by the worker's own path: real files, a real work tree, real commands,
real comments, over HTTP against a server that enforces its window by its own count (`fidelity_model.py`).  A compaction
is one that leaves messages out; the others (masks) happen beside them and are not counted.

MAKIMONO_LONG=1 runs every wire with every summariser and window; otherwise each cell has one wire, in turn.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children, fidelity_facts, fidelity_play, machine
from benchmarks.fidelity_facts import FACTS, KINDS
from benchmarks.fidelity_model import Model, Said, in_order
from benchmarks.fidelity_summaries import SUMMARISERS
from benchmarks.figures import share

if TYPE_CHECKING:
    from agent.config import Settings
    from benchmarks.fidelity_facts import Fact, Step

    Json = dict[str, Any]

LONG = os.environ.get("MAKIMONO_LONG") == "1"
WIRES = ("openai", "ollama", "lmstudio", "anthropic")
WINDOWS = {8_192: 1, 32_768: 3, 131_072: 20}
"""Windows, and by how much the filler work is larger there than small turns of about 200 tokens."""
STRATEGIES = ("hybrid", "summary", "sliding_window", "mask")
DEFAULT = STRATEGIES[0]
AFTER = (1, 3, 10)
CUTTING = frozenset(("summary", "window", "reset"))
"""Compactions that leave messages out (docs/files.md)."""
MOST_TURNS = 4_000
LEAST = {"honest": 30, "forgetful": 28, "garbage": 28, "silent": 28}
GUARANTEED = ("comment", "failure", "shell")
PREFIX = {8_192: 0.88, 32_768: 0.97}
AT_ONCE = 2


@dataclass(frozen=True)
class Cell:
    """One run."""

    window: int
    summariser: str
    wire: str
    strategy: str = DEFAULT
    scale: int = 1

    def __str__(self) -> str:
        return f"{self.window // 1024}k {self.strategy} {self.summariser} {self.wire}"


@dataclass
class Seen:
    """What a run showed: the facts that were there after each number of compactions (0: all were planted), how much of
    each request was the start of the next one, how it ended."""

    cell: Cell
    there: dict[int, tuple[Fact, ...]] = field(default_factory=dict)
    kept: int = 0
    whole: int = 0
    turns: int = 0
    summaries: int = 0
    refused: int = 0
    how: Counter[str] = field(default_factory=Counter)
    end: str = ""

    def facts(self, after: int, kind: str | None = None) -> int:
        """How many were there, none where the task did not come so far."""
        return sum(kind in (None, fact.kind) for fact in self.there.get(after, ()))

    @property
    def prefix(self) -> float:
        """Of the bytes that were sent: the share that stood at the start of the next request."""
        return self.kept / self.whole if self.whole else 0.0


class Mind:
    """Plays the task and looks at each request of it."""

    def __init__(self, cell: Cell, place: Path) -> None:
        self.seen = Seen(cell)
        self.place = place
        self.summarise = SUMMARISERS[cell.summariser](17)
        self.before = b""
        self.planted_at: int | None = None

    def turn(self, request: Json) -> Step:
        """The next answer."""
        seen = self.seen
        self._compare(request)
        number = seen.turns
        seen.turns += 1
        cuts = self._cuts()
        if number >= len(fidelity_facts.STEPS):
            if self.planted_at is None:
                self.planted_at = cuts
            for after in (0, *AFTER):
                if after not in seen.there and cuts - self.planted_at >= after:
                    seen.there[after] = fidelity_facts.found(request["messages"])
        if AFTER[-1] in seen.there or number > MOST_TURNS:
            finish = ("finish", {"title": "Parts looked at", "summary": "All parts were looked at."})
            return fidelity_facts.Step("All parts have their note.", (finish,))
        step = fidelity_play.step(number, seen.cell.scale)
        if step.says:
            self._say(step.says)
        return step

    def summary(self, text: str, limit: int) -> Said:
        """A summary of its kind."""
        self.seen.summaries += 1
        return self.summarise(text, limit)

    def _compare(self, request: Json) -> None:
        now = in_order(request)
        if self.before:
            self.seen.kept += alike(self.before, now)
            self.seen.whole += len(self.before)
        self.before = now

    def _cuts(self) -> int:
        """Compactions so far that left messages out."""
        found: Counter[str] = Counter()
        for path in (self.place / "contexts" / "running").glob("*/compactions.jsonl"):
            with path.open(encoding="utf-8") as file:
                found.update(json.loads(line)["strategy"] for line in file)
        self.seen.how = found
        return sum(found[name] for name in CUTTING)

    def _say(self, words: str) -> None:
        """What a person's editor does: append a line to the comments of the issue."""
        from agent import clock

        path = self.place / "tracker" / "issues" / "1.comments.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        line = {"id": 1 + max((json.loads(one)["id"] for one in lines), default=0), "author": "alice", "body": words}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | dict.fromkeys(("created_at", "updated_at"), clock.stamp())) + "\n")


def alike(one: bytes, other: bytes) -> int:
    """How many bytes at their start are the same."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        half = (least + most + 1) // 2
        least, most = (half, most) if one[least:half] == other[least:half] else (least, half - 1)
    return least


def cells() -> list[Cell]:
    """The runs, those on large windows first: they take longest.

    Where the prefix is measured, the honest one has small turns: what a compaction costs a prompt cache is spread over
    the turns between two of them.
    """
    found: list[Cell] = []
    for row, (window, scale) in enumerate(reversed(WINDOWS.items())):
        for column, summariser in enumerate(SUMMARISERS):
            small = 1 if summariser == "honest" and window in PREFIX else scale
            wires = WIRES if LONG else (WIRES[(row + column) % len(WIRES)],)
            found += [Cell(window, summariser, wire, scale=small) for wire in wires]
        for column, strategy in enumerate(STRATEGIES[1:]):
            found.append(Cell(window, "silent", WIRES[(row + column) % len(WIRES)], strategy, scale))
    return found


def run(cell: Cell) -> Seen:
    """One task to its end."""
    with children.workplace() as place:
        mind = Mind(cell, place)
        model = Model(cell.wire, cell.window, mind)
        try:
            mind.seen.end = children.run("fidelity", place, model.url, json.dumps(vars(cell)))
        finally:
            model.close()
        mind.seen.refused = len(model.refused)
        if keep := os.environ.get("MAKIMONO_KEEP"):
            shutil.copytree(place / "contexts", Path(keep) / str(cell).replace(" ", "-"), dirs_exist_ok=True)
    machine.say(told(mind.seen))
    return mind.seen


def told(seen: Seen) -> str:
    """One line of a table."""
    counts = " ".join(f"{seen.facts(after):>2}" if after in seen.there else " –" for after in AFTER)
    last = seen.there.get(AFTER[-1]) or ()
    lost = Counter(fact.kind for fact in FACTS if fact not in last) if last else {}
    kinds = ", ".join(f"{number} {kind}" for kind, number in lost.items())
    how = ", ".join(f"{number} {name}" for name, number in sorted(seen.how.items()))
    end = "" if seen.end == "completed" else f"; ended: {seen.end}"
    return (
        f"{seen.cell!s:38} {counts}  prefix {seen.prefix:.3f}  {seen.turns} turns, {how}, {seen.summaries} asked, "
        f"{seen.refused} refused{end}{f'; lost: {kinds}' if kinds else ''}"
    )


def measure() -> dict[str, Any]:
    machine.say(f"facts of {len(FACTS)} after {', '.join(map(str, AFTER))} compactions")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = list(pool.map(run, cells()))
    last = AFTER[-1]
    figures = {}
    for name, least in LEAST.items():
        ours = [seen for seen in runs if seen.cell.summariser == name and seen.cell.strategy == DEFAULT]
        worst = min(ours, key=lambda seen: seen.facts(last))
        more = {str(seen.cell): [seen.facts(after) for after in AFTER] for seen in ours}
        what = f"facts after {last} compactions, {name} summariser, worst of {len(ours)} runs"
        figures[f"fidelity.{name}"] = share(worst.facts(last), len(FACTS), least / len(FACTS), "facts", what, runs=more)
    alone = [seen for seen in runs if seen.cell.summariser == "silent"]
    for kind in GUARANTEED:
        whole = sum(fact.kind == kind for fact in FACTS)
        worst = min(alone, key=lambda seen: seen.facts(last, kind))
        what = f"{KINDS[kind]} after {last} compactions without a summariser, worst of all strategies and windows"
        figures[f"fidelity.{kind}"] = share(worst.facts(last, kind), whole, 1.0, "facts", what, run=str(worst.cell))
    for window, least in PREFIX.items():
        ours = [
            seen
            for seen in runs
            if seen.cell.window == window and seen.cell.strategy == DEFAULT and seen.cell.scale == 1
        ]
        worst = min(ours, key=lambda seen: seen.prefix)
        what = f"bytes of requests that stand at the start of the next one, window {window}, worst of {len(ours)} runs"
        figures[f"fidelity.prefix_{window // 1024}k"] = share(
            worst.kept, max(1, worst.whole), least, "bytes", what, run=str(worst.cell)
        )
    return figures


# --- the task's own process ---------------------------------------------------------------------------------------


def settings_of(place: Path, url: str, cell: Cell) -> Settings:
    """Those of one run."""
    from agent.config import settings_of as made_of
    from benchmarks.fidelity_model import MODEL

    server = {"model": MODEL, "context_length": cell.window, "base_url": url, "api_key": "bench-key-0000"}
    storage = {"base_dir": str(place / "contexts"), "durability": "none", "strategy": cell.strategy}
    return made_of(
        {
            "task_sources": ["local"],
            "local": {"tracker": str(place / "tracker"), "repos": {"default": str(place / "repo")}},
            "context_storage": storage,
            "llm": {"provider": cell.wire, cell.wire: server},
            "sandbox": {"kind": "none"},
            "scheduling": {"interval": 0.001},
            "limits": {"turns": 2 * MOST_TURNS, "wall_seconds": 36_000},
        }
    )


def part(place: Path, url: str, cell: Cell) -> None:
    """Queue the task and work on it; prints how it ended."""
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.wiring.wiring import Wiring
    from agent.worker import worker
    from benchmarks import project

    project.make(place, files=fidelity_facts.repository(), body=fidelity_facts.TASK)
    chosen = settings_of(place, url, cell)
    wiring = Wiring(chosen, events=Events([]))
    (uuid,) = fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
    worker.process_task(chosen, uuid)
    row = wiring.ledger.get(uuid)
    wiring.close()
    assert row is not None
    print(json.dumps(str(row.status) if not row.error_code else f"{row.error_code}: {row.error_message}"))


if __name__ == "__main__":
    part(Path(sys.argv[1]), sys.argv[2], Cell(**json.loads(sys.argv[3])))
