"""`forget` leaves no byte, and what was forgotten does not come back."""

import os
import subprocess
import threading
from contextlib import closing

import pytest

from agent.config import Settings
from agent.errors import UsageError
from agent.memory import MemoryStore, NewEvent, Selector, maintenance
from agent.memory.full_text_search import FullTextSearch

WORD = "zanzibarquokka"


def bytes_of(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def filled(store):
    """Much that stays, so that pages are shared; three events and two records with the word."""
    store.create_events(
        [NewEvent("a", f"s{n // 50}", f"message {n} about the parser and its tokens") for n in range(400)]
    )
    first = store.create_event("a", "s9", f"the owner said {WORD} once", source="comment 1", client_token="one")
    store.create_event("a", "s9", f"a long one {WORD} " + "with many other words " * 900)
    store.create_event("a", "s10", "nothing", metadata={"who": WORD})
    fact = store.create_memory_record("/facts/a/", f"{WORD} is the name", strategy="facts", event_ids=[first])
    store.create_memory_record("/reflections/a/", "names matter", strategy="reflections", record_ids=[fact.id])
    for n in range(200):
        store.create_memory_record(f"/facts/b{n % 3}/", f"fact {n} of the kind {n * 7}", strategy="facts")
    return first, fact


def test_forgetting_by_text_leaves_no_byte_of_it(store, tmp_path):
    filled(store)
    store.export()
    store.close()
    assert WORD.encode() in bytes_of(tmp_path)
    told = store.forget(Selector(match=WORD.upper()))
    assert (len(told.events), len(told.records), told.dry_run) == (3, 2, True)
    assert WORD.encode() in bytes_of(tmp_path)
    done = store.forget(Selector(match=WORD), dry_run=False)
    assert (done.events, done.records, done.dry_run) == (told.events, told.records, False)
    assert done.remains == ()
    assert WORD.encode() not in bytes_of(tmp_path).lower()
    assert store.search_events(WORD, "a") == []
    assert store.search_events("parser tokens", "a") != []


def test_what_was_forgotten_does_not_come_back(store):
    first, fact = filled(store)
    store.forget(Selector(match=WORD), dry_run=False)
    before = store.figures()
    again = store.create_event("a", "s9", "another text", client_token="one")
    assert store.create_event("a", "s9", f"the owner  said {WORD} once") == again
    assert (
        store.create_memory_record("/facts/a/", f"{WORD.title()} is the name", strategy="facts").status == "forgotten"
    )
    assert store.figures() == {**before, "bytes": store.figures()["bytes"]}
    with pytest.raises(UsageError, match=fact.id):
        store.get_memory_record(fact.id)
    assert again != first


def test_a_record_with_another_source_stays(store):
    one, two = store.create_event("a", "s1", "use tabs"), store.create_event("a", "s2", "tabs, please")
    both = store.create_memory_record("/preferences/a/", "tabs", strategy="preferences", event_ids=[one, two])
    alone = store.create_memory_record("/preferences/a/", "spaces never", strategy="preferences", event_ids=[one])
    over = store.create_memory_record("/reflections/a/", "indent", strategy="reflections", record_ids=[alone.id])
    done = store.forget(Selector(session="s1"), dry_run=False)
    assert done.events == (one,)
    assert set(done.records) == {alone.id, over.id}
    assert store.get_memory_record(both.id).event_ids == (two,)


@pytest.mark.parametrize("name", ["ids", "session", "actor", "namespace"])
def test_each_selector_names_what_it_says(store, name):
    one, _ = store.create_event("a", "s1", "first"), store.create_event("b", "s2", "second")
    mine = store.create_memory_record("/summaries/a/s1/", "summary one", strategy="summaries")
    store.create_memory_record("/summaries/a2/s2/", "summary two", strategy="summaries")
    chosen = {
        "ids": Selector(ids=(mine.id, str(one))),
        "session": Selector(session="s1"),
        "actor": Selector(actor="a"),
        "namespace": Selector(namespace="/summaries/a/"),
    }[name]
    found = store.forget(chosen, dry_run=False)
    assert found.records == (mine.id,)
    assert found.events == (() if name == "namespace" else (one,))
    assert [record.text for record in store.list_memory_records("/")] == ["summary two"]


def test_naming_nothing_or_something_unknown_forgets_nothing(store):
    for selector in (Selector(), Selector(ids=("mem-none",)), Selector(ids=("7",))):
        with pytest.raises(UsageError):
            store.forget(selector, dry_run=False)


def test_a_reader_that_keeps_the_log_is_said(store, tmp_path, monkeypatch):
    from agent.memory import purge
    from agent.store import db

    monkeypatch.setattr(purge, "PATIENCE", 0.0)
    filled(store)
    reader = db.module().connect(str(tmp_path / "memory.db"), isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM memory_events").fetchall()
    with closing(MemoryStore(tmp_path, Settings().memory, busy_timeout=0.05)) as other:
        done = other.forget(Selector(match=WORD), dry_run=False)
        assert any("another process is reading" in one for one in done.remains)
        # a later command does not know the texts, and the reader is still there
        [log] = other.follow().remains
        assert log.startswith(f"{tmp_path / 'memory.db-wal'}: another process is reading")
        other.create_event("a", "s9", "tiny")
        assert other.forget(Selector(match="tiny"), dry_run=False).remains == (log,), "too short to be searched for"
    reader.execute("COMMIT")
    reader.close()
    store.forget(Selector(match="about the parser"), dry_run=False)
    assert WORD.encode() not in bytes_of(tmp_path)


@pytest.mark.parametrize("ask", ["search_events", "retrieve"])
def test_what_another_process_forgets_during_a_search_does_not_break_it(store, tmp_path, monkeypatch, ask):
    filled(store)
    scores, forgotten = FullTextSearch.scores, []

    def after_it_forgets(*args):
        if not forgotten:
            forgotten.append(other.forget(Selector(actor="a"), dry_run=False))
        return scores(*args)

    with closing(MemoryStore(tmp_path, Settings().memory, busy_timeout=0.05)) as other, monkeypatch.context() as patch:
        patch.setattr("agent.memory.purge.PATIENCE", 0.0)  # the search keeps the write-ahead log
        patch.setattr(FullTextSearch, "scores", after_it_forgets)
        assert getattr(store, ask)(f"{WORD} is the name", "a")[0].score > 0
    assert forgotten
    assert getattr(store, ask)(f"{WORD} is the name", "a") == []
    assert store.follow().remains == ()
    assert WORD.encode() not in bytes_of(tmp_path)


def test_what_is_forgotten_while_another_process_exports_is_not_in_the_export(store, tmp_path, monkeypatch):
    filled(store)
    forgets = threading.Thread(target=lambda: other.forget(Selector(match=WORD), dry_run=False))
    line = maintenance._line

    def and_meanwhile(*args):
        if forgets.ident is None:
            forgets.start()
            forgets.join(0.3)
        return line(*args)

    with closing(MemoryStore(tmp_path, Settings().memory)) as other, monkeypatch.context() as patch:
        patch.setattr(maintenance, "_line", and_meanwhile)
        store.export()
        forgets.join()
    assert WORD.encode() not in bytes_of(tmp_path)


@pytest.mark.parametrize("how", [{"session": "s9"}, {"actor": "a"}, {"match": WORD.upper()}])
def test_the_errors_of_jobs_and_every_file_beside_the_exports_are_cleaned(store, tmp_path, how):
    store.create_event("a", "s9", f"the owner said {WORD}")
    store.jobs.begin("s9", "a", "s9", "all", "a test", "2030-01-01T00:00:00.000000Z")
    store.jobs.end("s9", "failed", f"ValueError: {WORD}")
    export = store.export(tmp_path / "memory" / "kept.json")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):  # of an export that was killed, and of one that is under way
        (export.parent / f".export.jsonl.{pid}.tmp").write_bytes(export.read_bytes())
    done = store.forget(Selector(**how), dry_run=False)
    assert done.jobs == ("s9",)
    [left] = done.remains
    assert f".{os.getpid()}.tmp" in left
    (export.parent / f".export.jsonl.{os.getpid()}.tmp").unlink()
    assert WORD.encode() not in bytes_of(tmp_path)
    assert [job["status"] for job in store.list_memory_extraction_jobs()] == ["failed"], "it can be tried again"
