"""`agent.store.db`, `migrate` and `token_ratios`: one connection, one schema, three tries."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from agent.errors import DiskError, HostError, LedgerError
from agent.store import db, migrate
from agent.store.queries import LEDGER, queries
from agent.store.token_ratios import RatioTable
from agent.tokens import LearntRatios

sqlite = db.module()

SEED = """
CREATE TABLE tasks (
    uuid TEXT PRIMARY KEY, task_source TEXT NOT NULL, owner TEXT NOT NULL, repo TEXT NOT NULL, task_type TEXT NOT NULL,
    task_id TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL, started_at TEXT, completed_at TEXT,
    process_id INTEGER, hostname TEXT, llm_provider TEXT, model TEXT, context_length INTEGER,
    llm_call_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, total_tokens INTEGER DEFAULT 0,
    compression_count INTEGER DEFAULT 0, error_message TEXT, user TEXT
);
CREATE INDEX idx_tasks_status ON tasks(status);
CREATE INDEX idx_tasks_created_at ON tasks(created_at);
CREATE INDEX idx_tasks_user ON tasks(user);
"""


def insert(database, uuid, status="running", task_id="27", instance=""):
    database.execute(
        "INSERT INTO tasks (uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at) "
        "VALUES (:uuid, 'github', :instance, 'o', 'r', 'issue', :task_id, :status, '2026-01-31T09:15:00.123456Z')",
        uuid=uuid,
        status=status,
        task_id=task_id,
        instance=instance,
    )


@pytest.fixture
def tasks(tmp_path):
    database = db.open_tasks(tmp_path / "contexts")
    yield database
    database.close()


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 4), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 53, 4), True),
    ],
)
def test_only_versions_without_the_wal_reset_bug_are_safe(version, safe):
    assert db.is_safe(version) is safe


def test_the_version_in_use_is_safe_and_told_to_doctor():
    version, name, safe = db.sqlite_version()
    assert safe
    assert version == sqlite.sqlite_version
    assert name == sqlite.__name__


def test_the_seeds_columns_come_first_with_their_types_and_indexes(tasks):
    seed = sqlite.connect(":memory:")
    seed.executescript(SEED)
    wanted = [row[1:3] for row in seed.execute("PRAGMA table_info(tasks)")]
    seed.close()
    found = [(row["name"], row["type"]) for row in tasks.execute("PRAGMA table_info(tasks)")]
    assert found[: len(wanted)] == wanted
    indexes = {row["name"] for row in tasks.execute("PRAGMA index_list(tasks)")}
    assert {"idx_tasks_status", "idx_tasks_created_at", "idx_tasks_user"} <= indexes


def test_the_connection_is_durable_and_waits(tasks):
    assert tasks.execute("PRAGMA journal_mode")[0]["journal_mode"] == "wal"
    assert tasks.execute("PRAGMA synchronous")[0]["synchronous"] == 2
    assert tasks.execute("PRAGMA busy_timeout")[0]["timeout"] == 30_000
    assert tasks.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("status", ["queued", "running", "paused"])
def test_one_key_has_one_open_row(tasks, status):
    insert(tasks, "a", status)
    with pytest.raises(LedgerError, match="UNIQUE"):
        insert(tasks, "b", "queued")
    insert(tasks, "c", "completed")
    insert(tasks, "d", "queued", instance="other.example")
    insert(tasks, "e", "queued", task_id="28")


def test_migrations_are_applied_once_and_recorded(tasks):
    assert migrate.apply(tasks) == []
    numbers = [row["version"] for row in tasks.execute("SELECT version FROM schema_version ORDER BY version")]
    assert numbers == [number for number, _, _ in migrate.migrations(migrate.TASKS)]


def test_a_table_made_from_the_seed_is_taken_over(tmp_path):
    old = sqlite.connect(tmp_path / "tasks.db")
    old.executescript(SEED)
    for uuid, status, created in (("a", "running", "1"), ("b", "running", "2"), ("c", "completed", "0")):
        old.execute(
            "INSERT INTO tasks (uuid, task_source, owner, repo, task_type, task_id, status, created_at, total_tokens) "
            "VALUES (?, 'github', 'o', 'r', 'issue', '1', ?, ?, 7)",
            (uuid, status, created),
        )
    old.commit()
    old.close()
    database = db.open_tasks(tmp_path)
    rows = {row["uuid"]: row for row in database.run("task_list", status=None, limit=10)}
    assert {uuid: row["status"] for uuid, row in rows.items()} == {"a": "failed", "b": "running", "c": "completed"}
    assert all(row["total_tokens"] == 7 and row["instance"] == "" and row["attempt"] == 0 for row in rows.values())
    database.close()


def test_a_newer_schema_is_refused(tmp_path):
    database = db.open_tasks(tmp_path)
    database.execute("INSERT INTO schema_version VALUES (9999, 'later', '')")
    database.close()
    with pytest.raises(HostError, match="newer version"):
        db.open_tasks(tmp_path)


def test_many_processes_may_open_a_new_database_at_once(tmp_path):
    children = []
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                database = db.open_tasks(tmp_path)
                insert(database, str(os.getpid()), task_id=str(os.getpid()))
                database.close()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 6
    database = db.open_tasks(tmp_path)
    assert database.run("ledger_counts") == [{"status": "running", "count": 6}]
    database.close()


def test_a_transaction_that_raises_leaves_nothing(tasks):
    def insert_twice():
        with tasks.transaction():
            insert(tasks, "a")
            insert(tasks, "a")

    with pytest.raises(LedgerError):
        insert_twice()
    assert tasks.run("task_get", uuid="a") == []
    with tasks.transaction():
        insert(tasks, "a")
    assert tasks.run("task_get", uuid="a")[0]["status"] == "running"


def test_another_writer_is_waited_for(tmp_path, tasks):
    other = sqlite.connect(tasks.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.15, lambda: other.execute("COMMIT")).start()
    insert(tasks, "a")
    time.sleep(0.01)
    other.close()
    assert tasks.run("task_get", uuid="a")


def test_a_database_that_stays_busy_is_tried_three_times_and_named(tasks):
    other = sqlite.connect(tasks.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tasks.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(LedgerError, match="busy"):
        insert(tasks, "a")
    with pytest.raises(LedgerError, match="busy"), tasks.transaction():
        pass
    other.execute("COMMIT")
    other.close()
    insert(tasks, "a")


def test_one_connection_serves_several_threads(tasks):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: insert(tasks, str(number), task_id=str(number)), range(40)))
    assert tasks.run("ledger_counts") == [{"status": "running", "count": 40}]


def test_a_connection_from_before_the_fork_is_refused(tasks):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            tasks.run("ledger_counts")
        except LedgerError as error:
            code = 0 if "before the fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path):
    (tmp_path / "tasks.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(HostError, match="no SQLite database"):
        db.open_tasks(tmp_path)


def test_a_place_that_cannot_be_written_is_a_disk_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DiskError):
        db.open_tasks(tmp_path / "file" / "contexts")


def test_an_unknown_query_is_named(tasks):
    with pytest.raises(ValueError, match="no_such_query"):
        tasks.run("no_such_query")


def test_every_query_is_one_statement_with_named_parameters(tasks):
    for name, statement in queries(LEDGER).items():
        assert "?" not in statement, name
        assert ";" not in statement, name
        tasks.execute("EXPLAIN " + statement, **dict.fromkeys(_parameters(statement)))


def _parameters(statement):
    import re

    return set(re.findall(r":(\w+)", statement))


def test_a_ratio_is_learnt_and_kept(tasks):
    ratios = LearntRatios(RatioTable(tasks))
    assert ratios.get("m") == 1.0
    assert ratios.learn("m", 1000, 1500) == 1.5
    assert ratios.learn("m", 1000, 1100) == 1.3
    assert ratios.learn("m", 1000, 1300) == 1.3
    assert ratios.learn("m", 1000, 2300) == 1.6
    assert LearntRatios(RatioTable(tasks)).get("m") == ratios.get("m") == 1.6
    assert RatioTable(tasks).read("m") == (1.6, 4)


def test_a_settled_ratio_is_written_again_only_for_news(tasks):
    ratios = LearntRatios(RatioTable(tasks))
    for _ in range(5):
        ratios.learn("m", 1000, 1500)
    assert ratios.learn("m", 1000, 1507) == 1.5
    assert tasks.run("ratio_get", model="m")[0]["samples"] == 3
    assert ratios.learn("m", 1000, 1600) == 1.53
    assert tasks.run("ratio_get", model="m")[0]["samples"] == 4


def test_without_pysqlite3_pythons_own_is_taken_only_if_it_is_safe():
    code = """
import sqlite3, sys
sys.modules["pysqlite3"] = None
from agent.errors import HostError
from agent.store import db
try:
    taken = db.module() is sqlite3
except HostError as error:
    taken = not db.is_safe(sqlite3.sqlite_version_info) and "pip install" in str(error) and not db.sqlite_version()[2]
sys.exit(0 if taken else 1)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_log_that_another_sqlite_library_of_this_process_removed_loses_nothing(tmp_path):
    import sqlite3

    from agent.context import TaskContextManager

    config = {
        "context_storage": {"base_dir": str(tmp_path)},
        "llm": {"provider": "openai", "openai": {"model": "m", "api_key": "key-of-the-test", "context_length": 9000}},
    }
    key = {"task_source": "local", "owner": "local", "repo": "default", "task_type": "issue", "task_id": "1"}
    with TaskContextManager(key, "550e8400-e29b-41d4-a716-446655440000", config) as task:
        for number in range(1, 6):
            task.update_statistics(llm_calls=1)
            other = sqlite3.connect(tmp_path / "tasks.db")  # as a person's script would
            assert other.execute("SELECT llm_call_count FROM tasks").fetchone() == (number,)
            other.close()
            assert task.row["llm_call_count"] == number
    again = db.open_tasks(tmp_path)
    assert again.execute("SELECT llm_call_count FROM tasks") == [{"llm_call_count": 5}]
    again.close()


def test_each_database_has_its_own_migrations_with_its_own_numbers(tmp_path, monkeypatch):
    """A new database is a folder named after its first table."""
    folder = tmp_path / "migrations"
    (folder / "toys").mkdir(parents=True)
    (folder / "toys" / "0001_toys.sql").write_text("CREATE TABLE toys (id INTEGER PRIMARY KEY);\n")
    (folder / "toys" / "0002_name.sql").write_text("ALTER TABLE toys ADD COLUMN name TEXT;\n")
    monkeypatch.setattr(migrate, "FOLDER", folder)
    with closing(db.Database(tmp_path / "toys.db")) as toys:
        assert migrate.apply(toys, "toys") == [1, 2]
        assert migrate.apply(toys, "toys") == []
        assert migrate.newer(toys, "toys") == ""
        assert not toys.has_table("tasks")
        toys.execute("INSERT INTO toys (name) VALUES ('ball')")
        toys.define("DROP TABLE toys")
        migrate.apply(toys, "toys")
        assert toys.execute("SELECT name FROM toys") == []
        (folder / "toys" / "0002_name.sql").unlink()
        migrate.migrations.cache_clear()
        assert "schema 2, this version knows 1" in migrate.newer(toys, "toys")
    migrate.migrations.cache_clear()


def test_a_statement_for_each_of_several_words_is_one_for_each_combination(tmp_path, monkeypatch):
    from agent.store import queries as module

    (tmp_path / "x.sql").write_text(
        "-- for each kind: event, record\n-- for each part: turn,session\n\n"
        "-- name: {kind}_{part}_get\nSELECT 1 FROM {kind}_{part};\n\n-- name: {kind}_all\nSELECT 2 FROM {kind};\n\n"
        "-- name: plain\nSELECT '{kind}';\n"
    )
    monkeypatch.setattr(module, "FOLDER", tmp_path.parent)
    found = module.queries.__wrapped__(tmp_path.name)
    assert found == {
        "event_turn_get": "SELECT 1 FROM event_turn",
        "event_session_get": "SELECT 1 FROM event_session",
        "record_turn_get": "SELECT 1 FROM record_turn",
        "record_session_get": "SELECT 1 FROM record_session",
        "event_all": "SELECT 2 FROM event",
        "record_all": "SELECT 2 FROM record",
        "plain": "SELECT '{kind}'",
    }
    (tmp_path / "y.sql").write_text("-- name: event_all\nSELECT 3;\n")
    with pytest.raises(ValueError, match="event_all is defined twice"):
        module.queries.__wrapped__(tmp_path.name)
