"""Twenty daemons on one PostgreSQL, each a process on a host of its own (a UTS namespace) with 200 rows that run.

Workers are not what is measured: on each host one process (`fleet_host.py`) holds 200 folders' locks and claims, and
renews the leases as 200 workers would.  What the daemons ask is what the server counts less those renewals.  The server
is the one of the tests (`MAKIMONO_TEST_POSTGRES`), in a database of its own, so that nobody else's questions count.
Two windows: one in which nothing happens, and one in which the ledger tells of changes all the time, as it does where
hundreds of tasks come and go.  The CPU of the server is that of the processes that answer, where they can be seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import children, machine, project
from benchmarks.daemon import TICKS, Daemon
from benchmarks.figures import at_most
from benchmarks.fleet_host import key_of, uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVER = os.environ.get("MAKIMONO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
HOSTS, ROWS = 20, 200
SETTLED, SECONDS, BUSY_SECONDS = 45.0, 120.0, 60.0
CHANGES = 10.0
"""Notices a second in the second window."""
PATIENCE = 900.0
"""Seconds for all daemons to start: twenty of them, and twenty holders, share the cores of one machine."""
CONNECTED = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'makimono' AND datname = current_database()"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'makimono' AND datname = current_database()"
TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
QUERIES, CONNECTIONS, CPU, DATABASE_CPU = 2.0, 3.0, 2.0, 1.0
"""What one daemon may have where nothing happens: questions a second, connections, per cent of a core, the same of the
server."""
BUSY_QUERIES, BUSY_CPU = 5.0, 5.0
"""The same while others change rows all the time."""


class Below(Daemon):
    """A daemon that is the child of another process, which renews leases over a connection of its own."""

    def __init__(self, place: Path, pid: int) -> None:
        self.pid = pid
        self.place = place
        self.log = place / "daemon.log"
        self.contexts = place / "contexts"

    @property
    def proc(self) -> Path:
        return Path("/proc") / str(self.pid)

    def renewals(self) -> int:
        """How many its holder has done."""
        return int((self.place / "renewals").read_text(encoding="ascii"))

    def holder_backend(self) -> int:
        """The pid of the server's process that answers the holder."""
        return int((self.place / "backend").read_text(encoding="ascii"))

    def wait(self, deadline: float) -> None:
        """Until it works; RuntimeError when it does not."""
        while "daemon_started" not in (said := self.log.read_text(encoding="utf-8")):
            if not self.proc.exists() or time.monotonic() > deadline:
                raise RuntimeError(f"a daemon did not start:\n{said}")
            time.sleep(0.2)


def measure(
    hosts: int = HOSTS, rows: int = ROWS, settled: float = SETTLED, seconds: float = SECONDS, busy: float = BUSY_SECONDS
) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    with children.workplace() as place, database() as (address, server), ExitStack() as ends:
        local = project.make(place, 0)
        queue(address, hosts, rows, place)
        machine.say(f"{hosts * rows} rows are there; {hosts} hosts start")
        folders = [place / f"host{number}" for number in range(hosts)]
        holders = [
            ends.enter_context(host(folder, address, rows, number, local)) for number, folder in enumerate(folders)
        ]
        daemons = [Below(folder, daemon_of(holder, folder)) for folder, holder in zip(folders, holders, strict=True)]
        for daemon in daemons:
            daemon.wait(deadline)
        machine.say(f"{hosts} daemons with {rows} rows each; settling for {settled:.0f} s")
        time.sleep(settled)
        running = counted(server, "SELECT COUNT(*) FROM tasks WHERE status = 'running'")
        if running != hosts * rows:
            raise RuntimeError(f"{running} rows run instead of {hosts * rows}: a daemon took a living holder for dead")
        quiet = window(server, daemons, lambda: rest(seconds))
        stirred = window(server, daemons, lambda: stir(server, busy))
        connections = counted(server, CONNECTED)  # now: the one that listens is opened last
        for holder in holders:
            holder.terminate()  # all at once; each waits for its daemon
    for name, seen in (("quiet", quiet), ("stirred", stirred)):
        machine.say(f"{name}, a daemon: {', '.join(f'{what} {value:.4f}' for what, value in seen.items())}")
    what = f"of one of {hosts} daemons with {rows} rows each, {seconds:.0f} s"
    held = (connections - hosts) / hosts  # the holder on each host has one too
    changing = f"of the same while the ledger tells of {CHANGES:g} changes a second, {busy:.0f} s"
    figures = {
        "fleet.queries": at_most(quiet["questions"], QUERIES, 1.0, "questions a second", f"to the ledger, {what}"),
        "fleet.connections": at_most(held, CONNECTIONS, 1.0, "connections", what),
        "fleet.cpu": at_most(100 * quiet["cpu"], CPU, 1.0, "% of a core", f"CPU {what}"),
        "fleet.busy_queries": at_most(stirred["questions"], BUSY_QUERIES, 1.0, "questions a second", changing),
        "fleet.busy_cpu": at_most(100 * stirred["cpu"], BUSY_CPU, 1.0, "% of a core", f"CPU {changing}"),
    }
    if "database" in quiet:
        each = 1e6 * quiet["renewing"] / max(1e-9, quiet["renewals"])
        figures["fleet.database_cpu"] = at_most(
            100 * quiet["database"],
            DATABASE_CPU,
            1.0,
            "% of a core",
            f"CPU of the server's processes for the daemon, {what}",
            renewal_microseconds=round(each),
            while_changing=round(100 * stirred["database"], 3),
        )
    return figures


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


def queue(address: str, hosts: int, rows: int, place: Path) -> None:
    """Put all rows, in one transaction: the hosts would wait for each other's, the last of them too long."""
    from agent.taskqueue.postgresql import PostgresLedger

    with closing(PostgresLedger(place, address)) as ledger, ledger.db.transaction():
        for number in range(hosts):
            for one in range(rows):
                key = key_of(number, one, str(place / "tracker"))
                ledger.enqueue(key, uuid=uuid_of(number, one), user=f"user{number}", title="A row that runs")


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


def rest(seconds: float) -> int:
    """Nothing happens; so many questions were asked here."""
    time.sleep(seconds)
    return 0


def stir(server: psycopg.Connection[Any], seconds: float) -> int:
    """Tell of changes, as workers do whose tasks end; so many questions were asked here."""
    until, asked = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        server.execute(b"SELECT pg_notify('makimono ' || current_schema(), '')")
        asked += 1
        time.sleep(1 / CHANGES)
    return asked


def window(server: psycopg.Connection[Any], daemons: list[Below], passes: Callable[[], int]) -> dict[str, float]:
    """What one daemon used a second while `passes` ran: questions (its own), CPU of it and of the server for it;
    renewals of its holder, and CPU of the server for those."""
    before, started = look(server, daemons), time.monotonic()
    ours = passes()
    after, took = look(server, daemons), time.monotonic() - started
    after["questions"] -= ours
    grown = {name: (after[name] - before[name]) / len(daemons) / took for name in before if name in after}
    grown["questions"] -= grown["renewals"]
    return grown


def look(server: psycopg.Connection[Any], daemons: list[Below]) -> dict[str, float]:
    """Sums over all hosts since their start.  The server's count is a second late."""
    time.sleep(1.5)
    seen = {
        "questions": counted(server, TRANSACTIONS),
        "renewals": sum(daemon.renewals() for daemon in daemons),
        "cpu": sum(daemon.cpu() for daemon in daemons),
    }
    holding = {daemon.holder_backend() for daemon in daemons}
    pids = {int(row[0]) for row in server.execute(BACKENDS.encode())}
    with suppress(OSError):  # a server on another machine, or of another user
        used = {pid: cpu_of(pid) for pid in pids}
        seen["database"] = sum(cpu for pid, cpu in used.items() if pid not in holding)
        seen["renewing"] = sum(cpu for pid, cpu in used.items() if pid in holding)
    return seen


def cpu_of(pid: int) -> float:
    """CPU seconds of a process of the server."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")
    if "postgres" not in name:
        raise OSError(f"process {pid} here is not the server's")
    return sum(map(int, rest.split()[11:13])) / TICKS
