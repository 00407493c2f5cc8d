"""100 workers that wait for a model at once: what each costs, and how long until all wait.

Real tasks of a local tracker, real workers from the supervisor's forkserver, and a loopback server that is slow.  Their
own share is PSS: pages that several processes have are divided among them.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import children, machine, project
from benchmarks.figures import at_most, median
from benchmarks.server import Server
from benchmarks.settings import settings

WORKERS = 100
ALLOWED = 16.0  # MiB
PATIENCE = 300.0  # seconds until the bench gives up


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        done = children.run("waiting_daemon", place)
    pss = done["pss"]
    return {
        "waiting.pss": at_most(
            median(pss),
            ALLOWED,
            1.0,
            "MiB",
            f"PSS of each of {WORKERS} workers that wait for a model, against the {ALLOWED:g} MiB allowed",
            largest=round(max(pss), 2),
            all_processes=round(sum(pss) + done["server_pss"], 1),
            seconds_until_all_wait=round(done["seconds"], 2),
        )
    }


def part(place: Path) -> None:
    """The daemon of the bench: start, wait until all wait, look, end them."""
    from agent.daemon.supervisor import Supervisor
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.wiring.memory import open_memory
    from agent.wiring.wiring import Wiring

    answers = project.record(place / "answers.jsonl", [("finish", {"title": "Done", "summary": "Done."})])
    with Server(answers, latency=3600) as server:
        chosen = settings(
            place / "contexts",
            url=server.urls[0],
            durability="turn",
            local=project.make(place, WORKERS),
            scheduling={"max_workers": WORKERS},
        )
        wiring = Wiring(chosen, events=Events([]))
        with closing(open_memory(chosen, "bench")) as memory:
            memory.known_events([])  # makes memory.db, which otherwise only some of the workers would find
        fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
        supervisor = Supervisor(wiring)
        try:
            started = time.monotonic()
            while len(seen := server.seen()[0]) < WORKERS:
                supervisor.step()
                if time.monotonic() - started > PATIENCE:
                    raise RuntimeError(f"only {len(seen)} of {WORKERS} workers wait after {PATIENCE:g} s")
                time.sleep(0.02)
            pids = [child.process.pid for child in supervisor.children.values()]
            pss = [pss_of(pid) / machine.MIB for pid in pids if pid is not None]
            parent = os.stat(f"/proc/{pids[0]}").st_uid, parent_of(pids[0])
            print(
                json.dumps({"pss": pss, "server_pss": pss_of(parent[1]) / machine.MIB, "seconds": max(seen) - started}),
                flush=True,
            )
        finally:
            supervisor.kill()
            while supervisor.children:
                supervisor.reap()
                time.sleep(0.02)
            wiring.close()


def pss_of(pid: int) -> int:
    """Proportional bytes of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss for {pid}")


def parent_of(pid: int | None) -> int:
    """The forkserver of a worker."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
