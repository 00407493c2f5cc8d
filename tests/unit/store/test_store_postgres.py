"""`agent.store.postgres`: the same queries over a real server, its clock, and connections that are cut."""

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
import services

from agent import clock
from agent.errors import ConfigError, HostError, LedgerError
from agent.store import configured_ledger, db, migrate, postgres
from agent.store.pg_notices import CHANNEL
from agent.store.queries import LEDGER, queries
from agent.store.token_ratios import RatioTable
from agent.tokens import LearntRatios


@pytest.fixture
def address(tmp_path):
    with services.schema(tmp_path) as address:
        yield address


@pytest.fixture
def tasks(tmp_path, address):
    database = postgres.open_postgres(address)
    yield database
    database.close()


def insert(database, uuid, **more):
    values = {"status": "queued", "task_id": "7", "title": None, **more}
    database.execute(
        "INSERT INTO tasks (uuid, task_source, owner, repo, task_type, task_id, status, created_at, title) "
        "VALUES (:uuid, 'github', 'o', 'r', 'issue', :task_id, :status, '2026-01-31T09:15:00.123456Z', :title)",
        uuid=uuid,
        **values,
    )


def cut(tasks):
    """End the connection from the server's side."""
    (pid,) = tasks.execute("SELECT pg_backend_pid() AS pid")
    with psycopg.connect(services.POSTGRES, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pid["pid"],))


def test_parameters_are_translated_and_percent_signs_and_comments_are_not():
    made = postgres.translated("-- seed 002: x\nSELECT '%' FROM t WHERE a = :a AND b::text = :b_1 -- :c")
    assert made.strip() == "SELECT '%%' FROM t WHERE a = %(a)s AND b::text = %(b_1)s"
    assert postgres.translated("SELECT 1\n-- postgresql: FOR UPDATE").split() == ["SELECT", "1", "FOR", "UPDATE"]


def test_every_named_query_is_understood_by_the_server(tasks):
    for name, text in queries(LEDGER).items():
        parameters = set(re.findall(r"%\((\w+)\)s", postgres.translated(text)))
        whole = {"limit", "offset", "attempt", "deaths", "ratio", "of_repository", "of_person", "of_server", "depth"}
        values = {one: 1 if one in whole else "x" for one in parameters}
        numbers = {column for column in parameters if column.endswith(("_count", "_tokens", "_id", "_length", "_seq"))}
        values |= dict.fromkeys(numbers - {"task_id"}, 1) | dict.fromkeys({"cost", "priority"} & parameters, 1)
        values |= dict.fromkeys({"llm_calls", "tool_calls", "tokens", "compressions", "learnt_window"} & parameters, 1)
        if name == "ledger_count_memory":
            values |= dict.fromkeys(parameters - {"uuid"}, 1)
        with tasks.transaction():
            assert isinstance(tasks.run(name, **values), list), name


def test_the_columns_are_those_of_sqlite(tasks, tmp_path):
    sqlite = db.open_tasks(tmp_path)
    there = [row["name"] for row in sqlite.execute("SELECT name FROM pragma_table_info('tasks')")]
    here = [row["name"] for row in tasks.execute(
        "SELECT column_name AS name FROM information_schema.columns "
        "WHERE table_name = 'tasks' AND table_schema = current_schema() ORDER BY ordinal_position"
    )]  # fmt: skip
    assert here == there
    sqlite.close()


def test_numbers_beyond_32_bits_and_any_text_are_kept(tasks):
    insert(tasks, "a", title="50 % of 'it' \\ \0 \ud83d\ude00 \ud800 :name 完了")
    tasks.execute("UPDATE tasks SET total_tokens = :tokens WHERE uuid = 'a'", tokens=5_000_000_000)
    (row,) = tasks.run("task_get", uuid="a")
    assert row["total_tokens"] == 5_000_000_000
    assert row["title"] == "50 % of 'it' \\ \ufffd 😀 \ufffd :name 完了"


def test_every_named_query_that_only_reads_is_done_again_over_a_new_connection(tasks):
    """Also one with a comment before its SELECT."""
    reads = {
        name: text for name, text in queries(LEDGER).items() if re.sub(r"--[^\n]*", "", text).split()[0] == "SELECT"
    }
    assert any(text.startswith("--") for text in reads.values())
    for text in reads.values():
        cut(tasks)
        tasks.execute(text, **dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]\w*)", re.sub(r"--[^\n]*", "", text))))


def test_a_transaction_that_raises_leaves_nothing(tasks):
    def insert_and_fail():
        with tasks.transaction():
            insert(tasks, "a")
            raise ZeroDivisionError

    def insert_twice():
        with tasks.transaction():
            insert(tasks, "c", task_id="8")
            insert(tasks, "b", task_id="9")

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    assert tasks.run("task_get", uuid="a") == []
    insert(tasks, "b")
    with pytest.raises(LedgerError, match="duplicate key"):
        insert_twice()
    assert [row["uuid"] for row in tasks.execute("SELECT uuid FROM tasks")] == ["b"]


def test_transactions_of_several_connections_follow_each_other(tasks, address):
    others = [postgres.open_postgres(address) for _ in range(3)]
    begin = threading.Barrier(3)

    def learn(database):
        begin.wait()
        for reported in (1200, 2800, 1200, 2800, 1200):  # each is news to every connection
            LearntRatios(RatioTable(database)).learn("m", 1000, reported)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(learn, others))
    assert tasks.run("ratio_get", model="m")[0]["samples"] == 15
    for one in others:
        one.close()


def test_many_may_open_a_new_database_at_once(address):
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(postgres.open_postgres, [address] * 6))
    versions = opened[0].execute("SELECT version FROM schema_version ORDER BY version")
    assert [row["version"] for row in versions] == [number for number, _, _ in migrate.migrations(migrate.TASKS)]
    for one in opened:
        one.close()


def test_a_database_of_a_newer_version_is_refused(tasks, address):
    tasks.execute("INSERT INTO schema_version VALUES (9999, 'later', '')")
    with pytest.raises(HostError, match="newer version"):
        postgres.open_postgres(address)


def test_leases_go_by_the_servers_clock(tasks):
    class Fast(clock.Clock):
        def now(self):
            return super().now() + timedelta(hours=1)

    true = clock.now()
    with clock.use(Fast()):
        assert abs(tasks.now() - true) < timedelta(minutes=5)
        assert clock.now() - tasks.now() > timedelta(minutes=50)


def test_a_connection_that_was_cut_is_made_anew(tasks):
    insert(tasks, "a")
    cut(tasks)
    assert tasks.run("task_get", uuid="a")[0]["uuid"] == "a"
    cut(tasks)
    with pytest.raises(LedgerError, match="cut"):  # whether it happened is not known, so it is not repeated
        tasks.run("ledger_ask", uuid="a", requested="stop", was="queued", attempt=0)
    assert tasks.run("ledger_ask", uuid="a", requested="stop", was="queued", attempt=0)
    cut(tasks)
    with tasks.transaction():
        insert(tasks, "b", task_id="8")
    assert tasks.run("task_get", uuid="b")


def test_an_idle_connection_is_tried_before_something_is_written(tmp_path, address):
    with clock.use(clock.FakeClock()) as time:
        tasks = postgres.open_postgres(address)
        insert(tasks, "a")
        cut(tasks)
        time.move(postgres.IDLE_SECONDS + 1)
        assert tasks.run("ledger_ask", uuid="a", requested="stop", was="queued", attempt=0)
        tasks.close()


def test_what_only_reads_is_one_question_also_over_an_idle_connection(tmp_path, address, monkeypatch):
    """The trial of the connection was half of what an idle daemon asked."""
    with clock.use(clock.FakeClock()) as time:
        tasks = postgres.open_postgres(address)
        insert(tasks, "a")
        asked, once = [], tasks._execute_once
        monkeypatch.setattr(tasks, "_execute_once", lambda *said: asked.append(said) or once(*said))
        time.move(postgres.IDLE_SECONDS + 1)
        assert tasks.run("task_get", uuid="a")
        assert len(asked) == 1
        cut(tasks)
        time.move(postgres.IDLE_SECONDS + 1)
        assert tasks.run("task_get", uuid="a"), "and it is asked again where the connection was cut"
        tasks.close()


def test_a_transaction_whose_connection_is_cut_leaves_nothing_and_the_next_one_works(tasks):
    def insert_and_be_cut():
        with tasks.transaction():
            insert(tasks, "a")
            cut(tasks)
            insert(tasks, "b", task_id="8")

    with pytest.raises(LedgerError, match="cut"):
        insert_and_be_cut()
    assert tasks.run("ledger_counts") == []
    with tasks.transaction():
        insert(tasks, "c")
    assert tasks.run("ledger_counts") == [{"status": "queued", "count": 1}]


def test_a_server_that_is_not_there_is_named_without_the_password():
    with pytest.raises(HostError, match=r"postgresql://me@127.0.0.1:1/x cannot be used") as raised:
        postgres.PostgresDatabase("postgresql://me:very-secret@127.0.0.1:1/x", patience=0)
    assert "very-secret" not in str(raised.value)


def test_a_database_that_does_not_exist_is_said_at_once():
    services.need_postgres()
    with pytest.raises(HostError, match="does not exist"):
        postgres.PostgresDatabase(services.POSTGRES.rpartition("/")[0] + "/no-such-database")


def test_an_address_that_is_none_is_the_configurations_fault():
    with pytest.raises(ConfigError, match=r"taskqueue\.ledger"):
        postgres.open_postgres("postgresql://me@host/x?nonsense=1")
    with pytest.raises(ConfigError, match="known are postgresql, sqlite"):
        configured_ledger.is_local("mysql://x")


def test_it_is_used_in_the_process_that_opened_it(tasks):
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
    assert tasks.run("ledger_counts") == []
    tasks.close()
    tasks.close()
    with pytest.raises(LedgerError, match="was closed"):
        tasks.run("ledger_counts")


def test_notices_that_a_pooler_would_not_pass_on_are_found_out(tasks):
    """PgBouncer by transaction takes a LISTEN and gives the server's connection to the next client."""
    notices = tasks.notices()
    assert notices is not None
    assert notices.receives(lambda: tasks.execute(f"SELECT pg_notify({CHANNEL}, '')"), 60)
    notices._connection.execute("UNLISTEN *")
    assert not notices.receives(lambda: tasks.execute(f"SELECT pg_notify({CHANNEL}, '')"), 0.2)
    notices.close()


@pytest.mark.parametrize("harm", ["DROP TABLE tasks", "the schema"])
@pytest.mark.parametrize("asked", ["ledger_counts", "SELECT MAX(version) AS version FROM schema_version"])
def test_tables_that_were_dropped_under_an_open_connection_are_made_again(tasks, tmp_path, harm, asked):
    """A restored or emptied database must not leave every daemon asking in vain until it is started again."""
    insert(tasks, "a")
    with psycopg.connect(services.POSTGRES, autocommit=True) as person:
        schema = services.schema_of(tmp_path)
        person.execute(f"SET search_path = {schema}")
        if harm == "the schema":
            person.execute(f"DROP SCHEMA {schema} CASCADE")
            person.execute(f"CREATE SCHEMA {schema}")
        else:
            person.execute(harm)
    tasks.run(asked) if asked in queries(LEDGER) else tasks.execute(asked)
    assert tasks.run("ledger_counts") == []
    assert migrate.newer(tasks) == ""
    insert(tasks, "b")
    with pytest.raises(LedgerError, match="nowhere"):
        tasks.execute("SELECT 1 FROM nowhere")
