"""MemoryStore: events and records, stored and found."""

from contextlib import closing

import pytest

from agent.config import Settings
from agent.errors import MemoryUnavailable, UsageError
from agent.memory import MemoryStore, NewEvent
from agent.memory.database import MemoryDatabase


def texts(hits):
    return [hit.record.text for hit in hits]


def test_an_event_is_found_by_what_was_said_around_it(store):
    store.create_event("a", "s1", "Which port does the billing service use?")
    reply = store.create_event("a", "s1", "8443, behind the proxy.", role="assistant")
    store.create_event("a", "s2", "The logo is green.")
    assert reply in [hit.event_id for hit in store.search_events("port of the billing service", "a")]
    assert store.search_events("billing", "b") == []


def test_the_same_client_token_gives_the_same_event(store):
    first = store.create_event("a", "s", "hello", client_token="t")
    assert store.create_event("a", "s", "hello again", client_token="t") == first
    assert [hit.text for hit in store.search_events("hello", "a")] == ["hello"]


def test_many_events_are_stored_all_or_none(store):
    events = [NewEvent("a", "s", "one"), NewEvent("a", "no/name", "two")]
    with pytest.raises(UsageError):
        store.create_events(events)
    assert store.search_events("one", "a") == []
    assert len(store.create_events(events[:1])) == 1
    assert [hit.text for hit in store.search_events("one", "a")] == ["one"]


def test_a_prefix_never_meets_a_name_that_begins_alike(store):
    store.create_memory_record("/actors/a/", "the sky is blue", strategy="facts")
    store.create_memory_record("/actors/a2/", "the sky is grey", strategy="facts")
    store.create_memory_record("/actors/a/s1/", "the sky is wide", strategy="facts")
    found = texts(store.retrieve_memory_records("sky", "/actors/a/", relevance_score=0))
    assert sorted(found) == ["the sky is blue", "the sky is wide"]
    assert store.retrieve_memory_records("sky", "/actors/nobody/") == []


def test_relevance_0_gives_every_hit_and_1_only_full_matches(store):
    for text in ("the parser reads tokens", "tokens expire after an hour", "the parser is slow"):
        store.create_memory_record("/facts/a/", text, strategy="facts")
    query = "parser tokens"
    assert len(store.retrieve_memory_records(query, "/facts/a/", relevance_score=0)) == 3
    assert texts(store.retrieve_memory_records(query, "/facts/a/", relevance_score=1)) == ["the parser reads tokens"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("getUserName reads the session", "user name"),
        ("get_user_name reads the session", "getUserName"),
        ("テストは必ず書いてください", "テスト"),
        ("用户名必须唯一", "用户名"),
        ("ต้องเขียนการทดสอบ", "การทดสอบ"),
        ("Die Prüfungen laufen nachts", "prufungen"),
        ("tests were running slowly", "run test"),
    ],
)
def test_identifiers_and_texts_without_spaces_are_found(store, text, query):
    store.create_memory_record("/facts/a/", text, strategy="facts")
    store.create_memory_record("/facts/a/", "nothing of the kind", strategy="facts")
    assert texts(store.retrieve_memory_records(query, "/facts/a/", relevance_score=1)) == [text]


def test_the_same_text_is_one_record_with_all_its_sources(store):
    one, two = store.create_event("a", "s", "use pytest"), store.create_event("a", "t", "please use pytest")
    first = store.create_memory_record("/facts/a/", "Use pytest.", strategy="facts", event_ids=[one])
    again = store.create_memory_record("/facts/a/", "use  pytest.", strategy="facts", event_ids=[two])
    assert again.id == first.id
    assert again.event_ids == (one, two)
    assert len(store.list_memory_records("/facts/a/")) == 1


def test_a_text_that_says_otherwise_supersedes_and_keeps_the_old_one(store):
    old = store.create_memory_record(
        "/facts/a/", "The billing service listens on port 8080 of the internal host name", strategy="facts"
    )
    new = store.create_memory_record(
        "/facts/a/", "The billing service listens on port 8443 of the internal host name", strategy="facts"
    )
    kept = store.get_memory_record(old.id)
    assert (kept.status, kept.superseded_by, kept.text) == ("superseded", new.id, old.text)
    assert texts(store.retrieve_memory_records("service port", "/facts/a/")) == [new.text]


def test_the_trust_of_a_record_is_the_least_of_its_sources(store):
    event = store.create_event("a", "s", "a stranger says so", trust=0)
    record = store.create_memory_record("/facts/a/", "It is so", strategy="facts", trust=2, event_ids=[event])
    later = store.create_memory_record("/facts/a/", "So it follows", strategy="facts", trust=2, record_ids=[record.id])
    assert (record.trust, later.trust) == (0, 0)
    assert store.retrieve_memory_records("so", "/facts/a/", relevance_score=0, min_trust=1) == []


def test_secrets_are_masked_before_the_first_write(tmp_path):
    store = MemoryStore(tmp_path, Settings().memory, mask=lambda text: text.replace("hunter2hunter2", "***"))
    store.create_event("a", "s", "the key is hunter2hunter2", source="hunter2hunter2", metadata={"k": "hunter2hunter2"})
    store.create_memory_record("/facts/a/", "key hunter2hunter2", strategy="facts", title="hunter2hunter2")
    store.close()
    assert not any(b"hunter2" in path.read_bytes() for path in tmp_path.iterdir())


def test_retrieve_asks_the_five_namespaces_within_the_budget(store):
    store.create_memory_record("/facts/a/", "deploy with make release", strategy="facts")
    store.create_memory_record("/episodes/a/s1/", "deploy failed once, make release mended it", strategy="episodes")
    store.create_memory_record("/facts/b/", "deploy by hand", strategy="facts")
    found = texts(store.retrieve("deploy with make release", "a"))
    assert found == ["deploy with make release", "deploy failed once, make release mended it"]
    assert texts(store.retrieve("deploy with make release", "a", budget_tokens=10)) == ["deploy with make release"]


@pytest.mark.parametrize("namespace", ["facts/a/", "/facts/a", "", "/facts//a/", "/fa cts/", "/%/"])
def test_a_namespace_of_another_form_is_refused(store, namespace):
    with pytest.raises(UsageError, match="namespace"):
        store.retrieve_memory_records("x", namespace)


def test_a_file_that_is_no_database_is_an_error_of_its_own(tmp_path):
    (tmp_path / "memory.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(MemoryUnavailable, match="damaged"):
        MemoryStore(tmp_path, Settings().memory).retrieve("x", "a")


def test_a_process_caches_at_most_half_a_mebibyte_of_memory_db(tmp_path):
    with closing(MemoryDatabase(tmp_path / "memory.db")) as database:
        (cached,) = database.execute("PRAGMA cache_size")[0].values()
    assert cached == -512  # KiB: each of many waiting workers has such a cache
