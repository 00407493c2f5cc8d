"""The daemon for ten minutes with nothing to do: it must cost nothing and leave nothing."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import children, machine, project
from benchmarks.daemon import Daemon, running
from benchmarks.figures import at_most

SECONDS = 600.0
SETTLED = 70.0  # seconds until it has started, polled twice, and touched what it touches
ALLOWED_CPU = 0.5  # per cent of one core


def measure(seconds: float = SECONDS, settled: float = SETTLED) -> dict[str, Any]:
    with children.workplace() as place:
        local = project.make(place, 0)
        with running(place, url="http://127.0.0.1:9", local=local) as daemon:
            time.sleep(settled)
            first, started = look(daemon), time.monotonic()
            machine.say(f"settled: {first}")
            time.sleep(seconds)
            last, took = look(daemon), time.monotonic() - started
            machine.say(f"after {took:.0f} s: {last}")
    grown = {name: last[name] - first[name] for name in first}
    what = f"of the daemon in {took:.0f} s with no task"
    return {
        "idle.cpu": at_most(100 * grown["cpu"] / took, ALLOWED_CPU, 1.0, "% of a core", f"CPU {what}"),
        "idle.memory": at_most(max(0.0, grown["memory"]), 1.0, 1.0, "MiB", f"growth {what}", resident=last["memory"]),
        "idle.descriptors": at_most(max(0, grown["descriptors"]), 1, 0.0, "descriptors", f"growth {what}"),
        "idle.wal": at_most(max(0, grown["wal"]), 1, 0.0, "bytes", f"growth of tasks.db-wal {what}"),
        "idle.log": at_most(max(0, grown["log"]), 1, 0.0, "bytes", f"growth of the log {what}"),
    }


def look(daemon: Daemon) -> dict[str, float]:
    """What it uses now."""
    return {
        "cpu": daemon.cpu(),
        "memory": round(daemon.memory(), 2),
        "descriptors": daemon.descriptors(),
        "wal": daemon.file("tasks.db-wal"),
        "log": daemon.log.stat().st_size,
    }
