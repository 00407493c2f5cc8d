"""Two hosts, one memory: the log in PostgreSQL, and each host's memory.db that follows it."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import services
from length import either
from shared_memory import contents, file_bytes, host, rows

from agent.config import Settings
from agent.errors import MemoryUnavailable
from agent.memory import MemoryStore, NewEvent, Selector
from agent.store import migrate
from agent.store.postgres_memory_log import open_memory_log

WORD = "zanzibarquokka"
BYTES_ON_THE_SERVER = (
    "test_forgetting_on_one_host_leaves_no_byte_on_any_host_nor_on_the_server",
    "test_another_host_rewrites_the_table_for_one_that_was_killed",
    "test_old_rows_that_an_open_transaction_keeps_are_told_and_removed_later",
)


@pytest.fixture
def address(request, tmp_path):
    """In a database that tests share, their transactions keep old versions of rows."""
    opens = services.database if request.node.originalname in BYTES_ON_THE_SERVER else services.schema
    with opens(tmp_path) as found:
        yield found


@pytest.fixture
def hosts(tmp_path, address):
    """`hosts("a", "b")` are stores of hosts with these names."""
    made = []

    def make(*names):
        found = [host(tmp_path / name, address) for name in names]
        made.extend(found)
        return found

    yield make
    for store in made:
        store.close()


def alone(folder):
    """A memory of one host, without a shared log."""
    return MemoryStore(folder, Settings().memory, who="before")


def bytes_of(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def fill(store, events=300):
    store.create_events([NewEvent("o", f"s{n // 50}", f"message {n} about the parser {n * 31}") for n in range(events)])
    for n in range(40):
        store.create_memory_record(f"/facts/b{n % 3}/", f"fact {n} of the kind {n * 7}", strategy="facts")


def test_jobs_of_a_memory_that_had_its_own_ledger_move_to_the_shared_one(tmp_path, hosts):
    until = "2026-01-01T00:00:00.000000Z"
    mine = alone(tmp_path / "a")
    mine.create_event("o", "s", "said before")
    for name in ("done", "failed", "running"):
        mine.jobs.begin(name, "o", name, "all", "host a", until)
    mine.jobs.end("done", "done")
    mine.jobs.end("failed", "failed", "no model")
    mine.close()
    (a, b) = hosts("a", "b")
    b.jobs.begin("failed", "o", "failed", "all", "host b", until)  # a move that was interrupted, and a later try
    for _ in range(2):
        a.follow()
        listed = {one["id"]: (one["status"], one["attempts"], one["error"]) for one in b.list_memory_extraction_jobs()}
        assert listed == {"done": ("done", 1, ""), "failed": ("running", 1, ""), "running": ("queued", 1, "")}
        assert a._open.database.run("job_list", status=None) == []


# --- one memory --------------------------------------------------------------------------------------------------


def test_what_is_told_on_one_host_is_known_on_the_other_with_the_same_ids_and_scores(hosts):
    a, b = hosts("a", "b")
    fill(a)
    said = a.create_event("o", "s9", "柑橘系の香りが好き", client_token="x")
    a.create_memory_record("/preferences/o/", "柑橘系の香りが好き", strategy="preferences", event_ids=[said])
    followed = b.follow()
    assert followed.entries == len(a._open.log.entries(limit=10**6))
    for query in ("おすすめの香りは?", "fact 7 of the kind", "the parser said 93"):
        mine = [(hit.record.id, hit.score) for hit in a.retrieve_memory_records(query, "/", relevance_score=0)]
        assert mine == [(hit.record.id, hit.score) for hit in b.retrieve_memory_records(query, "/", relevance_score=0)]
        assert a.search_events(query, "o") == b.search_events(query, "o")
    assert [hit.record.text for hit in b.retrieve("香り", "o")] == ["柑橘系の香りが好き"]
    assert contents(a) == contents(b)


def test_an_event_and_a_fact_of_two_hosts_at_once_are_one(hosts):
    stores = hosts("a", "b", "c")
    gate = threading.Barrier(len(stores))

    def learn(store):
        made = []
        for n in range(8):
            gate.wait()
            made.append(
                (
                    store.create_event("o", "s", f"event {n}", client_token=f"token {n}"),
                    store.create_memory_record("/facts/o/", f"fact {n} of this", strategy="facts").id,
                )
            )
        return made

    with ThreadPoolExecutor(len(stores)) as pool:
        first, *others = pool.map(learn, stores)
    assert others == [first, first]
    for store in stores:
        store.follow()
    assert stores[0].figures()["events"] == 8
    assert stores[0].figures()["records"] == {"facts": {"active": 8}}
    assert contents(stores[0]) == contents(stores[1]) == contents(stores[2])


def test_a_follower_does_not_pass_over_an_entry_whose_transaction_commits_later(hosts):
    """A writer holds its transaction open after it has sent its entry; another one waits; a third host follows."""
    a, b, c = hosts("a", "b", "c")
    a.create_event("o", "s", "one")
    for store in (b, c):
        store.follow()
    sent, go = threading.Event(), threading.Event()

    def slow():
        with a._lock, a.writing() as write:
            write.append("pinned", "mem-slow", {"pinned": True})
            a._open.shared.send()
            sent.set()
            assert go.wait(30)

    writer = threading.Thread(target=slow)
    writer.start()
    assert sent.wait(30)
    other = threading.Thread(target=b.create_event, args=("o", "s", "two"))
    other.start()
    for _ in range(5):
        c.follow()
        assert [one.number for one in c._open.log.entries()] == [1]
        other.join(0.1)
    assert other.is_alive(), "the second writer waits for the first"
    go.set()
    writer.join()
    other.join()
    c.follow()
    assert [one.operation for one in c._open.log.entries()] == ["event", "pinned", "event"]


def test_two_hosts_that_import_thousands_of_events_at_once_have_each_token_once(hosts, tmp_path, address):
    """Half of the events are the same on both hosts."""
    number = either(1000, 10_000)
    work = f"""
from agent.memory import NewEvent
name = store.base_dir.name
events = [
    NewEvent("o", f"{{name}}-{{n // 50}}", f"message {{n}} about the parser {{n * 31}}", client_token=f"{{n if n % 2 else name}} {{n}}")
    for n in range({number})
]
print(len(store.create_events(events)), flush=True)
"""
    writers = [child(tmp_path / name, address, work) for name in ("a", "b")]
    for writer in writers:
        assert writer.communicate(timeout=300)[0] == f"{number}\n"
    a, b = hosts("a", "b")
    for store in (a, b):
        store.follow()
    assert a.figures()["events"] == number * 3 // 2
    assert contents(a) == contents(b)
    assert [row["number"] for row in rows(address)] == list(range(1, number * 3 // 2 + 1)), "no number is missing"


def test_a_host_that_was_away_for_long_follows_in_pages(hosts, monkeypatch):
    from agent.memory import shared_entries

    a, b = hosts("a", "b")
    fill(a, 900)
    a.forget(Selector(session="s3"), dry_run=False)
    monkeypatch.setattr(shared_entries, "PAGE", 37)
    monkeypatch.setattr(shared_entries, "MOST_CHARACTERS", 5000)
    assert b.follow().entries == len(rows_of(a))
    assert contents(a) == contents(b)
    assert b.follow().entries == 0


def rows_of(store):
    return store._open.log.entries(limit=10**6)


def test_memory_made_again_on_another_host_from_the_shared_log_is_the_same(hosts, tmp_path):
    a, b = hosts("a", "b")
    fill(a)
    b.mark_used([one.id for one in b.list_memory_records("/")][:3])
    a.forget(Selector(match="message 17"), dry_run=False)
    b.rebuild()
    assert contents(a) == contents(b)
    b.close()
    for path in (tmp_path / "b").glob("memory.db*"):
        path.unlink()
    assert b.rebuild() == len(rows_of(a))
    assert contents(a) == contents(b)


# --- forgetting --------------------------------------------------------------------------------------------------


def test_forgetting_on_one_host_leaves_no_byte_on_any_host_nor_on_the_server(hosts, tmp_path, address):
    a, b = hosts("a", "b")
    fill(a)
    said = a.create_event("o", "s9", f"the owner said {WORD} once", source="comment 1", client_token=f"{WORD} token")
    a.create_event("o", "s9", f"a long one {WORD} " + "with many other words " * 900)
    fact = a.create_memory_record("/facts/o/", f"{WORD} is the name", strategy="facts", event_ids=[said])
    a.promote(fact.id, trust=1, reason=f"since {WORD} said so")
    a.jobs.begin("s9", "o", "s9", "all", "a", "2030-01-01T00:00:00.000000Z")
    a.jobs.end("s9", "failed", f"ValueError: {WORD}")
    b.follow()
    b.export()
    assert b.retrieve_memory_records(WORD, "/")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ANALYZE memory_log, memory_jobs")
        found = connection.execute("SELECT 1 FROM pg_stats WHERE most_common_vals::text LIKE %s", [f"%{WORD}%"])
        assert found.fetchall() == []
    for place in (bytes_of(tmp_path / "a"), bytes_of(tmp_path / "b"), file_bytes(address)):
        assert WORD.encode() in place
    done = a.forget(Selector(match=WORD.upper()), dry_run=False)
    assert (len(done.events), len(done.records), done.remains) == (2, 1, ())
    assert WORD not in str(rows(address))
    assert WORD not in str(b.list_memory_extraction_jobs())
    assert WORD.encode() not in file_bytes(address)
    assert WORD.encode() not in bytes_of(tmp_path / "a")
    assert WORD.encode() in bytes_of(tmp_path / "b"), "it has not followed yet"
    followed = b.follow()
    assert (followed.entries, followed.remains) == (1, ())
    assert WORD.encode() not in bytes_of(tmp_path / "b")
    assert b.retrieve_memory_records(WORD, "/") == []
    assert b.retrieve_memory_records("fact 7 of the kind", "/")
    assert contents(a) == contents(b)
    again = b.create_event("o", "s9", "other", client_token=f"{WORD} token")
    assert again == rows_of(b)[-1].number, "what was forgotten on one host does not come back from another"
    assert b.create_memory_record("/facts/o/", f"{WORD} is the name", strategy="facts").status == "forgotten"


def test_bytes_that_a_killed_process_left_are_removed_at_the_next_follow(hosts, tmp_path, monkeypatch):
    a, b = hosts("a", "b")
    fill(a, 100)
    a.create_event("o", "s9", f"the owner said {WORD} once")
    b.follow()
    a.forget(Selector(match=WORD), dry_run=False)
    from agent.memory import store as module

    with monkeypatch.context() as patch:
        patch.setattr(module.purge, "purge", _raise)
        with pytest.raises(ZeroDivisionError):
            b.follow()  # the entry is applied, then the process ends
    assert WORD.encode() in bytes_of(tmp_path / "b")
    [again] = hosts("b")
    assert again.follow().remains == ()
    assert WORD.encode() not in bytes_of(tmp_path / "b")


def _raise(*_):
    raise ZeroDivisionError


def test_where_nobody_knows_the_texts_any_more_the_file_is_written_anew(hosts, tmp_path):
    """A worker applies the forgetting and ends; another process removes the bytes later."""
    a, b = hosts("a", "b")
    fill(a, 100)
    a.create_event("o", "s9", f"the owner said {WORD} once")
    b.follow()
    a.forget(Selector(match=WORD), dry_run=False)
    b.follow(purges=False)
    b.close()
    [again] = hosts("b")
    before = (tmp_path / "b" / "memory.db").stat().st_size
    assert again.follow().remains == ()
    assert WORD.encode() not in bytes_of(tmp_path / "b")
    assert again._open.database.execute("PRAGMA freelist_count")[0]["freelist_count"] == 0
    assert (tmp_path / "b" / "memory.db").stat().st_size <= before


def test_the_same_for_a_memory_of_one_host(tmp_path, monkeypatch):
    store = alone(tmp_path)
    store.create_events([NewEvent("a", "s", f"message {n}") for n in range(50)])
    store.create_event("a", "s9", f"the owner said {WORD} once")
    with monkeypatch.context() as patch:
        patch.setattr("agent.memory.store.purge.purge", _raise)
        with pytest.raises(ZeroDivisionError):
            store.forget(Selector(match=WORD), dry_run=False)
    assert WORD.encode() in bytes_of(tmp_path)
    assert store.follow().remains == ()
    assert WORD.encode() not in bytes_of(tmp_path)


def test_another_host_rewrites_the_table_for_one_that_was_killed(hosts, address, monkeypatch):
    from agent.memory import shared_log

    a, b = hosts("a", "b")
    fill(a, 50)
    a.create_event("o", "s9", f"the owner said {WORD} once")
    with monkeypatch.context() as patch:
        patch.setattr(shared_log.SharedLog, "purge", lambda self: _raise())
        with pytest.raises(ZeroDivisionError):
            a.forget(Selector(match=WORD), dry_run=False)
    assert WORD.encode() in file_bytes(address)
    before = node(address)
    b.follow()
    assert node(address) == before, "the one that forgot has a minute for it"
    monkeypatch.setattr(shared_log, "PURGE_SECONDS", 0.0)
    b.follow()
    assert node(address) != before
    assert WORD.encode() not in file_bytes(address)
    before = node(address)
    b.follow()
    assert node(address) == before, "once is enough"


def node(address):
    """The file of the table on the server."""
    with psycopg.connect(address, autocommit=True) as connection:
        return connection.execute("SELECT pg_relation_filenode('memory_log')").fetchone()


def test_old_rows_that_an_open_transaction_keeps_are_told_and_removed_later(hosts, address, monkeypatch):
    from agent.memory import shared_log

    monkeypatch.setattr(shared_log, "PATIENCE", 0.3)
    monkeypatch.setattr(shared_log, "PURGE_SECONDS", 0.0)
    a, b = hosts("a", "b")
    fill(a, 50)
    a.create_event("o", "s9", f"the owner said {WORD} once")
    with psycopg.connect(address) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM memory_log_state").fetchall()
        [why] = a.forget(Selector(match=WORD), dry_run=False).remains
        assert "old rows of memory_log remain while older transactions are open" in why
        assert WORD.encode() in file_bytes(address)
        [why] = b.follow().remains
        assert "old rows" in why
    assert b.follow().remains == ()
    assert WORD.encode() not in file_bytes(address)


def test_what_is_forgotten_while_another_host_reads_the_log_again_leaves_no_byte_there(hosts, tmp_path, monkeypatch):
    from agent.memory import shared_entries

    a, b = hosts("a", "b")
    a.create_event("o", "s9", f"the owner said {WORD} once")
    a.create_memory_record("/facts/o/", f"{WORD} is the name", strategy="facts", event_ids=[1])
    fill(a, 60)
    b.follow()
    monkeypatch.setattr(shared_entries, "PAGE", 20)
    insert, inserted = b._open.shared.local.insert, []

    def forget_in_between(entry):
        inserted.append(entry)
        if len(inserted) == 10:
            a.forget(Selector(match=WORD), dry_run=False)
        insert(entry)

    monkeypatch.setattr(b._open.shared.local, "insert", forget_in_between)
    b.rebuild()
    monkeypatch.undo()
    b.follow()
    assert contents(a) == contents(b)
    assert WORD.encode() not in bytes_of(tmp_path / "b")


# --- a server that is away -----------------------------------------------------------------------------------------


def test_without_the_server_recall_goes_on_and_writes_raise_one_error_that_names_it(hosts, tmp_path, address):
    [a] = hosts("a")
    fill(a, 60)
    before = [hit.record.id for hit in a.retrieve_memory_records("fact 7 of the kind", "/")]
    a.close()
    gone = host(tmp_path / "a", address.replace(":5432", ":1"))
    assert [hit.record.id for hit in gone.retrieve_memory_records("fact 7 of the kind", "/")] == before
    assert gone.search_events("message 5", "o")
    for call in (
        lambda: gone.create_event("o", "s", "x"),
        lambda: gone.mark_used(before),
        lambda: gone.forget(Selector(session="s1"), dry_run=False),
        gone.follow,
        gone.rebuild,
        gone.list_memory_extraction_jobs,
    ):
        with pytest.raises(MemoryUnavailable, match="shared log of memory cannot be used"):
            call()
    assert gone.log_status()["last"] is None
    assert "cannot be used" in gone.log_status()["error"]
    assert gone.figures()["events"] == 60
    gone.close()
    [again] = hosts("a")
    assert again.create_event("o", "s", "goes on")


def cut_after(_, store, address):
    pid = store._open.shared.shared._connection.info.backend_pid
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_a_connection_that_is_cut_in_a_write_loses_nothing_and_the_next_write_goes_on(hosts, address):
    a, b = hosts("a", "b")
    a.create_event("o", "s", "one")
    before = contents(a)
    with pytest.raises(MemoryUnavailable), a._lock, a.writing() as write:
        cut_after(write.append("pinned", "mem-x", {"pinned": True}), a, address)
    assert contents(a) == before
    assert a.create_event("o", "s", "two") == 2
    b.follow()
    assert contents(a) == contents(b)


def test_a_commit_that_only_the_server_has_is_followed(hosts, monkeypatch):
    """The process ends, or the disk is full, between the commits of PostgreSQL and of memory.db."""
    a, b = hosts("a", "b")
    a.create_event("o", "s", "one")
    database = a._open.database
    retried = database._retried
    monkeypatch.setattr(database, "_retried", lambda sql, values: _raise() if sql == "COMMIT" else retried(sql, values))
    with pytest.raises(ZeroDivisionError):
        a.create_event("o", "s", "two", client_token="t")
    monkeypatch.undo()
    assert [one.number for one in rows_of(a)] == [1]
    assert a.create_event("o", "s", "two", client_token="t") == 2
    b.follow()
    assert contents(a) == contents(b)
    assert b.figures()["events"] == 2


def test_a_newer_schema_of_the_log_is_refused_and_told(hosts, address):
    [a] = hosts("a")
    a.create_event("o", "s", "one")
    with psycopg.connect(address) as connection:
        connection.execute("INSERT INTO memory_schema_version VALUES (9999, 'later', 'later')")
    [b] = hosts("b")
    with pytest.raises(MemoryUnavailable, match="newer version"):
        b.create_event("o", "s", "two")


def test_the_tables_of_the_log_live_beside_those_of_the_ledger(address):
    from agent.store.postgres import open_postgres

    open_postgres(address).close()
    open_memory_log(address).close()
    open_postgres(address).close()
    with psycopg.connect(address) as connection:
        versions = [
            {row[0] for row in connection.execute(f"SELECT version FROM {name}")}
            for name in ("schema_version", "memory_schema_version")
        ]
    known = [{number for number, _, _ in migrate.migrations(name)} for name in (migrate.TASKS, migrate.SHARED_LOG)]
    assert versions == known


# --- a memory of its own that comes in -------------------------------------------------------------------------------


def own(folder, tokens=("t1", "t2")):
    store = alone(folder)
    for token in tokens:
        store.create_event("o", "s1", f"the one with {token}", client_token=token)
    fact = store.create_memory_record("/facts/o/", "the port is 8080", strategy="facts", event_ids=[1])
    over = store.create_memory_record("/reflections/o/", "ports matter", strategy="reflections", record_ids=[fact.id])
    store.mark_used([fact.id])
    store.close()
    return fact, over


def test_the_first_host_that_comes_with_a_memory_of_its_own_brings_it_with_all_numbers(hosts, tmp_path, address):
    fact, _ = own(tmp_path / "a")
    store = alone(tmp_path / "a")
    before = contents(store)
    store.close()
    a, b = hosts("a", "b")
    assert a.log_status()["own"]
    assert a.follow().imported == len(before["log"])
    assert contents(a) == before
    b.follow()
    assert contents(b) == before
    assert b.get_memory_record(fact.id).uses == 1
    assert a.follow().imported == 0


def test_a_second_memory_is_merged_with_new_numbers_and_nothing_is_there_twice(hosts, tmp_path):
    [a] = hosts("a")
    fill(a, 60)
    known = a.create_event("o", "s1", "the one with t1", client_token="t1")
    same = a.create_memory_record("/facts/o/", "the port is 8080", strategy="facts")
    a.forget(Selector(ids=(str(a.create_event("o", "s1", "never again", client_token="t3")),)), dry_run=False)
    fact, over = own(tmp_path / "b", ("t1", "t2", "t3"))
    [b] = hosts("b")
    events = a.figures()["events"]
    assert b.log_status()["own"]
    b.create_event("o", "s1", "the next write brings them in", client_token="t4")
    a.follow()
    assert contents(a) == contents(b)
    assert b.figures()["events"] == events + 2, "t2 and t4; t1 is known, t3 was forgotten"
    merged = b.get_memory_record(same.id)
    assert merged.event_ids == (known,)
    assert merged.uses == 2, "merged once, given once"
    with pytest.raises(Exception, match=fact.id):
        b.get_memory_record(fact.id)
    assert b.get_memory_record(over.id).record_ids == (same.id,)
    assert not b.log_status()["own"]
    live = contents(b)
    b.rebuild()
    assert contents(b) == live


def test_vectors_of_records_that_get_another_number_are_made_again(hosts, tmp_path):
    [a] = hosts("a")
    fill(a, 20)
    store = alone(tmp_path / "b")
    fact = store.create_memory_record("/facts/o/", "b alone knew this", strategy="facts")
    store._open.database.run("vector_put", key=1, model="a model", vector=b"1234")
    store.close()
    [b] = hosts("b")
    b.follow()
    assert b._open.database.run("record_row", id=fact.id)[0]["key"] > 1
    assert b._open.database.execute("SELECT key FROM memory_vectors") == []


def test_an_import_that_was_interrupted_after_the_server_had_it_is_not_done_twice(hosts, tmp_path, monkeypatch):
    [a] = hosts("a")
    fill(a, 60)
    store = alone(tmp_path / "b")
    for n in range(5):
        store.create_event("o", "s1", f"without a token {n}")
    store.close()
    [b] = hosts("b")
    database = b._open.database
    retried, commits = database._retried, []

    def first_commit_fails(statement, params):
        if statement == "COMMIT":
            commits.append(1)
            if len(commits) == 1:
                raise ZeroDivisionError
        return retried(statement, params)

    monkeypatch.setattr(database, "_retried", first_commit_fails)
    with pytest.raises(ZeroDivisionError):
        b.follow()
    monkeypatch.undo()
    a.follow()
    assert a.figures()["events"] == 65
    assert b.follow().imported == 0
    assert b.figures()["events"] == 65
    assert contents(a) == contents(b)


def test_a_log_that_was_restored_from_an_older_backup_gets_back_what_the_hosts_have(hosts, address):
    a, b, c = hosts("a", "b", "c")
    fill(a, 30)
    a.create_event("o", "s9", f"the owner said {WORD} once")
    for store in (b, c):
        store.follow()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT * FROM memory_log")
    a.create_event("o", "s", "after the backup")
    c.follow()
    a.forget(Selector(match=WORD), dry_run=False)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("TRUNCATE memory_log; INSERT INTO memory_log SELECT * FROM kept; DROP TABLE kept")
    b.create_event("o", "s", "of a host that was behind")
    assert a.follow().imported == 2
    for store in (a, b, c):
        store.follow()
    assert contents(a) == contents(b) == contents(c)
    texts = [event["text"] for event in contents(a)["events"]]
    assert texts.count("after the backup") == texts.count("of a host that was behind") == 1
    assert WORD not in str(rows(address))


def test_a_log_that_was_lost_is_made_again_from_the_hosts(hosts, address):
    a, b = hosts("a", "b")
    fill(a, 30)
    b.follow()
    b.create_event("o", "s", "only b has followed this")
    before = contents(b)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE memory_log, memory_schema_version, memory_jobs, memory_log_state")
    a.follow()
    b.follow()
    a.follow()
    assert contents(a) == contents(b) == before


def test_the_ledger_back_and_forth_loses_nothing(hosts, tmp_path):
    a, b = hosts("a", "b")
    fill(a, 30)
    b.follow()
    b.close()
    store = alone(tmp_path / "b")
    store.create_event("o", "s", "while b was alone")
    store.create_memory_record("/facts/o/", "learnt alone", strategy="facts")
    store.close()
    a.create_event("o", "s", "meanwhile")
    assert b.follow().imported == 2
    a.follow()
    assert contents(a) == contents(b)
    assert {"while b was alone", "meanwhile"} <= {event["text"] for event in contents(a)["events"]}


def test_an_older_copy_of_memory_db_follows_and_forgets_what_was_forgotten_since(hosts, tmp_path):
    a, b = hosts("a", "b")
    fill(a, 30)
    a.create_event("o", "s9", f"the owner said {WORD} once")
    b.follow()
    b.close()
    shutil.copytree(tmp_path / "b", tmp_path / "kept")
    a.forget(Selector(match=WORD), dry_run=False)
    b.follow()
    b.close()
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tmp_path / "kept", tmp_path / "b")
    assert WORD.encode() in bytes_of(tmp_path / "b")
    assert b.follow().remains == ()
    assert WORD.encode() not in bytes_of(tmp_path / "b")
    assert contents(a) == contents(b)


def test_a_damaged_memory_db_is_told_and_made_again_from_the_log_when_it_was_moved_away(hosts, tmp_path):
    a, b = hosts("a", "b")
    fill(a, 60)
    b.follow()
    b.close()
    path = tmp_path / "b" / "memory.db"
    data = bytearray(path.read_bytes())
    data[4096 : len(data) // 2] = b"x" * (len(data) // 2 - 4096)
    path.write_bytes(data)
    for call in (b.follow, b.rebuild, lambda: b.create_event("o", "s", "x")):
        with pytest.raises(MemoryUnavailable, match=r"damaged.*follows the shared log"):
            call()
    b.close()
    for one in path.parent.glob("memory.db*"):
        one.unlink()
    assert a.create_event("o", "s", "the log is whole")
    b.follow()
    assert contents(a) == contents(b)


def test_a_memory_db_of_an_older_version_follows_a_newer_log(hosts, tmp_path):
    """Before there was a shared log, memory.db had the tables of its first migration only."""
    from agent.store.db import Database

    old = Database(tmp_path / "b" / "memory.db")
    known = migrate.migrations("memory_log")
    old.execute(
        "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
    )
    for statement in migrate.statements(known[0][2].read_text()):
        old.execute(statement)
    old.execute("INSERT INTO schema_version VALUES (1, 'memory_log', '2026-01-01')")
    old.close()
    a, b = hosts("a", "b")
    fill(a, 30)
    b.follow()
    assert contents(a) == contents(b)
    assert b.create_event("o", "s", "goes on")


# --- kills ---------------------------------------------------------------------------------------------------------

CHILD = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
from shared_memory import host
store = host(Path({folder!r}), {address!r})
{work}
"""


def child(folder, address, work):
    tests = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = CHILD.format(tests=tests, root=os.path.dirname(tests), folder=str(folder), address=address, work=work)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seconds", either([0.05, 0.3], [0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8]))
def test_a_host_that_is_killed_while_it_follows_goes_on_where_it_was(hosts, tmp_path, address, seconds):
    [a] = hosts("a")
    fill(a, 2000)
    a.forget(Selector(session="s3"), dry_run=False)
    with child(tmp_path / "b", address, "print('go', flush=True)\nstore.follow()") as follower:
        assert follower.stdout.readline() == "go\n"
        try:
            follower.wait(seconds)
        except subprocess.TimeoutExpired:
            follower.send_signal(signal.SIGKILL)
    [b] = hosts("b")
    b.follow()
    assert [row["integrity_check"] for row in b._open.database.execute("PRAGMA integrity_check")] == ["ok"]
    assert contents(a) == contents(b)


def test_a_writer_that_is_killed_leaves_whole_writes_and_no_lock(hosts, tmp_path, address):
    work = """
from agent.memory import NewEvent
number = 0
while True:
    store.create_events([NewEvent("o", "s", f"text {number} {n}", client_token=f"{number} {n}") for n in range(50)])
    number += 1
    print(number, flush=True)
"""
    with child(tmp_path / "a", address, work) as writer:
        for _ in range(6):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    a, b = hosts("a", "b")
    first = b.create_event("o", "s", "text 0 0", client_token="0 0")
    a.follow()
    assert first == 1
    assert b.figures()["events"] >= 300
    assert b.figures()["events"] % 50 == 0
    assert contents(a) == contents(b)
