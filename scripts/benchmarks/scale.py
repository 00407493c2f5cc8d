"""1,000 queued tasks, 50 workers at once, a model that answers in 50 ms: throughput, and what the daemon grows by."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine, project
from benchmarks.daemon import running
from benchmarks.figures import at_most
from benchmarks.server import Server

if TYPE_CHECKING:
    from pathlib import Path

TASKS = int(os.environ.get("MAKIMONO_BENCH_TASKS", "1000"))
WORKERS = 50
LATENCY = 0.05
ALLOWED_GROWTH = 4.0  # MiB of the daemon, from the first tenth of the tasks to the last one
ALLOWED_SECONDS = 1.5  # a task
BUSY = ("database is locked", "is busy: another process held it")


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        answers = project.record(
            place / "answers.jsonl",
            [
                ("write_file", {"path": "done.txt", "content": "done\n"}),
                ("finish", {"title": "Done", "summary": "Done."}),
            ],
        )
        with Server(answers, latency=LATENCY) as server:
            return watched(place, server.urls[0])


def watched(place: Path, url: str) -> dict[str, Any]:
    local = project.make(place, TASKS)
    scheduling = {"max_workers": WORKERS}
    memory: list[tuple[int, float]] = []
    started = time.monotonic()
    with running(place, "--once", url=url, local=local, scheduling=scheduling) as daemon:
        while daemon.process.poll() is None:
            time.sleep(1.0)
            done = ended(place)
            if daemon.process.poll() is None:
                memory.append((done, daemon.memory()))
                if len(memory) % 30 == 0:
                    machine.say(f"{done} of {TASKS} after {time.monotonic() - started:.0f} s, {memory[-1][1]:.1f} MiB")
                cpu = daemon.cpu()
    took = time.monotonic() - started
    if daemon.process.returncode != 0 or ended(place) != TASKS:
        raise RuntimeError(f"{ended(place)} of {TASKS} ended, exit {daemon.process.returncode}:\n{tail(daemon.log)}")
    said = [daemon.log, *place.glob("contexts/completed/*/worker.log")]
    if busy := [path for path in said if any(word in path.read_text(errors="replace") for word in BUSY)]:
        raise RuntimeError(f"the ledger was locked: {', '.join(map(str, busy[:5]))}")
    early = [mib for done, mib in memory if TASKS / 10 <= done <= TASKS / 5] or [memory[0][1]]
    return {
        "scale.rate": at_most(
            took / TASKS,
            ALLOWED_SECONDS,
            1.0,
            "s a task",
            f"{TASKS} tasks, {WORKERS} at once, a model that answers in {LATENCY * 1000:g} ms; all completed",
            tasks_a_minute=round(60 * TASKS / took),
            seconds=round(took),
            daemon_cpu=round(cpu, 1),
        ),
        "scale.memory": at_most(
            max(0.0, max(mib for _, mib in memory) - min(early)),
            ALLOWED_GROWTH,
            1.0,
            "MiB",
            "growth of the daemon from the first tenth of the tasks to the end",
            resident=round(memory[-1][1], 1),
        ),
    }


def ended(place: Path) -> int:
    """Tasks whose folder lies in completed/."""
    folder = place / "contexts" / "completed"
    return len(os.listdir(folder)) if folder.is_dir() else 0


def tail(path: Path) -> str:
    return path.read_text(errors="replace")[-4000:]
