"""A daemon of a fleet with nothing to do, on PostgreSQL alone and with each broker: questions, wake-ups, CPU.

Servers are those of the tests (`MAKIMONO_TEST_POSTGRES`, `…_RABBITMQ`, `…_REDIS`); a database and a queue of its own.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import children, machine, project
from benchmarks.daemon import Daemon, running
from benchmarks.figures import at_most
from benchmarks.fleet import TRANSACTIONS, counted, database

BROKERS = {
    "rabbitmq": os.environ.get("MAKIMONO_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//"),
    "redis": os.environ.get("MAKIMONO_TEST_REDIS", "redis://127.0.0.1:6379/15"),
}
SETTLED, SECONDS = 60.0, 120.0
QUERIES, WAKES, CPU = 1.0, 2.0, 0.5
"""A second, a second, per cent of a core."""


def measure(settled: float = SETTLED, seconds: float = SECONDS) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, broker in {"alone": None, **BROKERS}.items():
        own = None if broker is None else f"{broker}?queue=makimono-bench-{os.getpid()}"
        with children.workplace() as place, database() as (address, server):
            taskqueue = {"ledger": address, **({} if own is None else {"broker": own})}
            local = project.make(place, 0)
            try:
                with running(place, url="http://127.0.0.1:9", local=local, taskqueue=taskqueue) as daemon:
                    time.sleep(settled)
                    before, started = look(daemon) | {"questions": counted(server, TRANSACTIONS)}, time.monotonic()
                    time.sleep(seconds)
                    after, took = (
                        look(daemon) | {"questions": counted(server, TRANSACTIONS)},
                        time.monotonic() - started,
                    )
            finally:
                remove(own)
        grown = {what: (after[what] - before[what]) / took for what in before}
        machine.say(f"{name}: {', '.join(f'{what} {value:.4f}' for what, value in grown.items())}")
        what = f"of a daemon without tasks on PostgreSQL, broker {name}, {took:.0f} s"
        figures |= {
            f"quiet.{name}.queries": at_most(grown["questions"], QUERIES, 1.0, "questions a second", what),
            f"quiet.{name}.wakes": at_most(grown["wakes"], WAKES, 1.0, "wake-ups a second", what),
            f"quiet.{name}.cpu": at_most(100 * grown["cpu"], CPU, 1.0, "% of a core", what),
        }
    return figures


def look(daemon: Daemon) -> dict[str, float]:
    """Since its start: how often its threads have waited, and its CPU seconds."""
    wakes = 0
    for thread in (Path("/proc") / str(daemon.process.pid) / "task").iterdir():
        for line in (thread / "status").read_text(encoding="ascii").splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                wakes += int(line.split()[1])
    return {"wakes": wakes, "cpu": daemon.cpu()}


def remove(address: str | None) -> None:
    """Take the queue away again."""
    if address is None:
        return
    from agent.taskqueue.broker import KombuBroker

    broker = KombuBroker(address)
    broker.connect()
    with closing(broker):
        broker.delete()
