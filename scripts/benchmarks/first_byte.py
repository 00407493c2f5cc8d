"""From the claim of a task to the first byte of its first request, against the time that `import openai` takes.

A worker from the forkserver, the mirror warm, no set-up: folder, row, work tree, briefing and request.json lie between.
The two take turns; medians of wall time, since that is what is waited for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import children, project
from benchmarks.figures import at_most, median
from benchmarks.server import Server
from benchmarks.settings import settings
from benchmarks.stamped import Stamped

ROUNDS = 11


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        done = children.run("first_byte", place)
    return {
        "first_byte": at_most(
            median(done["ours"]) * 1e3,
            median(done["import"]) * 1e3,
            1.0,
            "ms",
            'from the claim to the first byte of the first request, against `python -c "import openai"`',
            from_fork=round(median(done["fork"]) * 1e3, 1),
        )
    }


def part(place: Path) -> None:
    """One task after another; between them the other program starts."""
    import multiprocessing

    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.wiring.wiring import Wiring
    from agent.worker import worker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["agent.daemon.preload_memory_package", "agent.daemon.preload"])
    answers = project.record(place / "answers.jsonl", [("finish", {"title": "Done", "summary": "Done."})])
    times: dict[str, list[float]] = {"ours": [], "fork": [], "import": []}
    with Server(answers) as server:
        chosen = settings(
            place / "contexts", url=server.urls[0], durability="turn", local=project.make(place, ROUNDS + 1)
        )
        wiring = Wiring(chosen, events=Events([]))
        uuids = fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
        for number, uuid in enumerate(uuids):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=worker.main, args=(chosen, uuid, Stamped(send)), daemon=False)
            forked = time.monotonic()
            process.start()
            send.close()  # a worker that dies is an EOFError, not a wait for ever
            word, claimed = receive.recv()
            assert word == "claimed"
            process.join()
            assert process.exitcode == 0, process.exitcode
            asked = server.seen()[0][number]
            started = time.monotonic()
            subprocess.run([sys.executable, "-c", "import openai"], check=True)
            if number:  # the first makes the mirror and the forkserver
                times["ours"].append(asked - claimed)
                times["fork"].append(asked - forked)
                times["import"].append(time.monotonic() - started)
        wiring.close()
    print(json.dumps(times))


if __name__ == "__main__":
    part(Path(sys.argv[1]))
