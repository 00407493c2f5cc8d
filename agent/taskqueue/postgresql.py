"""The ledger in a PostgreSQL database, which many hosts share (docs/scaling.md)."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent import clock
from agent.config.url_passwords import hide_password
from agent.store import configured_ledger, migrate, postgres, postgres_memory_log
from agent.taskqueue import row_holder
from agent.taskqueue.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from agent.store.configured_ledger import Finding

OLDEST = 120_000
"""The oldest version of PostgreSQL with which the program was tested: 12."""
APART = 5.0
"""Seconds by which the local clock and that of the server may differ before `doctor` warns, because leases use the
clock of the server."""


class PostgresLedger(Ledger):
    """The entry `postgresql` of LEDGERS (contract: `base.py`).

    `address` is `postgresql://user:password@host:port/database`; `base_dir` is that of this host, since each host has
    its own.
    """

    is_local = False
    preload = ("psycopg", "agent.store.postgres", "agent.store.postgres_memory_log", "agent.taskqueue.postgresql")

    def __init__(self, base_dir: Path, address: str) -> None:
        super().__init__(postgres.open_postgres(address), place=row_holder.place(base_dir))

    @staticmethod
    def where(base_dir: Path, address: str) -> str:  # noqa: ARG004 - `LedgerEntry` has this parameter
        return hide_password(address)

    @staticmethod
    def look(base_dir: Path, address: str) -> postgres.PostgresDatabase:  # noqa: ARG004
        return postgres.PostgresDatabase(address, patience=0)

    @staticmethod
    def memory_log(base_dir: Path, address: str) -> postgres_memory_log.MemoryLogDatabase:  # noqa: ARG004
        return postgres_memory_log.open_memory_log(address)

    @classmethod
    def backup(cls, base_dir: Path, address: str, target: Path) -> tuple[str, str]:
        with closing(cls.look(base_dir, address)) as database:
            configured_ledger.write_lines(database, target)
        said = f"{configured_ledger.LINES} is to look at, `pg_dump` makes what can be restored"
        return configured_ledger.LINES, f"the rows are kept in PostgreSQL: {said}"

    @classmethod
    def check(cls, base_dir: Path, address: str) -> Finding:
        """Check the server for `doctor`: its version, the schema of this program, the rows, and the difference between
        the clocks."""
        with closing(cls.look(base_dir, address)) as database:
            (server,) = database.execute(
                "SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version"
            )
            about = f"{database.where} is PostgreSQL {server['version']}"
            if int(server["number"]) < OLDEST:
                return False, about, "use PostgreSQL 12 or newer"
            apart = abs((database.now() - clock.now()).total_seconds())
            if apart > APART:
                return False, f"{about}; its clock and this one are {apart:.0f} s apart", "set both clocks by NTP"
            if not database.has_table("schema_version"):
                return True, f"{about}; our tables are made at the first use", ""
            applied = max((row["version"] for row in database.execute("SELECT version FROM schema_version")), default=0)
            newest = migrate.migrations(migrate.TASKS)[-1][0]
            if applied > newest:
                said = f"{about} with schema {applied}; this version knows {newest}"
                return False, said, "update the program on this host"
            (count,) = database.execute("SELECT COUNT(*) AS count FROM tasks")
            return True, f"{about}, {count['count']} task(s), schema {applied}", ""
