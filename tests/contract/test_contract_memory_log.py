"""The contract of `Log` in `agent/memory/base.py`, run against the log of one host and the log that hosts share."""

import pytest
import services
from shared_memory import contents, host

from agent.config import Settings
from agent.errors import MemoryUnavailable, UsageError
from agent.memory import MemoryStore, NewEvent, Selector


@pytest.fixture(params=["local", "shared"])
def make(request, tmp_path):
    """`make()` opens the memory once more, as another process does."""
    opened = []

    def opens():
        store = (
            MemoryStore(tmp_path, Settings().memory, who="a test")
            if request.param == "local"
            else host(tmp_path, address)
        )
        opened.append(store)
        return store

    if request.param == "local":
        yield opens
    else:
        with services.schema(tmp_path) as address:
            yield opens
            for store in opened:
                store.close()
    for store in opened:
        store.close()


@pytest.fixture
def store(make):
    return make()


@pytest.fixture
def log(store):
    return store._open.log


def put(log, *subjects):
    with log.transaction():
        return [log.append("pinned", subject, {"pinned": True}, who="me", reason="why") for subject in subjects]


def test_numbers_grow_by_one_and_entries_come_back_as_they_were_appended(log):
    first, second = put(log, "mem-1", "mem-2")
    [third] = put(log, "mem-3")
    assert (first.number, second.number, third.number) == (1, 2, 3)
    assert list(log.entries()) == [first, second, third]
    assert list(log.entries(after=1, limit=1)) == [second]
    assert (third.subject, third.who, third.reason, dict(third.payload)) == ("mem-3", "me", "why", {"pinned": True})
    assert first.at <= second.at <= third.at


def test_a_time_that_is_given_is_recorded(log):
    with log.transaction():
        entry = log.append("pinned", "x", {"pinned": True}, who="", at="2020-01-01T00:00:00.000000Z")
    assert [one.at for one in log.entries()] == [entry.at] == ["2020-01-01T00:00:00.000000Z"]


def _fail(_):
    raise UsageError("an error of the caller")


def test_a_transaction_that_raises_leaves_nothing_and_the_next_one_takes_its_numbers(log):
    put(log, "mem-1")
    with pytest.raises(UsageError), log.transaction():
        _fail(log.append("pinned", "mem-2", {"pinned": True}, who=""))
    assert [one.subject for one in log.entries()] == ["mem-1"]
    assert put(log, "mem-3")[0].number == 2
    log.follow()
    assert [one.subject for one in log.entries()] == ["mem-1", "mem-3"]


def test_blanked_entries_keep_their_number_time_and_operation_only(log):
    first, second = put(log, "mem-1", "mem-2")
    with log.transaction():
        log.blank([first.number])
    blank, kept = log.entries()
    assert (blank.number, blank.at, blank.operation) == (first.number, first.at, first.operation)
    assert (blank.subject, blank.reason, blank.payload) == ("", "", None)
    assert kept == second
    log.follow()
    assert list(log.entries()) == [blank, kept]


def test_an_entry_of_the_same_transaction_can_be_blanked(log):
    with log.transaction():
        entry = log.append("pinned", "mem-1", {"pinned": True}, who="me")
        log.blank([entry.number])
    log.follow()
    assert [one.payload for one in log.entries()] == [None]


def test_what_one_process_appends_the_other_has_in_its_next_write(make):
    one, other = make(), make()
    first = one.create_event("a", "s", "said by one", client_token="t")
    assert other.create_event("a", "s", "again", client_token="t") == first
    fact = one.create_memory_record("/facts/a/", "the port is 8080", strategy="facts")
    assert other.create_memory_record("/facts/a/", "The port is  8080", strategy="facts").id == fact.id
    assert one.create_event("a", "s", "more") == 4
    other.follow()
    assert [entry.operation for entry in other._open.log.entries()] == ["event", "created", "merged", "event"]


def test_texts_of_every_kind_come_back(make):
    odd = "NUL \0, lone \ud800, quote ' \" \\ :name %s %(x)s -- ; 柑橘系 🍋 \u2028" + "x" * 9000
    store = make()
    store.create_event("a", "s", odd, metadata={"k": odd, odd: [1, None, True, 1.5]}, source=odd, role=odd)
    record = store.create_memory_record("/facts/a/", odd, strategy="facts", title=odd, files=[odd])
    store.promote(record.id, trust=2, reason=odd)
    live = contents(store)
    store.rebuild()
    assert contents(store) == live
    [event] = make().get_events([1])
    assert event.text == odd.replace("\ud800", "�").replace("\0", "�")
    assert make().history_of(record.id)[-1].operation == "promoted"


def test_the_tables_are_the_same_when_made_again(store):
    store.create_events([NewEvent("a", f"s{n // 7}", f"message {n} about the parser") for n in range(60)])
    fact = store.create_memory_record("/facts/a/", "the port is 8080", strategy="facts", event_ids=[1, 2])
    store.create_memory_record("/facts/a/", "the port is 8443", strategy="facts", supersedes=[fact.id])
    store.mark_used([fact.id])
    store.mark_outcome([fact.id], helped=True)
    store.forget(Selector(session="s3"), dry_run=False)
    live = contents(store)
    assert store.rebuild() == len(live["log"])
    assert contents(store) == live
    status = store.log_status()
    assert (status["last"], status["applied"], status["own"], status["error"]) == (len(live["log"]),) * 2 + (False, "")


def test_an_error_of_the_caller_is_no_error_of_the_log(store):
    with pytest.raises(UsageError):
        store.create_event("a b", "s", "x")
    with pytest.raises(UsageError):
        store.promote("mem-none")
    with pytest.raises(MemoryUnavailable, match="mine"), store._open.log.transaction():
        raise MemoryUnavailable("mine")
    assert store.create_event("a", "s", "x") == 1
