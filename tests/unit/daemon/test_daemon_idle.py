"""A daemon with nothing to do leaves nothing: looked at over many ticks whose time is switched.

In a process of its own, which this file is too: in that of the tests, threads that earlier ones left (of a server, of a
connection) open and close what they like between two looks.
"""

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from contextlib import closing, suppress
from pathlib import Path

from length import either
from run_home import Place

from agent import clock
from agent.daemon.finalize import send_pending_notifications
from agent.daemon.supervisor import SWEEP_SECONDS, Supervisor
from agent.intake.poller import fetch_and_enqueue_tasks

ROOT = Path(__file__).resolve().parents[3]
WARM, TICKS = 50, either(400, 1000)
ALLOWED = 160 << 10
"""Bytes of Python's memory: what sways, not something for each tick.  SQLite's module alone keeps weak references to
past cursors, which it weeds out now and then: 90 KB at most in 8,000 ticks."""


def held():
    """What the descriptors of this process lead to, in order."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(found)


def idle(here, time):
    """Many ticks; what was held before and after them, and the names of the events."""
    supervisor = Supervisor(here.wiring)
    wal = here.settings.base_dir / "tasks.db-wal"

    def tick():
        fetch_and_enqueue_tasks(here.settings, here.ledger, here.wiring.forges, here.events)
        supervisor.step()
        send_pending_notifications(here.wiring)
        said = {name for name, _ in here.said}
        here.said.clear()
        time.move(SWEEP_SECONDS)
        return said

    def look():
        gc.collect()
        return held(), wal.stat().st_size, tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    for _ in range(WARM):
        tick()
    before = look()
    said = set().union(*(tick() for _ in range(TICKS)))
    return before, look(), sorted(said)


def test_an_idle_daemon_grows_by_nothing(tmp_path):
    argv = [sys.executable, __file__, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, said = json.loads(done.stdout)
    assert said == ["poll_finished"]
    assert after[0] == before[0], "what its descriptors lead to"
    assert after[1] == before[1], "bytes of the WAL"
    assert after[2] - before[2] < ALLOWED


if __name__ == "__main__":
    with clock.use(clock.FakeClock()) as fake, closing(Place(Path(sys.argv[1]))) as home:
        print(json.dumps(idle(home, fake)))
