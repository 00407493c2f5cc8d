"""kill -9 at points of a write, a forgetting, a follow and an import with a shared log: both hosts agree afterwards, and
what was done again is there once.

The work runs in a forked process that kills itself at the n-th call of a function of memory or of its databases.  The
short form takes points at equal distances, the long one many more.
"""

import shutil

import psycopg
import pytest
import services
from function_calls import killed_at
from length import either
from shared_memory import contents, host, rows

from agent.config import Settings
from agent.memory import MemoryStore, NewEvent, Selector

POINTS = either(7, 250)
WATCHED = ("/agent/memory/", "/agent/store/")
WORD = "zanzibarquokka"
TABLES = ("memory_log", "memory_log_state", "memory_jobs")


def write(store):
    store.create_events([NewEvent("o", "s1", f"new {n}", client_token=f"new {n}") for n in range(3)])
    store.create_memory_record("/facts/o/", "learnt by the killed one", strategy="facts", files=["a.py"])


def forget(store):
    store.forget(Selector(match=WORD), dry_run=False)
    store.follow()


def follow(store):
    store.follow()


WORK = {"write": write, "forget": forget, "follow": follow, "join": follow}


class Fleet:
    """Host `a`, which stays up, and host `b`, which is killed; restored before each kill."""

    def __init__(self, folder, address, work):
        self.folder, self.address, self.work = folder, address, work
        with self.host("a") as a, self.host("b") as b:
            a.create_events([NewEvent("o", f"s{n // 9}", f"message {n}", client_token=f"{n}") for n in range(40)])
            a.create_event("o", "s1", f"the owner said {WORD} once")
            a.create_memory_record("/facts/o/", "the port is 8080", strategy="facts", event_ids=[1, 2])
            if work != "join":
                b.follow()
            a.create_event("o", "s2", "b has not followed this")
            if work == "follow":
                a.forget(Selector(match=WORD), dry_run=False)
        if work == "join":
            shutil.rmtree(folder / "b", ignore_errors=True)
            alone = MemoryStore(folder / "b", Settings().memory, who="before")
            alone.create_events([NewEvent("o", "s1", f"own {n}") for n in range(5)])
            alone.create_event("o", "s1", "message 3", client_token="3")
            alone.create_memory_record("/facts/o/", "The port is  8080", strategy="facts", event_ids=[1])
            fact = alone.create_memory_record("/facts/o/", "b alone knew this", strategy="facts", event_ids=[2])
            alone.mark_used([fact.id], "task")
            alone.close()
        for name in ("a", "b"):
            shutil.copytree(folder / name, folder / f"kept-{name}")
        self.sql("; ".join(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}" for table in TABLES))

    def host(self, name):
        from contextlib import closing

        return closing(host(self.folder / name, self.address))

    def sql(self, statements):
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(statements)

    def fresh(self):
        for name in ("a", "b"):
            shutil.rmtree(self.folder / name)
            shutil.copytree(self.folder / f"kept-{name}", self.folder / name)
        self.sql("; ".join(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}" for table in TABLES))

    def killed_at(self, number):
        """Do the work on `b` in a process that is killed at its `number`-th call; the number of calls it got to."""
        return killed_at(number, WATCHED, lambda: self.host("b"), WORK[self.work])

    def state(self):
        """What both hosts have when the work was done again on `b`, without ids and numbers."""
        with self.host("a") as a, self.host("b") as b:
            WORK[self.work](b)
            b.follow()
            a.follow()
            first, second = contents(a), contents(b)
            assert first == second
            assert [row["number"] for row in rows(self.address)] == [row["number"] for row in first["log"]]
            assert [row["integrity_check"] for row in b._open.database.execute("PRAGMA integrity_check")] == ["ok"]
            assert not b.log_status()["own"]
            records = sorted((row["text"], row["status"], row["helped"]) for row in first["records"])
            return sorted((row["text"], row["client_token"] or "") for row in first["events"]), records

    def leaves_no_byte(self):
        for name in ("a", "b"):
            for path in (self.folder / name).glob("memory*"):
                assert WORD.encode() not in path.read_bytes()
        assert WORD not in str(rows(self.address))


@pytest.mark.parametrize("work", WORK)
def test_a_kill_at_any_point_leaves_two_hosts_that_agree_and_nothing_twice(tmp_path, work):
    with services.schema(tmp_path) as address:
        fleet = Fleet(tmp_path, address, work)
        calls = fleet.killed_at(0)
        whole = fleet.state()
        assert calls > 100
        for point in range(1, calls + 1, max(1, calls // POINTS)):
            fleet.fresh()
            fleet.killed_at(point)
            assert fleet.state() == whole, f"killed at call {point} of {calls}"
            if work in ("forget", "follow"):
                fleet.leaves_no_byte()
