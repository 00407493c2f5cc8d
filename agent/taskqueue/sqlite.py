"""The default ledger, the SQLite file `base_dir/tasks.db`, which only one host can use and which needs no server."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent.store import db, migrate
from agent.taskqueue import row_holder
from agent.taskqueue.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from agent.store.configured_ledger import Finding


class SqliteLedger(Ledger):
    """The entry `sqlite` of LEDGERS (contract: `base.py`)."""

    is_local = True
    title = db.TASKS
    preload = ()

    def __init__(self, base_dir: Path, address: str = "") -> None:  # noqa: ARG002 - SQLite needs no address
        super().__init__(db.open_tasks(base_dir), place=row_holder.place(base_dir))

    @staticmethod
    def where(base_dir: Path, address: str = "") -> str:  # noqa: ARG004
        return str(base_dir / db.TASKS)

    @staticmethod
    def exists(base_dir: Path, address: str) -> bool:  # noqa: ARG004
        return (base_dir / db.TASKS).exists()

    @staticmethod
    def look(base_dir: Path, address: str) -> db.ReadOnly:  # noqa: ARG004
        return db.ReadOnly(base_dir / db.TASKS)

    @staticmethod
    def backup(base_dir: Path, address: str, target: Path) -> tuple[str, str]:  # noqa: ARG004
        """Copy tasks.db with SQLite's `VACUUM INTO`, not as a file: when a process closes a file, the kernel releases
        all locks that the process has on it, and so SQLite's locks on tasks.db."""
        source = base_dir / db.TASKS
        if source.is_file():
            db.copy(source, target / db.TASKS)
        return db.TASKS, ""

    @staticmethod
    def check(base_dir: Path, address: str) -> Finding:  # noqa: ARG004
        """Check that tasks.db is intact, and that this version of the program knows its schema."""
        path = base_dir / db.TASKS
        if not path.exists():
            return True, f"{path} is not there yet; it is made at the first use", ""
        sqlite = db.module()
        advice = (
            f"stop the daemon and move {path} and its -wal and -shm files away: the next start makes the rows again "
            f"from the tasks' folders, all but priorities; or put a backup in its place"
        )
        known = [number for number, _, _ in migrate.migrations(migrate.TASKS)]
        try:
            with closing(db.read_only(path)) as connection:
                said = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
                applied = _applied(connection, sqlite)
                count = connection.execute("SELECT COUNT(*) FROM tasks").fetchone()[0] if applied else 0
        except sqlite.Error as error:
            if not db.is_broken(error):  # tasks.db is not damaged but inaccessible or locked, so it stays
                advice = (
                    f"look at owner and mode of {path} and of its folder, and at the disk; leave the file where it is"
                )
            return False, f"{path}: {error}", advice
        if said != ["ok"]:
            return False, f"{path} is damaged: {'; '.join(said)}", advice
        if unknown := sorted(set(applied) - set(known)):
            return False, f"{path} has schema {unknown[-1]}, this version knows {known[-1]}", "update the program"
        if set(known) - set(applied):
            return True, f"{path} is whole, {count} task(s); its schema is brought up to date at the next use", ""
        return True, f"{path} is whole, {count} task(s), schema {known[-1]}", ""


def _applied(connection: object, sqlite: object) -> list[int]:
    """The numbers of the migrations that were applied to a database; [] if the table `schema_version` cannot be read,
    as in a new database."""
    try:
        rows = connection.execute("SELECT version FROM schema_version ORDER BY version")  # type: ignore[attr-defined]
        return [int(row[0]) for row in rows]
    except sqlite.OperationalError:  # type: ignore[attr-defined]
        return []
