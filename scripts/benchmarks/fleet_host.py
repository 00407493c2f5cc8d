"""A host of `fleet.py`: a UTS namespace with a name of its own, a process that holds rows, and a daemon below it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

from benchmarks.daemon import command, configured

if TYPE_CHECKING:
    from agent.values import TaskKey

NEWUTS, NEWUSER = 0x04000000, 0x10000000  # unshare(2)
RENEW_SECONDS = 20.0


def uuid_of(number: int, one: int) -> str:
    """The uuid of one row of a host."""
    return str(uuid5(NAMESPACE_OID, f"{number} {one}"))


def key_of(number: int, one: int, tracker: str) -> TaskKey:
    """What that row is about."""
    from agent.values import TaskKey

    return TaskKey("local", f"o{number}", "r", "issue", str(one), tracker)


def main(place: Path, address: str, rows: int, number: int, local: dict[str, object]) -> None:
    """Say the daemon's pid once it runs; work until SIGTERM."""
    name_host(f"bench{number}")
    from agent import durable_files
    from agent.config import load
    from agent.context.manager import LEASE_SECONDS
    from agent.wiring.wiring import Wiring

    # More room than rows, so that the daemon looks for more to do.
    path = configured(
        place, "http://127.0.0.1:9", local, scheduling={"max_workers": 300}, taskqueue={"ledger": address}
    )
    with closing(Wiring(load(path, environ={}))) as wiring:
        held = []
        backend = wiring.db.execute("SELECT pg_backend_pid() AS pid")[0]["pid"]
        (place / "backend").write_text(str(backend), encoding="ascii")
        (place / "renewals").write_text("0", encoding="ascii")
        for one in range(rows):
            uuid = uuid_of(number, one)
            folder = place / "contexts" / "running" / uuid
            folder.mkdir(parents=True)
            durable_files.lock(folder / "lock")
            # Each by itself: within a transaction the hosts would wait for each other, the last of them too long.
            held.append((uuid, wiring.ledger.claim(uuid, wiring.owner, LEASE_SECONDS).attempt))
        daemon = subprocess.Popen(command(path, "--role", "worker"), stdin=subprocess.DEVNULL, stdout=sys.stderr)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            print(daemon.pid, flush=True)
            done = 0
            while True:
                for uuid, attempt in held:
                    wiring.ledger.heartbeat(uuid, attempt, LEASE_SECONDS)
                    done += 1
                    (place / "renewals.new").write_text(str(done), encoding="ascii")
                    (place / "renewals.new").replace(place / "renewals")
                    time.sleep(RENEW_SECONDS / rows)
        finally:
            daemon.terminate()
            daemon.wait()


def name_host(name: str) -> None:
    """Give this process, and what it starts, a host name of their own."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = NEWUTS if os.geteuid() == 0 else NEWUTS | NEWUSER
    if libc.unshare(flags) or libc.sethostname(name.encode(), len(name)):
        raise OSError(ctypes.get_errno(), "no UTS namespace can be had, which this bench needs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
