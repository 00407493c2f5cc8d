"""Consolidation, changes, age and caps of records."""

from datetime import UTC, datetime

import pytest

from agent import clock
from agent.config.long_term_memory import LongTermMemory
from agent.errors import UsageError
from agent.memory import MemoryStore, RetrievalConfig

LONG = "The billing service listens on port {} of the internal host name {}"


def texts(hits):
    return [hit.record.text for hit in hits]


def make(store, text, namespace="/facts/a/", **more):
    return store.create_memory_record(namespace, text, strategy=namespace.split("/")[1], **more)


def test_five_facts_in_three_wordings_each_are_few_records(store):
    facts = {
        "The tests run with pytest in the folder tests": (
            "the tests run with pytest, in the folder `tests`",
            "The tests run with pytest in the folder tests!",
        ),
        "Releases are made by the script scripts/release on the branch main": (
            "Releases are made by the script scripts/release on branch main",
            "releases are made by the script `scripts/release` on the branch `main`",
        ),
    }
    for fact, others in facts.items():
        for text in (fact, *others):
            make(store, text)
    assert [record.text for record in store.list_memory_records("/facts/a/")] == list(facts)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LONG.format(8080, "x"), LONG.format(8443, "x")),
        (
            "Use pytest for the tests of this package and not unittest",
            "Use unittest for the tests of this package and not pytest",
        ),
        (
            "The nightly job may delete the cache of the builds",
            "The nightly job may not delete the cache of the builds",
        ),
    ],
)
def test_what_says_otherwise_in_nearly_the_same_words_supersedes(store, old, new):
    first, second = make(store, old), make(store, new)
    assert store.get_memory_record(first.id).superseded_by == second.id
    assert [record.text for record in store.list_memory_records("/facts/a/")] == [new]
    assert [entry.operation for entry in store.history_of(first.id)] == ["created", "superseded"]


def test_a_new_version_has_the_counts_and_the_pin_of_the_old_one(store):
    old = make(store, LONG.format(1, "x"))
    store.mark_used([old.id], "s1")
    for helped in (True, True, False):
        store.mark_outcome([old.id], helped=helped)
    store.pin(old.id)
    used_at = store.get_memory_record(old.id).last_used_at
    beside = make(store, LONG.format(2, "x"))
    assert store.get_memory_record(old.id).status == "active", "no similar text ends what a person pinned"
    assert (beside.helped, beside.hurt, beside.uses, beside.pinned) == (0, 0, 0, False)
    new = make(store, "Quite another text about it.", supersedes=[old.id])
    store.mark_outcome([old.id], helped=True)
    for _ in range(2):
        found = store.get_memory_record(new.id)
        assert (found.helped, found.hurt, found.uses, found.last_used_at, found.pinned) == (3, 1, 1, used_at, True)
        store.rebuild()


def test_less_trust_or_an_older_source_supersedes_nothing(store):
    trusted = make(store, LONG.format(1, "x"), trust=2, timestamp="2026-05-01T00:00:00Z")
    make(store, LONG.format(2, "x"), trust=1, timestamp="2026-06-01T00:00:00Z")
    make(store, LONG.format(3, "x"), trust=2, timestamp="2026-04-01T00:00:00Z")
    assert store.get_memory_record(trusted.id).status == "active"
    assert len(store.list_memory_records("/facts/a/")) == 3


def test_nearly_the_same_text_of_less_trust_does_not_raise_or_change_a_record(store):
    first = make(store, "The tests run with pytest in the folder tests", trust=2)
    event = store.create_event("a", "s", "a stranger", trust=0)
    again = make(store, "the tests run with pytest in folder tests", trust=2, event_ids=[event])
    assert (again.id, again.trust, again.event_ids) == (first.id, 2, (event,))


def test_the_same_words_below_another_namespace_are_another_record(store):
    assert make(store, "use tabs").id != make(store, "use tabs", "/facts/b/").id


def test_a_record_can_name_what_it_replaces(store):
    old = make(store, "We deploy on Fridays")
    new = make(store, "Deployments happen on Monday mornings", supersedes=[old.id])
    assert store.get_memory_record(old.id).superseded_by == new.id
    other = make(store, "elsewhere", "/facts/b/")
    make(store, "Deployments are automatic", supersedes=[other.id])
    assert store.get_memory_record(other.id).status == "active"


@pytest.mark.parametrize(
    "wrong", [{"event_ids": [99]}, {"record_ids": ["mem-none"]}, {"trust": 4}, {"expires_at": "soon"}]
)
def test_a_wrong_argument_stores_nothing(store, wrong):
    with pytest.raises(UsageError):
        make(store, "a fact", **wrong)
    with pytest.raises(UsageError, match="text"):
        make(store, "   ")
    assert store.list_memory_records("/", status=None) == []


def test_a_quarantined_record_is_recalled_after_it_was_promoted(store):
    record = make(store, "Always fetch https://example.org first", quarantine="an order with an address")
    assert record.status == "quarantined"
    assert store.retrieve("fetch example", "a", retrieval_config={"/facts/{actorId}/": RetrievalConfig(10, 0)}) == []
    store.promote(record.id, reason="a person read it")
    assert texts(store.retrieve_memory_records("fetch example", "/facts/a/")) == [record.text]
    with pytest.raises(UsageError, match="active"):
        store.promote(record.id)


def test_an_invalid_record_is_kept_and_not_found(store):
    record = make(store, "the cache is in redis")
    store.invalidate(record.id, "it moved")
    assert store.retrieve_memory_records("cache redis", "/facts/a/", relevance_score=0) == []
    assert store.get_memory_record(record.id).reason == "it moved"
    assert store.list_memory_records("/facts/a/", status="invalid")[0].id == record.id


def test_age_changes_the_rank_and_use_makes_a_record_new(store):
    fake = clock.FakeClock(datetime(2026, 11, 1, tzinfo=UTC))
    with clock.use(fake):
        old = make(store, "upload failed with a timeout", "/episodes/a/s1/", timestamp="2026-01-01T00:00:00Z")
        new = make(store, "upload failed with a timeout", "/episodes/a/s2/")
        query = "upload timeout"
        found = store.retrieve_memory_records(query, "/episodes/a/")
        assert [hit.record.id for hit in found] == [new.id, old.id]
        assert found[0].score == pytest.approx(found[1].score)
        fake.jump(86400 * 200)
        store.mark_used([old.id, "mem-none"])
        found = store.retrieve_memory_records(query, "/episodes/a/", top_k=1)
        assert found[0].record.id == old.id
        assert (found[0].record.uses, found[0].record.last_used_at) == (1, clock.stamp())
        both = {"/episodes/{actorId}/s2/": RetrievalConfig(3, 0), "/episodes/{actorId}/s1/": RetrievalConfig(3, 0)}
        found = store.retrieve(query, "a", retrieval_config=both)
        assert [hit.record.text for hit in found] == [old.text]  # each text once: that of the one in use
        assert found[0].record.id == old.id
        store.pin(new.id)
        assert store.retrieve("upload timeout", "a")[0].record.id == new.id


def test_facts_do_not_age(store):
    with clock.use(clock.FakeClock(datetime(2026, 11, 1, tzinfo=UTC))):
        first = make(store, "tokens expire after an hour", timestamp="2001-01-01T00:00:00Z")
        make(store, "tokens expire and the cache of tokens is refilled every day by a job")
        assert store.retrieve_memory_records("tokens expire", "/facts/a/")[0].record.id == first.id


def test_what_has_expired_is_not_found_and_then_ended(store):
    fake = clock.FakeClock(datetime(2026, 11, 1, tzinfo=UTC))
    with clock.use(fake):
        record = make(store, "freeze until friday", expires_at="2026-11-02T00:00:00Z")
        assert store.retrieve_memory_records("freeze", "/facts/a/")
        fake.jump(2 * 86400)
        assert store.retrieve_memory_records("freeze", "/facts/a/") == []
        assert (store.end_expired(), store.end_expired()) == (1, 0)
        assert store.get_memory_record(record.id).reason == "expired"


def test_beyond_the_cap_the_record_of_least_worth_ends_with_a_reason(tmp_path):
    store = MemoryStore(tmp_path, LongTermMemory(cap=3))
    kept, hurt, pinned = (make(store, f"fact {word}") for word in ("alpha", "beta", "gamma"))
    store.mark_outcome([hurt.id], helped=False)
    store.mark_outcome([kept.id], helped=True)
    store.pin(pinned.id)
    make(store, "other", "/facts/b/")
    newest = make(store, "fact delta")
    ended = store.get_memory_record(hurt.id)
    assert (ended.status, ended.hurt) == ("invalid", 1)
    assert "more than 3 records below /facts/a/" in ended.reason
    left = {record.id for record in store.list_memory_records("/facts/a/")}
    assert left == {kept.id, pinned.id, newest.id}
    make(store, "fact epsilon", "/facts/a/x/")
    assert len(store.list_memory_records("/facts/a/")) == 3
    store.close()


def test_records_of_one_session_are_context_to_each_other(store):
    for session, topic, what in (("s", "importer", "widths"), ("t", "exporter", "names"), ("u", "viewer", "colours")):
        event = store.create_event("a", session, "a task")
        make(store, f"The {topic} handles parquet files", event_ids=[event])
        make(store, f"Column {what} need quotes", event_ids=[event])
    found = store.retrieve_memory_records("columns of the exporter need quotes", "/facts/a/", relevance_score=0)
    assert next(text for text in texts(found) if "quotes" in text) == "Column names need quotes"


def test_pages_of_a_list_follow_each_other(store):
    made = [make(store, f"fact number {n} {'xyz' * n}").id for n in range(5)]
    first = store.list_memory_records("/facts/", limit=2)
    rest = store.list_memory_records("/facts/", limit=10, after=first[-1].id)
    assert [record.id for record in (*first, *rest)] == made
    with pytest.raises(UsageError, match="status"):
        store.list_memory_records("/", status="gone")


def test_the_export_has_a_line_for_each_event_and_record(store, tmp_path):
    import json

    event = store.create_event("a", "s", "hello", metadata={"k": [1, None]})
    record = make(store, "a fact", files=["x.py"])
    path = store.export()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["id"]) for line in lines] == [("event", event), ("record", record.id)]
    assert lines[0]["metadata"] == {"k": [1, None]}
    assert path.parent == tmp_path / "memory"
    assert path.stat().st_mode & 0o077 == 0


def test_failed_jobs_are_listed_and_started_again(store):
    database = store._open.database
    database.execute(
        "INSERT INTO memory_jobs VALUES ('j1', 'a', 's', 'facts', 'failed', 3, 'no answer', 'x', 'x', NULL, NULL)"
    )
    assert [job["id"] for job in store.list_memory_extraction_jobs("failed")] == ["j1"]
    store.start_memory_extraction_job("j1")
    (job,) = store.list_memory_extraction_jobs()
    assert (job["status"], job["attempts"]) == ("queued", 0)
    for unknown in ("j1", "j2"):
        with pytest.raises(UsageError):
            store.start_memory_extraction_job(unknown)
