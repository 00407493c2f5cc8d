"""One task by the worker's own path, in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import machine, project
from benchmarks.settings import settings


def run(place: Path, url: str) -> None:
    import agent.run.preload  # noqa: F401 - as in the forkserver
    from agent.observe.events import Events
    from agent.run.producer import fetch_and_enqueue_tasks
    from agent.run.wiring import Wiring
    from agent.run.worker import main as work

    chosen = settings(
        place / "contexts",
        url=url,
        durability="turn",
        local=project.make(place),
        limits={"turns": 10_000, "wall_seconds": 36_000},
    )
    wiring = Wiring(chosen, events=Events([]))
    (uuid,) = fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
    wiring.close()
    started = machine.cpu_of_self()
    code = None
    try:
        work(chosen, uuid)
    except SystemExit as ended:
        code = ended.code
    assert code == 0, code
    used = machine.cpu_of_self() - started
    print(json.dumps({"cpu": used, "peak": machine.peak()}))


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
