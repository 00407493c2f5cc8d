"""The tables are made from the log: made again they are the same."""

import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest
import shared_memory
from first_commit import WHO
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.config import Settings
from agent.errors import MakimonoError, MemoryUnavailable, UsageError
from agent.memory import MemoryStore, NewEvent, Selector, schema

ACTORS, SESSIONS = ("a", "a2", "b"), ("s1", "s2", "s-3")
NAMESPACES = ("/facts/a/", "/facts/a2/", "/preferences/a/", "/episodes/a/s1/", "/episodes/a/s2/")
WORDS = ("parser", "token", "getUserName", "テスト", "port 8080", "port 8443", "not", "slow", "the")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
number = st.integers(0, 50)
operations = st.one_of(
    st.tuples(
        st.just("events"), st.lists(st.tuples(st.sampled_from(ACTORS), st.sampled_from(SESSIONS), texts), max_size=5)
    ),
    st.tuples(st.just("record"), st.sampled_from(NAMESPACES), texts, number, number, st.booleans()),
    st.tuples(st.just("change"), st.sampled_from(("promote", "pin", "invalidate", "used", "judged")), number),
    st.tuples(st.just("forget"), st.sampled_from(("match", "session", "id")), number),
)
TABLES = ("events", "records", "sources", "record_files", "tombstones", "state")
contents = partial(shared_memory.contents, tables=TABLES)


def one_of(store, at):
    records = store.list_memory_records("/", status=None)
    return records[at % len(records)].id if records else "mem-none"


def do(store, operation):
    kind, *rest = operation
    if kind == "events":
        store.create_events([NewEvent(actor, session, text) for actor, session, text in rest[0]])
    elif kind == "record":
        namespace, text, event, other, quarantined = rest
        events = [hit.event_id for hit in store.search_events(text, "a")][: event % 3]
        store.create_memory_record(
            namespace,
            text,
            strategy=namespace.split("/")[1],
            event_ids=events,
            record_ids=[one_of(store, other)] if other % 4 == 0 else [],
            files=[f"src/{text.split()[0]}.py"],
            quarantine="looks like a command" if quarantined and other % 3 == 0 else "",
        )
    elif kind == "change":
        record = one_of(store, rest[1])
        {
            "promote": lambda: store.promote(record, trust=2),
            "pin": lambda: store.pin(record, pinned=rest[1] % 2 == 0),
            "invalidate": lambda: store.invalidate(record, "no longer"),
            "used": lambda: store.mark_used([record]),
            "judged": lambda: store.mark_outcome([record], helped=rest[1] % 2 == 0),
        }[rest[0]]()
    else:
        word, session = WORDS[rest[1] % len(WORDS)], SESSIONS[rest[1] % len(SESSIONS)]
        chosen = {
            "match": Selector(match=word),
            "session": Selector(session=session),
            "id": Selector(ids=(one_of(store, rest[1]),)),
        }
        store.forget(chosen[rest[0]], dry_run=False)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(operations, min_size=1, max_size=14))
def test_tables_that_are_made_again_are_equal(done):
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore(Path(folder), Settings().memory)
        for operation in done:
            try:
                do(store, operation)
            except UsageError:
                pass  # the record is not there: nothing changed
        live = contents(store)
        store.rebuild()
        assert contents(store) == live
        store.close()


def test_a_text_that_is_forgotten_in_a_long_session_changes_no_window_but_those_that_had_it(store):
    numbers = store.create_events([NewEvent("a", "s", f"text {n}") for n in range(12)])
    for number in (numbers[0], numbers[6], numbers[7], numbers[-1]):
        store.forget(Selector(ids=(str(number),)), dry_run=False)
    live = contents(store)
    store.rebuild()
    assert contents(store) == live


LOST = (
    *("TABLE memory_events", "TABLE memory_tombstones", "TABLE memory_state", "TABLE memory_jobs"),
    *("TABLE memory_event_turns", "TABLE memory_record_turns_docsize", "TABLE memory_event_sessions_config"),
    *("TABLE memory_touched", "TABLE memory_commit_terms_data", "TABLE memory_file_words"),
    *("TABLE schema_version", "INDEX idx_memory_records_sha"),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    (folder / "parser.py").write_text("def parse(): pass\n")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Parse numbers"]):
        subprocess.run(["git", *WHO, *command], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("lost", LOST)
def test_a_table_that_was_dropped_is_made_again(store, repository, lost):
    events = store.create_events([NewEvent("a", "s", f"the parser said {n}", client_token=str(n)) for n in range(5)])
    store.create_memory_record("/facts/a/", "The parser is slow.", strategy="facts", event_ids=events[:1])
    store.forget(Selector(ids=(str(events[4]),)), dry_run=False)
    store.index_commits(repository, "a", branch="main")
    live, files = contents(store), store.likely_files("parser", "a")
    store._open.database.execute(f"DROP {lost}")
    store.close()
    store.rebuild()
    assert contents(store) == live
    assert schema.is_whole(store._open.database)
    store.index_commits(repository, "a", branch="main")  # as after the next task
    assert [one.path for one in files] == ["parser.py"]
    assert store.likely_files("parser", "a") == files
    assert store.create_event("a", "s", "one more") > events[4]


def test_a_log_that_lacks_entries_rebuilds_nothing_and_a_lost_one_is_told(store):
    store.create_event("a", "s", "the parser said it")
    store._open.database.execute("DELETE FROM memory_log")
    with pytest.raises(MemoryUnavailable, match=r"ends at entry 0.*made from 1"):
        store.rebuild()
    assert store.search_events("parser", "a")
    store._open.database.execute("DROP TABLE memory_log")
    store.close()
    with pytest.raises(MemoryUnavailable, match=r"lost its table memory_log.*backup"):
        store.rebuild()


def test_a_write_that_fails_changes_neither_log_nor_tables(store):
    store.create_events([NewEvent("a", "s", "one"), NewEvent("a", "s", "two")])
    before = contents(store), store._open.log.entries()
    for bad in (NewEvent("a", "s", "three", trust=9), NewEvent("a", "s", "three", timestamp="yesterday")):
        try:
            store.create_events([NewEvent("a", "s", "good"), bad])
        except MakimonoError:
            pass
        assert (contents(store), store._open.log.entries()) == before
    store.create_event("a", "s", "four")
    live = contents(store)
    store.rebuild()
    assert contents(store) == live
