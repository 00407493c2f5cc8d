"""Twenty daemons on one PostgreSQL, each a process on a host of its own (a UTS namespace) with 200 rows that run.

Workers are not what is measured: on each host one process (`fleet_host.py`) holds 200 folders' locks and claims, and
renews the leases as 200 workers would.  What the daemons ask is what the server counts less those renewals.  The server
is the one of the tests (`MAKIMONO_TEST_POSTGRES`), in a database of its own, so that nobody else's questions count.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import children, machine, project
from benchmarks.daemon import Daemon
from benchmarks.figures import at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = os.environ.get("MAKIMONO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
HOSTS, ROWS = 20, 200
SETTLED, SECONDS = 60.0, 120.0
CONNECTED = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'makimono' AND datname = current_database()"
QUERIES, CONNECTIONS, CPU = 2.0, 3.0, 2.0
"""What one daemon may have: questions a second, connections, per cent of a core."""


class Below(Daemon):
    """A daemon that is the child of another process."""

    def __init__(self, place: Path, pid: int) -> None:
        self.pid = pid
        self.log = place / "daemon.log"
        self.contexts = place / "contexts"

    @property
    def proc(self) -> Path:
        return Path("/proc") / str(self.pid)


def measure(hosts: int = HOSTS, rows: int = ROWS, settled: float = SETTLED, seconds: float = SECONDS) -> dict[str, Any]:
    with children.workplace() as place, database() as (address, server), ExitStack() as ends:
        local = project.make(place, 0)
        folders = [place / f"host{number}" for number in range(hosts)]
        holders = [
            ends.enter_context(host(folder, address, rows, number, local)) for number, folder in enumerate(folders)
        ]
        daemons = [Below(folder, daemon_of(holder, folder)) for folder, holder in zip(folders, holders, strict=True)]
        renewals = [folder / "renewals" for folder in folders]
        machine.say(f"{hosts} daemons with {rows} rows each; settling for {settled:.0f} s")
        time.sleep(settled)
        running = counted(server, "SELECT COUNT(*) FROM tasks WHERE status = 'running'")
        if running != hosts * rows:
            raise RuntimeError(f"{running} rows run instead of {hosts * rows}: a daemon took a living holder for dead")
        before, started = look(server, daemons, renewals), time.monotonic()
        time.sleep(seconds)
        after, took = look(server, daemons, renewals), time.monotonic() - started
        grown = {name: (after[name] - before[name]) / hosts / took for name in before}
        connections = counted(server, CONNECTED)
        for holder in holders:
            holder.terminate()  # all at once; each waits for its daemon
    queries = grown["questions"] - grown["renewals"]
    machine.say(f"a daemon: {queries:.2f} questions a second, {100 * grown['cpu']:.2f} % of a core")
    what = f"of one of {hosts} daemons with {rows} rows each, {took:.0f} s"
    held = (connections - hosts) / hosts  # the holder on each host has one too
    return {
        "fleet.queries": at_most(queries, QUERIES, 1.0, "questions a second", f"to the ledger, {what}"),
        "fleet.connections": at_most(held, CONNECTIONS, 1.0, "connections", what),
        "fleet.cpu": at_most(100 * grown["cpu"], CPU, 1.0, "% of a core", f"CPU {what}"),
    }


@contextmanager
def database() -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """(its address, a connection to it)."""
    name = f"makimono_bench_{os.getpid()}"
    base, _, _ = SERVER.rpartition("/")
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
        try:
            with psycopg.connect(f"{base}/{name}", autocommit=True, application_name="bench") as connection:
                yield f"{base}/{name}", connection
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def host(place: Path, address: str, rows: int, number: int, local: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """One host: its holder, which starts its daemon."""
    place.mkdir()
    arguments = json.dumps({"address": address, "rows": rows, "number": number, "local": local})
    command = [sys.executable, "-m", "benchmarks.fleet_host", str(place), arguments]
    with (place / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=children.ROOT, env=children.environment(), stdout=subprocess.PIPE, stderr=log
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def daemon_of(holder: subprocess.Popen[bytes], place: Path) -> int:
    """The pid of the daemon, once its holder says it."""
    assert holder.stdout is not None
    said = holder.stdout.readline()
    if not said:
        raise RuntimeError(f"a host did not start:\n{(place / 'daemon.log').read_text(encoding='utf-8')}")
    return int(said)


def counted(server: psycopg.Connection[Any], statement: str) -> int:
    """The one number that a statement asks for."""
    row = server.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


def look(server: psycopg.Connection[Any], daemons: list[Daemon], renewals: list[Path]) -> dict[str, float]:
    """Sums over all hosts since their start.  The server's count is a second late."""
    time.sleep(1.5)
    return {
        "questions": counted(
            server, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ),
        "renewals": sum(int(path.read_text(encoding="ascii")) for path in renewals),
        "cpu": sum(daemon.cpu() for daemon in daemons),
    }
