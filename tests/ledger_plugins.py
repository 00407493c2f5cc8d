"""Ledgers as a user writes them (docs/scaling.md, A ledger of your own): a minimal one and a complete one."""

from contextlib import closing
from pathlib import Path

from agent.store import db
from agent.taskqueue import Ledger, row_holder

FILE = "elsewhere/rows.db"


def elsewhere(base_dir, address):
    """The minimal one: a function.  The rows are in another file, below base_dir."""
    return Ledger(db.open_file(base_dir / FILE), place=row_holder.place(base_dir))


class AtAddress:
    """The complete one, around a ledger: `ledger_plugins:AtAddress:///folder/rows.db`."""

    is_local = True
    title = "rows"

    def __init__(self, base_dir, address):
        self._ledger = Ledger(db.open_file(self.file(address)), place=row_holder.place(base_dir))

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    @staticmethod
    def file(address):
        return Path(address.partition("://")[2])

    @classmethod
    def where(cls, base_dir, address):
        return f"the rows in {cls.file(address)}"

    @classmethod
    def exists(cls, base_dir, address):
        return cls.file(address).exists()

    @classmethod
    def look(cls, base_dir, address):
        return db.ReadOnly(cls.file(address))

    @classmethod
    def check(cls, base_dir, address):
        if not cls.exists(base_dir, address):
            return False, f"{cls.file(address)} is not there", "start a daemon"
        with closing(cls.look(base_dir, address)) as database:
            (found,) = database.execute("SELECT COUNT(*) AS count FROM tasks")
        return True, f"{cls.file(address)} holds {found['count']} row(s)", ""

    @classmethod
    def backup(cls, base_dir, address, target):
        db.copy(cls.file(address), target / "rows.db")
        return "rows.db", "put rows.db back where it was"


def broken(base_dir, address):
    """Returns an object that is not a ledger."""
    return {}
