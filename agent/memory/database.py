"""The connection to memory.db.  The connection raises `MemoryUnavailable` for every error of SQLite."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import HostError, LedgerError, MemoryUnavailable
from agent.memory import schema
from agent.memory.schema import MIGRATIONS
from agent.mountinfo import mounts
from agent.store import migrate
from agent.store.db import Database, is_broken

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "memory.db"
NETWORK = re.compile(r"(nfs|cifs|smb|ceph|9p|glusterfs|lustre|gfs2|ocfs2|afs|beegfs|fuse\.(sshfs|glusterfs|ceph|s3fs))")
"""Types of file systems that several hosts can mount at once."""
_GONE = re.compile(r"no such (fts5 )?table|vtable constructor failed")
BUSY_SECONDS = 5.0
"""Maximum seconds that a writer of memory.db waits for another writer. Readers of memory.db do not wait for a
writer."""
CACHE_KIB = 512
"""The size of SQLite's page cache in each process that has memory.db open, in KiB (SQLite's default is 2,000). A small
cache suffices: a task reads memory.db a few times in hours, so the pages of one retrieval are of no use for the next,
and all processes share the cache of the kernel."""


class MemoryDatabase(Database):
    """Opens memory.db and migrates it to the newest schema; creates the file when it is missing.

    Every error of SQLite is raised as MemoryUnavailable, so that a caller needs only one `except` to continue without
    memory.
    """

    queries_folder = "memory"
    pragmas = (*Database.pragmas, "secure_delete = ON", f"cache_size = -{CACHE_KIB}")

    def __init__(self, path: Path, *, busy_timeout: float = BUSY_SECONDS) -> None:
        self._stopped = False
        with _translated():
            super().__init__(path, busy_timeout=busy_timeout)
        migrate.bring_up(self, _migrate)

    def stop(self) -> None:
        """Interrupt the statement that another thread runs on memory.db; every later statement raises
        MemoryUnavailable. Never waits."""
        self._stopped = True
        self._connection.interrupt()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A context manager within which all statements see one state of the file, although other processes may write
        meanwhile; the statements may only read. Within a write transaction of this thread, `reading` has no effect."""
        self._same_process()
        with self._lock:
            if self._is_open and self._connection.in_transaction:
                yield
                return
            self._keep_files()
            self._retried("BEGIN", {})
            try:
                yield
            finally:
                self._roll_back()

    def _connect(self) -> Any:
        with _translated():
            return super()._connect()

    def _same_process(self) -> None:
        if self._stopped:
            raise MemoryUnavailable(f"{self.where} was closed while it was asked")
        if self._pid != os.getpid():
            raise MemoryUnavailable(f"{self.where} was opened before the fork; open it in the process that uses it")

    def _translate(self, error: Exception) -> MemoryUnavailable:
        if _GONE.search(str(error)):
            return MemoryUnavailable(
                f"a table or an index of {self.where} is missing ({error}); `memory rebuild` makes it again"
            )
        if is_broken(error):
            return MemoryUnavailable(
                f"{self.where} is damaged or no SQLite database ({error}). If only an index is damaged, `memory "
                f"rebuild` makes it again. Else stop what uses it and put a backup in its place, or move it, its -wal "
                f"and its -shm away: memory then begins anew, or follows the shared log"
            )
        return MemoryUnavailable(f"memory cannot be used: {super()._translate(error)}")


def refuse_network(path: Path, process: Path = Path("/proc/self")) -> None:
    """Raise MemoryUnavailable if memory.db is on a file system that several hosts can mount: all users of SQLite's
    write-ahead log must run on one kernel (https://www.sqlite.org/wal.html)."""
    place = path.absolute()
    holds = [one for one in mounts(process) if place.is_relative_to(one.place)]
    kind = max(holds, key=lambda one: len(one.place)).kind if holds else ""
    if NETWORK.match(kind):
        raise MemoryUnavailable(
            f"{path} is on a network file system ({kind}), where several hosts would damage it; give each host a "
            f"context_storage.base_dir on a local disk, or set memory.enabled to false"
        )


def _migrate(database: Any) -> None:
    with _translated():
        schema.check(database)
        migrate.apply(database, MIGRATIONS)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except MemoryUnavailable:
        raise
    except (HostError, LedgerError, OSError) as error:
        raise MemoryUnavailable(f"memory cannot be used: {error}") from error
