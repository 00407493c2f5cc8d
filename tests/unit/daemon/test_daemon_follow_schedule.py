"""When a daemon has memory.db follow the log that hosts share."""

from contextlib import closing

import pytest
import services
from shared_memory import host

from agent import clock
from agent.daemon.follow_schedule import LOOK_SECONDS, PAUSE_SECONDS, FollowSchedule
from agent.memory import MemoryStore, Selector


@pytest.fixture
def here(place, tmp_path):
    with services.schema(tmp_path) as address:
        made = place(f"taskqueue: {{ledger: '{address}'}}\n")
        made.address = address
        with clock.use(clock.FakeClock()) as made.time:
            yield made


def looks(here, schedule):
    """Whether a follow is due at the next look, and not before it."""
    assert not schedule.is_due()
    here.time.move(LOOK_SECONDS)
    return schedule.is_due()


def test_a_host_follows_at_its_start_and_when_another_one_has_appended(here, tmp_path):
    schedule = FollowSchedule(here.wiring)
    assert schedule.is_due(), "before anything is there"
    assert not looks(here, schedule)
    with (
        closing(host(tmp_path / "other", here.address)) as other,
        closing(host(here.settings.base_dir, here.address)) as own,
    ):
        other.create_event("o", "s", "one")
        assert looks(here, schedule)
        own.follow()
        assert not looks(here, schedule)
        assert not looks(here, schedule)
        other.create_event("o", "s", "two")
        assert looks(here, schedule)
        own.follow()
        own.create_event("o", "s", "this host has it already")
        assert not looks(here, schedule)


def test_a_follow_that_changed_nothing_is_not_repeated_at_once(here, tmp_path):
    schedule = FollowSchedule(here.wiring)
    assert schedule.is_due()
    with closing(host(tmp_path / "other", here.address)) as other:
        other.create_event("o", "s", "one")
    assert looks(here, schedule)
    assert not looks(here, schedule)
    here.time.move(PAUSE_SECONDS)
    assert schedule.is_due()
    assert not looks(here, schedule)


def test_bytes_that_remain_are_a_reason_to_follow(here, tmp_path, monkeypatch):
    schedule = FollowSchedule(here.wiring)
    assert schedule.is_due()
    with closing(host(here.settings.base_dir, here.address)) as own:
        own.create_event("o", "s", "forget this")
        with monkeypatch.context() as patch:
            patch.setattr("agent.memory.store.purge.purge", lambda *_: [])  # it is killed before
            own.forget(Selector(match="forget this"), dry_run=False)
        assert looks(here, schedule)
        own.follow()
        assert not looks(here, schedule)


def test_a_host_with_a_ledger_of_its_own_follows_only_to_remove_bytes_that_remain(place, monkeypatch):
    made = place()
    with (
        clock.use(clock.FakeClock()) as time,
        closing(MemoryStore(made.settings.base_dir, made.settings.memory)) as own,
    ):
        schedule = FollowSchedule(made.wiring)
        assert not schedule.is_due()
        own.create_event("o", "s", "forget this")
        with monkeypatch.context() as patch:
            patch.setattr("agent.memory.store.purge.purge", lambda *_: [])  # it is killed before
            own.forget(Selector(match="forget this"), dry_run=False)
        for due in (False, True, True):  # at the first check the process that forgets may still be at work
            time.move(PAUSE_SECONDS)
            assert schedule.is_due() is due
            assert not schedule.is_due()
        own.follow()
        time.move(PAUSE_SECONDS)
        assert not schedule.is_due()


def test_a_server_that_is_away_makes_nothing_due(here, monkeypatch):
    from agent.errors import LedgerError

    schedule = FollowSchedule(here.wiring)
    assert schedule.is_due()

    def away(*_, **__):
        raise LedgerError("away")

    monkeypatch.setattr(here.wiring.db, "execute", away)
    monkeypatch.setattr(here.wiring.db, "has_table", away)
    assert not looks(here, schedule)
    monkeypatch.undo()
    assert not looks(here, schedule), "nothing was appended"
