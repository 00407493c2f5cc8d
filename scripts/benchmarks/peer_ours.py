"""One task by the worker's own path: a process queues it, another is its worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.settings import settings

if TYPE_CHECKING:
    from agent.config import Settings


def settings_of(place: Path, url: str) -> Settings:
    local = {"tracker": str(place / "tracker"), "repos": {"default": str(place / "repo")}}
    limits = {"turns": 10_000, "wall_seconds": 36_000}
    return settings(place / "contexts", url=url, durability="turn", local=local, limits=limits)


def queue(place: Path, url: str) -> None:
    """The daemon's part."""
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.wiring.wiring import Wiring
    from benchmarks import project

    project.make(place)
    chosen = settings_of(place, url)
    wiring = Wiring(chosen, events=Events([]))
    (uuid,) = fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
    wiring.close()
    print(json.dumps(uuid))


def work(place: Path, url: str, uuid: str) -> None:
    """The worker's part."""
    from agent.worker import worker

    chosen = settings_of(place, url)
    started = machine.cpu_of_self()
    code = None
    try:
        worker.main(chosen, uuid)
    except SystemExit as ended:
        code = ended.code
    assert code == 0, code
    used = machine.cpu_of_self() - started
    print(json.dumps({"cpu": used, "peak": machine.peak()}))


if __name__ == "__main__":
    {"queue": queue, "work": work}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
