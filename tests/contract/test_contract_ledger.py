"""The contract of `agent/taskqueue/base.py`, run against every entry of the registry and against plug-ins."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from uuid import uuid4

import orjson
import pytest
import services
from length import either

from agent import clock
from agent.config import settings_of
from agent.context import TaskContextManager
from agent.context.task_row import SETTABLE, TaskRow
from agent.errors import ClaimLost, Fenced, LedgerError, UsageError
from agent.plugin_guard import PluginGuard
from agent.store import db
from agent.store.configured_ledger import LedgerKind, entry_of
from agent.taskqueue import LEDGERS, AtOnce, row_holder
from agent.taskqueue.ledger import POISON
from agent.values import CLOSED_STATUSES, Status, TaskKey

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["agent.taskqueue.ledger", "agent.store.migrate"])


def open_ledger(name, base_dir):
    """In SQLite the base_dir is the database; in PostgreSQL a schema named for it."""
    return LEDGERS.load(name, guard_for(name, base_dir))(base_dir, address_of(name, base_dir))


def guard_for(name, base_dir):
    """The guard of a configuration beside base_dir, which has the plug-in pinned."""
    guard = PluginGuard(base_dir.parent)
    if name in PLUG_INS and not guard.path.exists():
        guard.pin([name])
    return guard


def address_of(name, base_dir):
    """The value of `taskqueue.ledger`."""
    if name == "postgresql":
        return services.postgres(base_dir)
    return f"{name}://{base_dir}/at/rows.db" if name.endswith("AtAddress") else name


def key(number=1, **changes):
    parts = {
        "task_source": "local",
        "owner": "local",
        "repo": "default",
        "task_type": "issue",
        "task_id": str(number),
        "instance": "/t",
    }
    return TaskKey(**parts | changes)


PLUG_INS = ["ledger_plugins:elsewhere", "ledger_plugins:AtAddress"]


@pytest.fixture(params=[*LEDGERS.names(), *either(["ledger_plugins:AtAddress"], PLUG_INS)])
def name(request):
    return request.param


@pytest.fixture
def base_dir(name, tmp_path):
    folder = tmp_path / "contexts"
    if name != "postgresql":
        yield folder
        return
    with services.schema(folder):
        yield folder


@pytest.fixture
def ledger(name, base_dir):
    ledger = open_ledger(name, base_dir)
    yield ledger
    ledger.close()


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as fake:
        yield fake


def me(base_dir):
    return row_holder.owner(base_dir)


def test_what_a_clock_that_was_ahead_has_put_off_is_due_soon_when_it_is_right_again(ledger, base_dir, time):
    """A machine that woke up in 2030: its tries wait for 2030, and so would the person for the end of a task."""
    time.jump(400 * 86400)
    tried, new, told = (ledger.enqueue(key(number), not_before=None) for number in (1, 2, 3))
    ledger.release(tried, ledger.claim(tried, me(base_dir), 60).attempt, clock.now() + timedelta(seconds=1800))
    ledger.finish(told, ledger.claim(told, me(base_dir), 60).attempt, Status.FAILED)
    time.jump(-400 * 86400)
    later = ledger.enqueue(key(4), not_before=clock.now() + timedelta(days=7))
    lately = ledger.enqueue(key(5), not_before=clock.now() + timedelta(seconds=1800))
    assert ledger.due(9) == [new]
    assert ledger.due_notifications() == []
    assert sorted(ledger.repair_future_times()) == sorted([tried, told])
    assert [row.uuid for row in ledger.due_notifications()] == [told]
    time.move(61)
    assert sorted(ledger.due(9)) == sorted([tried, new])
    assert ledger.claim(tried, me(base_dir), 60).attempt == 2
    assert ledger.repair_future_times() == []
    time.move(1800)
    assert sorted(ledger.due(9)) == sorted([new, lately]), "what a person put off stays put off"
    assert ledger.get(later).not_before > clock.stamp()


ELSEWHERE = "0123456789ab:/other/contexts:7:99"


# --- put and look ----------------------------------------------------------------------------------------------


def test_a_task_that_is_put_is_queued_with_what_was_told(ledger, time):
    parent = str(uuid4())
    uuid = ledger.enqueue(
        key(7), user="alice", title="Fix", priority=2, parent_uuid=parent, provider="openai", model="m"
    )
    row = ledger.get(uuid)
    assert (row.status, row.key, row.user, row.title, row.priority) == (Status.QUEUED, key(7), "alice", "Fix", 2)
    assert (row.parent_uuid, row.llm_provider, row.model) == (parent, "openai", "m")
    assert row.created_at == clock.stamp()
    assert (row.attempt, row.started_at, row.lease_owner, row.requested) == (0, None, None, None)


def test_the_uuid_and_the_mapping_of_the_seeds_are_taken(ledger):
    uuid = str(uuid4())
    seeds = {
        "task_source": "github",
        "owner": "o",
        "repo": "r",
        "task_type": "issue",
        "task_id": "27",
        "uuid": uuid,
        "user": "x",
    }
    assert ledger.enqueue(seeds, uuid=uuid.upper()) == uuid
    assert ledger.get(uuid).key == TaskKey("github", "o", "r", "issue", "27")


@pytest.mark.parametrize("bad", ["", "x", "../../etc", "550e8400-e29b-41d4-a716-44665544000g"])
def test_a_uuid_that_is_none_is_refused(ledger, bad):
    with pytest.raises(UsageError, match="is not a uuid"):
        ledger.enqueue(key(), uuid=bad)


def test_one_key_has_one_open_row(ledger, base_dir):
    first = ledger.enqueue(key())
    assert ledger.enqueue(key()) is None
    attempt = ledger.claim(first, me(base_dir), 60).attempt
    assert ledger.enqueue(key()) is None
    ledger.request(first, "pause")
    assert ledger.enqueue(key()) is None
    ledger.finish(first, attempt, "completed")
    second = ledger.enqueue(key())
    assert second not in (None, first)
    assert ledger.latest(key()).uuid == second
    assert ledger.latest(key(99)) is None


@pytest.mark.parametrize("part", ["task_source", "instance", "owner", "repo", "task_type", "task_id"])
def test_keys_that_differ_in_any_part_are_different(ledger, part):
    assert ledger.enqueue(key()) is not None
    assert ledger.enqueue(key(**{part: "another"})) is not None


def test_a_uuid_is_given_to_one_task_only(ledger):
    uuid = ledger.enqueue(key(1))
    assert ledger.enqueue(key(1), uuid=uuid) is None
    with pytest.raises(LedgerError, match="belongs to another task"):
        ledger.enqueue(key(2), uuid=uuid)


def test_rows_are_listed_newest_first_by_status_and_limit(ledger, time):
    uuids = []
    for number in range(4):
        uuids.append(ledger.enqueue(key(number)))
        time.move(1)
    ledger.request(uuids[1], "stop")
    assert [row.uuid for row in ledger.list()] == uuids[::-1]
    assert [row.uuid for row in ledger.list(limit=2)] == [uuids[3], uuids[2]]
    assert [row.uuid for row in ledger.list("queued")] == [uuids[3], uuids[2], uuids[0]]
    assert [row.uuid for row in ledger.list(Status.STOPPED)] == [uuids[1]]
    with pytest.raises(UsageError, match="allowed are queued, running"):
        ledger.list("waiting")


def test_a_beginning_names_a_task_when_only_one_has_it(ledger):
    one = ledger.enqueue(key(1), uuid="aaaa0000-0000-4000-8000-000000000001")
    two = ledger.enqueue(key(2), uuid="aaaa0000-0000-4000-8000-000000000002")
    three = ledger.enqueue(key(3), uuid="bbbb0000-0000-4000-8000-000000000003")
    assert ledger.resolve("b") == three
    assert ledger.resolve(" BBBB ") == three
    assert ledger.resolve(one) == one
    with pytest.raises(UsageError, match=two):
        ledger.resolve("aaaa")
    for nothing in ("cccc", "", "%", "_" * 4, "aaaa%", "a" * 99):
        with pytest.raises(UsageError, match="no task"):
            ledger.resolve(nothing)


# --- offer and claim -------------------------------------------------------------------------------------------


def test_due_goes_by_priority_then_age_and_leaves_out_what_is_not_yet_due(ledger, time):
    old = ledger.enqueue(key(1))
    time.move(1)
    urgent = ledger.enqueue(key(2), priority=5)
    later = ledger.enqueue(key(3), priority=9, not_before=clock.now() + timedelta(seconds=60))
    time.move(1)
    new = ledger.enqueue(key(4))
    assert ledger.due(10) == [urgent, old, new]
    assert ledger.due(1) == [urgent]
    assert ledger.due(0) == []
    assert ledger.due(10, clock.now() + timedelta(seconds=58)) == [urgent, old, new]
    assert ledger.due(10, clock.now() + timedelta(seconds=59)) == [later, urgent, old, new]


def take(ledger, base_dir, limit=1, **more):
    return ledger.reserve(limit, me(base_dir), seconds=60, **more)


def put_many(ledger, count, first=1, user="alice", **changes):
    with ledger.db.transaction():
        return [ledger.enqueue(key(number, **changes), user=user) for number in range(first, first + count)]


def test_the_issue_of_another_starts_as_the_next_one_before_a_thousand_of_one_person(ledger, base_dir, time):
    many = put_many(ledger, 1000)
    for _ in range(3):
        (uuid,) = take(ledger, base_dir)
        assert uuid in many
        ledger.claim(uuid, me(base_dir), 60)
    time.move(1)
    other = ledger.enqueue(key(2000, repo="other"), user="bob")
    same_repository = ledger.enqueue(key(2001), user="carol")
    third = ledger.enqueue(key(2002, repo="third"), user="alice")
    time.move(1)
    assert take(ledger, base_dir, 4)[0] in many, "of what is taken at once the oldest is named first"
    rest = [row.uuid for row in map(ledger.get, [other, same_repository, third])]
    assert not set(rest) & set(take(ledger, base_dir, 9)), "each was served among the first four"


def test_persons_and_repositories_are_served_round_robin(ledger, base_dir, time):
    """Who was served longest ago goes first, whatever waits longer."""
    alice = put_many(ledger, 4)
    time.move(1)
    bob = put_many(ledger, 3, first=11, user="bob")
    carol = put_many(ledger, 2, first=21, user=None)
    order = []
    for _ in range(9):
        time.move(1)
        (uuid,) = take(ledger, base_dir)
        order.append(uuid)
    known = {"a": alice, "b": bob, "c": carol}
    assert "".join(name for uuid in order for name, uuids in known.items() if uuid in uuids) in (
        *("abcabcaba", "acbacbaba"),  # rows of one instant go by their uuid
    )
    assert [uuid for uuid in order if uuid in alice] == sorted(alice), "of one instant by uuid"
    assert take(ledger, base_dir, 9) == []


def test_a_higher_priority_goes_before_all_others(ledger, base_dir, time):
    ledger.enqueue(key(1), user="alice")
    time.move(1)
    urgent = [ledger.enqueue(key(number), user="alice", priority=1) for number in (2, 3)]
    bob = ledger.enqueue(key(4), user="bob")
    assert sorted(take(ledger, base_dir, 2)) == sorted(urgent)
    assert take(ledger, base_dir) == [bob]


def test_a_reserved_row_is_no_others_until_it_is_given_up_or_its_time_is_over(ledger, base_dir, time):
    first, second, third = put_many(ledger, 3)
    taken = take(ledger, base_dir, 2)
    assert len(taken) == 2
    assert ledger.due(9) == list({first, second, third} - set(taken))
    assert ledger.reserve(1, ELSEWHERE, seconds=10) != []
    assert ledger.reserve(9, ELSEWHERE, seconds=10) == []
    assert not ledger.release_reservation(taken[0], ELSEWHERE)
    assert ledger.release_reservation(taken[0], me(base_dir))
    assert ledger.reserve(9, ELSEWHERE, seconds=60) == [taken[0]]
    time.move(61)
    assert sorted(take(ledger, base_dir, 9)) == sorted([first, second, third])
    assert ledger.claim(first, me(base_dir), 60).attempt == 1
    assert sorted(ledger.release_reservations(me(base_dir))) == sorted([second, third])
    assert take(ledger, base_dir, 9, without=[second]) == [third]


def test_what_waits_to_be_published_is_taken_by_its_outcome(ledger, base_dir):
    bound, free = put_many(ledger, 2)
    ledger.db.execute("UPDATE tasks SET outcome = 'publishing' WHERE uuid = :uuid", uuid=bound)
    assert take(ledger, base_dir, 9, outcome="publishing") == [bound]
    assert take(ledger, base_dir, 9) == [free]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (AtOnce(person=2), ["alice", "alice", "bob", "bob"]),
        (AtOnce(repository=3), ["alice", "bob", "carol", "bob"]),
        (AtOnce(server=3), ["alice", "bob", "carol"]),
        (AtOnce(person=1, repository=1), ["alice", "bob"]),
        (AtOnce(), ["alice"] * 5 + ["bob"] * 4 + ["carol"]),
    ],
)
def test_no_more_run_at_once_than_the_limits_allow(ledger, base_dir, limits, expected):
    """Five issues of alice, three of bob and one of carol in one repository, one of bob in another."""
    put_many(ledger, 5)
    put_many(ledger, 3, first=11, user="bob")
    put_many(ledger, 1, first=21, user="carol")
    put_many(ledger, 1, first=31, user="bob", repo="other")
    if limits.person == 2:
        expected = [*expected, "carol"]
    taken = take(ledger, base_dir, 20, server="s", at_once=limits)
    assert sorted(ledger.get(uuid).user for uuid in taken) == sorted(expected)
    assert take(ledger, base_dir, 20, server="s", at_once=limits) == [], "what is reserved counts"
    for uuid in taken:
        ledger.claim(uuid, me(base_dir), 60)
    assert take(ledger, base_dir, 20, server="s", at_once=limits) == [], "what runs counts"
    ledger.finish(taken[0], 1, Status.FAILED)
    again = take(ledger, base_dir, 20, server="s", at_once=limits)
    assert len(again) == (0 if not limits else 1)
    if limits.server:
        assert len(take(ledger, base_dir, 2, server="another", at_once=limits)) == 2


def _take(name, base_dir, limit, count, at_once, begin, into):
    ledger = open_ledger(name, base_dir)
    begin.wait()
    taken = []
    for _ in range(count):
        taken += ledger.reserve(limit, row_holder.owner(base_dir), seconds=60, at_once=at_once)
    into.put(taken)
    ledger.close()


@pytest.mark.parametrize("limits", [AtOnce(), AtOnce(person=7)], ids=["free", "limited"])
def test_of_several_daemons_that_take_at_once_no_two_get_the_same_row(ledger, name, base_dir, limits):
    uuids = put_many(ledger, 12)
    begin, into = PROCESSES.Barrier(3), PROCESSES.Queue()
    arguments = (name, base_dir, 2, 3, limits, begin, into)
    processes = [PROCESSES.Process(target=_take, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    taken = [uuid for _ in processes for uuid in into.get(timeout=60)]
    for process in processes:
        process.join()
    assert len(set(taken)) == len(taken)
    assert len(taken) == 7 if limits else set(taken) <= set(uuids)
    assert sorted([*taken, *take(ledger, base_dir, 20, at_once=limits)]) == sorted(taken if limits else uuids)


def test_a_row_that_is_held_back_is_offered_or_withdrawn(ledger, base_dir, time):
    held = ledger.enqueue(key(1), not_before=clock.now() + timedelta(seconds=30))
    gone = ledger.enqueue(key(2), not_before=clock.now() + timedelta(seconds=30))
    assert ledger.due(10, clock.now()) == []
    assert ledger.offer(held)
    assert ledger.due(10, clock.now()) == [held]
    assert ledger.withdraw(gone)
    assert ledger.get(gone) is None
    assert ledger.enqueue(key(2)) is not None
    assert not ledger.withdraw(held), "it was offered"
    ledger.claim(held, me(base_dir), 60)
    assert not ledger.withdraw(held)
    assert not ledger.offer(held)
    assert not ledger.withdraw(gone)


def test_what_waits_to_be_published_on_the_forge_is_due_and_goes_to_no_broker(ledger, base_dir):
    bound, free = ledger.enqueue(key(1)), ledger.enqueue(key(2))
    claim = ledger.claim(bound, me(base_dir), 60)
    columns = dict.fromkeys(SETTABLE) | {"outcome": "publishing"}
    ledger.db.run("task_set", **columns, uuid=bound, attempt=claim.attempt)
    ledger.release(bound, claim.attempt)
    assert set(ledger.due(10)) == {bound, free}
    assert ledger.due(10, outcome="publishing") == [bound]
    assert [row.uuid for row in ledger.publish(10)] == [free]


def test_each_queued_row_is_handed_out_for_publishing_once_and_again_when_it_stays(ledger, base_dir, time):
    first = ledger.enqueue(key(1))
    time.move(1)
    urgent = ledger.enqueue(key(2), priority=5)
    later = ledger.enqueue(key(3), not_before=clock.now() + timedelta(seconds=60))
    assert [row.uuid for row in ledger.publish(1)] == [urgent]
    assert [row.uuid for row in ledger.publish(10)] == [first]
    assert ledger.publish(10) == []
    assert ledger.publish(10, 30) == []
    time.move(31)
    assert ledger.publish(10) == []
    claim = ledger.claim(first, me(base_dir), 60)
    assert [row.uuid for row in ledger.publish(10, 30)] == [urgent]
    assert ledger.publish(10, 30) == []
    ledger.release(first, claim.attempt)
    assert [(row.uuid, row.key) for row in ledger.publish(10)] == [(first, key(1))]
    time.move(60)
    assert [row.uuid for row in ledger.publish(10)] == [later]


def test_a_claim_makes_the_row_ours(ledger, base_dir, time):
    uuid = ledger.enqueue(key(), user="alice", parent_uuid="p")
    time.move(10)
    claim = ledger.claim(uuid, me(base_dir), 60)
    assert (claim.uuid, claim.attempt, claim.key, claim.user, claim.parent_uuid) == (uuid, 1, key(), "alice", "p")
    row = ledger.get(uuid)
    assert (row.status, row.lease_owner, row.process_id) == (Status.RUNNING, me(base_dir), os.getpid())
    assert row.hostname == row_holder.hostname()
    assert row.started_at == clock.stamp()
    assert row.lease_until == clock.stamp(clock.now() + timedelta(seconds=60))
    assert ledger.due(10) == []


def test_what_is_not_queued_or_not_due_cannot_be_claimed(ledger, base_dir, time):
    uuid = ledger.enqueue(key(1))
    ledger.claim(uuid, me(base_dir), 60)
    with pytest.raises(ClaimLost, match="is running"):
        ledger.claim(uuid, ELSEWHERE, 60)
    with pytest.raises(ClaimLost, match="no task"):
        ledger.claim(str(uuid4()), me(base_dir), 60)
    later = ledger.enqueue(key(2), not_before=clock.now() + timedelta(seconds=5))
    with pytest.raises(ClaimLost, match="not before"):
        ledger.claim(later, me(base_dir), 60)
    time.move(5)
    ledger.claim(later, me(base_dir), 60)
    stopped = ledger.enqueue(key(3))
    ledger.request(stopped, "stop")
    with pytest.raises(ClaimLost, match="stopped"):
        ledger.claim(stopped, me(base_dir), 60)


def _claim_all(name, base_dir, uuids, begin, results):
    ledger = open_ledger(name, base_dir)
    begin.wait()
    won = []
    for uuid in uuids:
        try:
            won.append((uuid, ledger.claim(uuid, row_holder.owner(base_dir), 60).attempt))
        except ClaimLost:
            continue
    ledger.close()
    results.put((os.getpid(), won))


def test_of_eight_processes_each_row_is_claimed_by_exactly_one(name, base_dir):
    ledger = open_ledger(name, base_dir)
    uuids = [ledger.enqueue(key(number)) for number in range(40)]
    ledger.close()
    begin, results = PROCESSES.Barrier(8), PROCESSES.Queue()
    processes = [PROCESSES.Process(target=_claim_all, args=(name, base_dir, uuids, begin, results)) for _ in range(8)]
    for process in processes:
        process.start()
    won = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    claims = [claim for claims in won.values() for claim in claims]
    assert sorted(claims) == sorted((uuid, 1) for uuid in uuids)
    ledger = open_ledger(name, base_dir)
    holders = {uuid: pid for pid, claims in won.items() for uuid, _ in claims}
    assert {row.uuid: row.process_id for row in ledger.list("running")} == holders
    ledger.close()


# --- the holder ------------------------------------------------------------------------------------------------


def test_a_beat_renews_the_lease_and_brings_what_was_asked(ledger, base_dir, time):
    uuid = ledger.enqueue(key())
    claim = ledger.claim(uuid, me(base_dir), 60)
    time.move(30)
    assert ledger.heartbeat(uuid, claim.attempt, 60) is None
    row = ledger.get(uuid)
    assert row.lease_until == clock.stamp(clock.now() + timedelta(seconds=60))
    assert row.heartbeat_at == clock.stamp()
    ledger.request(uuid, "stop")
    assert ledger.heartbeat(uuid, claim.attempt, 60) == "stop"
    assert ledger.requested(uuid) == "stop"
    assert ledger.requested(str(uuid4())) is None


def test_a_released_row_is_queued_again_and_no_death(ledger, base_dir, time):
    uuid = ledger.enqueue(key())
    first = ledger.claim(uuid, me(base_dir), 60)
    started = ledger.get(uuid).started_at
    time.move(5)
    ledger.release(uuid, first.attempt, clock.now() + timedelta(seconds=10))
    row = ledger.get(uuid)
    assert (row.status, row.lease_owner, row.lease_until, row.deaths) == (Status.QUEUED, None, None, 0)
    assert ledger.due(1) == []
    time.move(10)
    second = ledger.claim(uuid, me(base_dir), 60)
    assert second.attempt == first.attempt + 1
    assert ledger.get(uuid).started_at == started


def let_go(ledger, uuid, attempt, how):
    """The holder gives the row back, puts it off, or dies; (what is queued then, what is settled otherwise)."""
    settled = []
    if how == "dies":
        return ledger.requeue_dead(lambda _: False, on_settled=settled.append), settled
    later = clock.now() + timedelta(hours=1) if how == "puts it off" else None
    status = ledger.release(uuid, attempt, later)
    assert ledger.get(uuid).status is status
    return [uuid] if status is Status.QUEUED else [], [] if status is Status.QUEUED else [ledger.get(uuid)]


LETTING_GO = ["gives it back", "puts it off", "dies"]


def set_columns(ledger, uuid, **columns):
    ledger.db.run("task_set", **dict.fromkeys(SETTABLE) | columns, uuid=uuid, attempt=ledger.get(uuid).attempt)


@pytest.mark.parametrize("how", LETTING_GO)
@pytest.mark.parametrize(("word", "status"), [("stop", Status.STOPPED), ("pause", Status.PAUSED)])
def test_what_was_asked_is_done_when_the_holder_lets_go(ledger, base_dir, time, how, word, status):
    """A word that stayed with the row would be obeyed by the next holder, hours later where the task was put off."""
    uuid = ledger.enqueue(key())
    claim = ledger.claim(uuid, me(base_dir), 60)
    set_columns(ledger, uuid, outcome="asked", error_code="forge", error_message="The forge is away.")
    ledger.request(uuid, word)
    queued, settled = let_go(ledger, uuid, claim.attempt, how)
    row = ledger.get(uuid)
    assert (row.status, row.outcome, row.requested, row.lease_owner) == (status, str(status), None, None)
    assert (queued, settled) == ([], [row])
    assert [one.uuid for one in ledger.due_notifications()] == [uuid]
    if word == "stop":
        assert row.completed_at
        assert (row.error_code, row.error_message) == (None, None)
    else:
        assert ledger.request(uuid, "resume") is Status.QUEUED
        assert ledger.claim(uuid, me(base_dir), 60)
        assert ledger.requested(uuid) is None


@pytest.mark.parametrize("how", LETTING_GO)
@pytest.mark.parametrize("word", ["stop", "pause"])
def test_an_end_that_is_decided_is_told_whatever_was_asked_too_late(ledger, base_dir, how, word):
    uuid = ledger.enqueue(key())
    claim = ledger.claim(uuid, me(base_dir), 60)
    set_columns(ledger, uuid, outcome="ending completed finished")
    ledger.request(uuid, word)
    assert let_go(ledger, uuid, claim.attempt, how) == ([uuid], [])
    row = ledger.get(uuid)
    assert (row.status, row.outcome, row.requested) == (Status.QUEUED, "ending completed finished", None)


def test_a_task_that_was_asked_to_stop_is_stopped_at_its_third_death_too(ledger, base_dir):
    uuid = ledger.enqueue(key())
    for _ in range(POISON - 1):
        ledger.claim(uuid, me(base_dir), 60)
        ledger.requeue_dead(lambda _: False)
    ledger.claim(uuid, me(base_dir), 60)

    def dead_at_last(_row):
        ledger.request(uuid, "stop")  # after the row was seen, before it is buried
        return False

    assert ledger.requeue_dead(dead_at_last) == []
    row = ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.STOPPED, None)


def test_a_pause_outlasts_what_the_task_waits_for(ledger, base_dir, time):
    uuid = ledger.enqueue(key())
    claim = ledger.claim(uuid, me(base_dir), 60)
    ledger.db.run("ledger_pause", outcome="asked", uuid=uuid, was="running", attempt=claim.attempt)
    assert ledger.request(uuid, "resume", waiting="disk") is Status.PAUSED
    assert ledger.request(uuid, "pause", comment="7") is Status.PAUSED
    assert ledger.get(uuid).outcome == "paused"
    assert [row.uuid for row in ledger.due_notifications()] == [uuid]
    assert ledger.request(uuid, "resume", waiting="asked") is Status.PAUSED
    assert ledger.request(uuid, "resume", comment="8") is Status.QUEUED
    claim = ledger.claim(uuid, me(base_dir), 60)
    ledger.db.run("ledger_pause", outcome="asked", uuid=uuid, was="running", attempt=claim.attempt)
    assert ledger.request(uuid, "resume", waiting="asked") is Status.QUEUED
    assert ledger.request(uuid, "resume", waiting="asked") is Status.QUEUED  # it waits for nothing any more


@pytest.mark.parametrize("outcome", ["publishing", "ending completed finished"])
def test_a_pause_does_not_forget_that_the_work_lies_on_one_host(ledger, base_dir, time, outcome):
    uuid = ledger.enqueue(key())
    claim = ledger.claim(uuid, me(base_dir), 60)
    set_columns(ledger, uuid, outcome=outcome)
    ledger.release(uuid, claim.attempt, clock.now() + timedelta(hours=1))
    assert ledger.request(uuid, "pause") is Status.PAUSED
    assert ledger.get(uuid).outcome == outcome
    assert ledger.due(9) == []
    assert ledger.request(uuid, "resume") is Status.QUEUED
    assert ledger.due(9) == [uuid]


def test_a_task_that_was_begun_and_put_off_is_due_when_a_person_resumes_it(ledger, base_dir, time):
    held = ledger.enqueue(key(1), not_before=clock.now() + timedelta(seconds=30))
    put_off = ledger.enqueue(key(2))
    claim = ledger.claim(put_off, me(base_dir), 60)
    ledger.release(put_off, claim.attempt, clock.now() + timedelta(hours=1))
    for uuid in (held, put_off):
        assert ledger.request(uuid, "resume", comment="9") is Status.QUEUED
    assert ledger.due(9) == [put_off]  # the other is not offered yet: its label moves first
    assert ledger.withdraw(held)
    assert [row.uuid for row in ledger.publish(9)] == [put_off]


def test_an_old_attempt_is_fenced_from_everything(ledger, base_dir):
    uuid = ledger.enqueue(key())
    old = ledger.claim(uuid, me(base_dir), 60).attempt
    ledger.release(uuid, old)
    for _ in range(2):  # first while it is queued, then while a newer one holds it
        for call in (
            lambda: ledger.heartbeat(uuid, old, 60),
            lambda: ledger.release(uuid, old),
        ):
            before = ledger.get(uuid)
            with pytest.raises(Fenced):
                call()
            assert ledger.get(uuid) == before
        if ledger.get(uuid).status is Status.QUEUED:
            ledger.claim(uuid, me(base_dir), 60)
    with pytest.raises(Fenced):
        ledger.finish(uuid, old, "completed")
    assert ledger.get(uuid).status is Status.RUNNING


def test_a_row_ends_with_its_reasons_once(ledger, base_dir, time):
    uuid = ledger.enqueue(key())
    attempt = ledger.claim(uuid, me(base_dir), 60).attempt
    with pytest.raises(LedgerError, match="ends nothing"):
        ledger.finish(uuid, attempt, "queued")
    ledger.finish(uuid, attempt, Status.FAILED, outcome="failed", error_message="no base", error_code="base_missing")
    row = ledger.get(uuid)
    assert (row.status, row.outcome, row.error_message, row.error_code) == (
        Status.FAILED,
        "failed",
        "no base",
        "base_missing",
    )
    assert (row.completed_at, row.lease_owner, row.lease_until) == (clock.stamp(), None, None)
    with pytest.raises(LedgerError, match="cannot become"):
        ledger.finish(uuid, attempt, "completed")
    with pytest.raises(Fenced):
        ledger.heartbeat(uuid, attempt, 60)


# --- the dead --------------------------------------------------------------------------------------------------


def running(ledger, owner, number=1, seconds=60):
    uuid = ledger.enqueue(key(number))
    return uuid, ledger.claim(uuid, owner, seconds).attempt


def test_rows_of_this_base_dir_are_judged_by_the_lock_however_old_the_lease(ledger, base_dir, time):
    living, _ = running(ledger, me(base_dir), 1)
    dead, _ = running(ledger, row_holder.place(base_dir) + ":4711:5", 2)
    time.move(1000)
    asked = []

    def is_alive(row):
        asked.append(row.uuid)
        return row.uuid == living

    assert ledger.requeue_dead(is_alive) == [dead]
    assert sorted(asked) == sorted([living, dead])
    row = ledger.get(dead)
    assert (row.status, row.lease_owner, row.lease_until, row.deaths) == (Status.QUEUED, None, None, 1)
    assert ledger.get(living).status is Status.RUNNING


def test_rows_of_other_places_are_judged_by_the_lease_alone(ledger, base_dir, time):
    uuid, _ = running(ledger, ELSEWHERE)
    same_path = f"{'0' * 12}:{base_dir.resolve()}:1:1"
    other, _ = running(ledger, same_path, 2, 30)

    def never(row):
        raise AssertionError(row)

    assert ledger.requeue_dead(never) == []
    assert ledger.requeue_dead(never, clock.now() + timedelta(seconds=31)) == [other]
    time.move(61)
    assert ledger.requeue_dead(never) == [uuid]


def test_a_dead_holder_that_beats_after_all_keeps_its_row(ledger, base_dir, time):
    uuid, attempt = running(ledger, row_holder.place(base_dir) + ":4711:5")

    def is_alive(row):
        time.move(1)
        ledger.heartbeat(uuid, attempt, 60)
        return False

    assert ledger.requeue_dead(is_alive) == []
    assert ledger.get(uuid).status is Status.RUNNING


def test_a_task_that_kills_its_process_three_times_without_progress_fails(ledger, base_dir):
    uuid = ledger.enqueue(key())
    settled = []
    for death in range(1, POISON + 1):
        ledger.claim(uuid, me(base_dir), 60)
        requeued = ledger.requeue_dead(lambda _: False, on_settled=settled.append)
        assert requeued == ([uuid] if death < POISON else [])
        assert ledger.get(uuid).deaths == death
    row = ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "poison")
    assert "3 times" in row.error_message
    assert row.completed_at
    assert settled == [row]
    assert ledger.enqueue(key()) is not None


def test_a_death_after_progress_starts_the_count_again(ledger, base_dir):
    uuid = ledger.enqueue(key())
    for _ in range(POISON - 1):
        ledger.claim(uuid, me(base_dir), 60)
        ledger.requeue_dead(lambda _: False)
    attempt = ledger.claim(uuid, me(base_dir), 60).attempt
    ledger.db.run(
        "task_add_statistics", uuid=uuid, attempt=attempt, llm_calls=1, tool_calls=0, tokens=9, compressions=0
    )
    assert ledger.requeue_dead(lambda _: False) == [uuid]
    assert ledger.get(uuid).deaths == 0
    ledger.claim(uuid, me(base_dir), 60)  # the calls of the last holder are no progress of this one
    assert ledger.requeue_dead(lambda _: False) == [uuid]
    assert ledger.get(uuid).deaths == 1


def test_what_a_dead_holder_has_on_disk_is_progress_once_and_only_of_this_place(ledger, base_dir, time):
    here, there = ledger.enqueue(key()), ledger.enqueue(key(2))
    for deaths in (0, 1):
        ledger.claim(here, me(base_dir), 60)
        ledger.claim(there, ELSEWHERE, 60)
        time.move(61)
        requeued = ledger.requeue_dead(lambda _: False, tool_calls=lambda _: 7)
        assert sorted(requeued) == sorted([here, there])
        assert (ledger.get(here).deaths, ledger.get(here).tool_call_count) == (deaths, 7)
    assert (ledger.get(there).deaths, ledger.get(there).tool_call_count) == (2, 0)


def test_a_drain_between_two_deaths_does_not_count(ledger, base_dir):
    uuid = ledger.enqueue(key())
    ledger.claim(uuid, me(base_dir), 60)
    ledger.requeue_dead(lambda _: False)
    ledger.release(uuid, ledger.claim(uuid, me(base_dir), 60).attempt)
    assert ledger.get(uuid).deaths == 1


def test_a_person_who_resumes_a_task_gives_it_its_deaths_back(ledger, base_dir):
    uuid = ledger.enqueue(key())
    ledger.claim(uuid, me(base_dir), 60)
    ledger.requeue_dead(lambda _: False)
    ledger.request(uuid, "pause")
    assert ledger.get(uuid).deaths == 1
    ledger.request(uuid, "resume")
    assert ledger.get(uuid).deaths == 0


def _claim_and_die(name, base_dir, uuid):
    from agent import durable_files

    folder = durable_files.make_dir(base_dir / "running" / uuid)
    durable_files.lock(folder / "lock")
    open_ledger(name, base_dir).claim(uuid, row_holder.owner(base_dir), 3600)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_with_its_lock_is_found_dead_at_once(name, ledger, base_dir):
    uuid = ledger.enqueue(key())
    process = PROCESSES.Process(target=_claim_and_die, args=(name, base_dir, uuid))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert ledger.get(uuid).process_id == process.pid
    assert ledger.is_mine(ledger.get(uuid), me(base_dir))
    assert ledger.requeue_dead(row_holder.alive_by_lock(base_dir)) == [uuid]


def test_a_row_is_mine_by_its_holders_place(ledger, base_dir):
    running(ledger, me(base_dir), 1)
    running(ledger, ELSEWHERE, 2)
    ledger.enqueue(key(3))
    rows = {row.task_id: row for row in ledger.list()}
    assert ledger.is_mine(rows["1"], me(base_dir))
    assert not ledger.is_mine(rows["2"], me(base_dir))
    assert not ledger.is_mine(rows["3"], me(base_dir))


# --- people ----------------------------------------------------------------------------------------------------


def row_in(ledger, base_dir, status, number=1):
    uuid = ledger.enqueue(key(number))
    if status is Status.QUEUED:
        return uuid
    if status is Status.PAUSED:
        ledger.request(uuid, "pause")
        return uuid
    attempt = ledger.claim(uuid, me(base_dir), 60).attempt
    if status is not Status.RUNNING:
        ledger.finish(uuid, attempt, status)
    return uuid


@pytest.mark.parametrize(
    ("status", "words", "then", "requested"),
    [
        ("queued", ["stop"], "stopped", None),
        ("queued", ["pause"], "paused", None),
        ("queued", ["resume"], "queued", None),
        ("paused", ["stop"], "stopped", None),
        ("paused", ["pause"], "paused", None),
        ("paused", ["resume"], "queued", None),
        ("running", ["stop"], "running", "stop"),
        ("running", ["pause"], "running", "pause"),
        ("running", ["resume"], "running", None),
        ("running", ["pause", "resume"], "running", None),
        ("running", ["pause", "stop"], "running", "stop"),
        ("running", ["stop", "pause"], "running", "stop"),
        ("running", ["stop", "resume"], "running", "stop"),
    ],
)
def test_a_word_from_outside(ledger, base_dir, status, words, then, requested):
    uuid = row_in(ledger, base_dir, Status(status))
    for word in words:
        assert ledger.request(uuid, word) == then
    row = ledger.get(uuid)
    assert (row.status, row.requested) == (then, requested)
    assert (row.completed_at is not None) == (then == "stopped")


@pytest.mark.parametrize(("status", "word", "late"), [("running", "stop", "pause"), ("paused", "pause", "pause")])
def test_a_request_that_comes_too_late_does_not_change_who_asked(ledger, base_dir, status, word, late):
    uuid = row_in(ledger, base_dir, Status(status))
    ledger.request(uuid, "resume")
    ledger.request(uuid, word, who="alice")
    for more in ({}, {"who": "bob"}):
        ledger.request(uuid, late, **more)
    ledger.request(uuid, "resume", waiting="asked", who="bob")
    assert ledger.get(uuid).requested_by == "alice"


@pytest.mark.parametrize("status", CLOSED_STATUSES)
@pytest.mark.parametrize("word", ["stop", "pause", "resume"])
def test_a_closed_task_takes_no_word(ledger, base_dir, status, word):
    uuid = row_in(ledger, base_dir, status)
    with pytest.raises(UsageError, match=f"is {status} already"):
        ledger.request(uuid, word)


def test_an_unknown_task_or_word_is_a_usage_error(ledger):
    with pytest.raises(UsageError, match="there is no task"):
        ledger.request(str(uuid4()), "stop")
    with pytest.raises(UsageError, match="allowed are stop, pause, resume"):
        ledger.request(ledger.enqueue(key()), "kill")


def test_today_counts_runs_that_started_and_those_that_wait(ledger, base_dir, time):
    def today():
        return ledger.usage_today(owner="local", repo="default", instance="/t")

    assert today() == (0, 0.0)
    yesterday = row_in(ledger, base_dir, Status.RUNNING, 1)
    ledger.db.run("ledger_pause", uuid=yesterday, was="running", attempt=1, outcome="asked")
    old = row_in(ledger, base_dir, Status.COMPLETED, 2)
    time.move(24 * 3600)
    assert today() == (0, 0.0)
    ledger.request(row_in(ledger, base_dir, Status.QUEUED, 3), "stop")  # never ran
    row_in(ledger, base_dir, Status.QUEUED, 4)
    row_in(ledger, base_dir, Status.FAILED, 5)
    ledger.enqueue(key(6, repo="other"))
    ledger.enqueue(key(7, instance="/other"))
    ledger.enqueue(key(8, owner="other"))
    assert today() == (2, 0.0)
    assert ledger.usage_today(owner="local", repo="default", instance="/t", source="github") == (0, 0.0)
    assert ledger.usage_today(owner="local", repo="default", instance="/t", source="local") == (2, 0.0)
    assert ledger.get(old).status is Status.COMPLETED


def test_today_sums_the_money_of_what_worked_today(ledger, base_dir, time):
    uuid = row_in(ledger, base_dir, Status.RUNNING)
    zero = dict.fromkeys(
        (
            "last_seq",
            "llm_call_count",
            "tool_call_count",
            "compression_count",
            "total_tokens",
            "prompt_tokens",
            "completion_tokens",
            "cached_tokens",
        ),
        0,
    )
    beat = {"uuid": uuid, "attempt": 1, "lease_until": clock.stamp(), "cost": 1.25, **zero}
    ledger.db.run("task_beat", now=clock.stamp(), **beat)
    assert ledger.usage_today(owner="local", repo="default", instance="/t") == (1, 1.25)
    time.move(24 * 3600)
    assert ledger.usage_today(owner="local", repo="default", instance="/t") == (0, 0.0)
    ledger.db.run("task_beat", now=clock.stamp(), **beat | {"cost": 2.5})
    assert ledger.usage_today(owner="local", repo="default", instance="/t") == (0, 2.5)


def test_closed_rows_are_found_by_true_time_and_open_ones_never_removed(ledger, base_dir, time):
    old = row_in(ledger, base_dir, Status.STOPPED, 1)
    open_row = row_in(ledger, base_dir, Status.RUNNING, 2)
    time.move(10)
    row_in(ledger, base_dir, Status.FAILED, 3)
    assert [row["uuid"] for row in ledger.closed_before(clock.now())] == [old]
    assert [row["uuid"] for row in ledger.closed_before(clock.stamp())] == [old]
    assert ledger.delete(old)
    assert not ledger.delete(old)
    assert not ledger.delete(open_row)
    assert ledger.get(open_row) is not None


def test_what_an_open_task_goes_on_from_is_kept_as_long_as_that_is_open(ledger, base_dir, time):
    old = row_in(ledger, base_dir, Status.COMPLETED, 1)
    next_one = ledger.enqueue(key(1), parent_uuid=old)
    time.move(10)
    assert ledger.closed_before(clock.now()) == []
    assert not ledger.delete(old)
    attempt = ledger.claim(next_one, me(base_dir), 60).attempt
    assert not ledger.delete(old)
    ledger.finish(next_one, attempt, "completed")
    assert [row["uuid"] for row in ledger.closed_before(clock.now())] == [old]
    assert ledger.delete(old)


def test_a_host_is_heard_of_by_the_newest_sign_of_what_it_worked_on(ledger, base_dir, time):
    assert ledger.host_last_seen(row_holder.hostname()) is None
    row_in(ledger, base_dir, Status.COMPLETED, 1)
    time.move(60)
    uuid = row_in(ledger, base_dir, Status.RUNNING, 2)
    heard = ledger.get(uuid).heartbeat_at
    assert ledger.host_last_seen(row_holder.hostname()) == heard
    time.move(60)
    ledger.heartbeat(uuid, ledger.get(uuid).attempt, 60)
    assert ledger.host_last_seen(row_holder.hostname()) > heard
    assert ledger.host_last_seen("nobody") is None


def test_rows_are_counted_by_status(ledger):
    assert ledger.counts() == dict.fromkeys(Status, 0)
    first, second, third = (ledger.enqueue(key(number)) for number in (1, 2, 3))
    ledger.claim(first, ELSEWHERE, 60)
    ledger.request(second, "stop")
    assert third
    counts = ledger.counts()
    assert (counts[Status.RUNNING], counts[Status.STOPPED], counts[Status.QUEUED]) == (1, 1, 1)
    assert sum(counts.values()) == 3


# --- comments that start, order, and are remembered --------------------------------------------------------------


def ended(ledger, base_dir, number=1, status="completed", **more):
    uuid = ledger.enqueue(key(number), **more)
    claim = ledger.claim(uuid, me(base_dir), 60)
    ledger.finish(uuid, claim.attempt, status)
    return uuid


def test_a_comment_starts_one_task_whatever_became_of_it(ledger, base_dir, time):
    first = ended(ledger, base_dir, started_by="4711")
    time.move(1)
    assert ledger.get(first).started_by == "4711"
    assert ledger.enqueue(key(1), started_by="4711") is None
    assert ledger.enqueue(key(2), started_by="4711") is not None  # numbers of comments may repeat elsewhere
    assert ledger.enqueue(key(1)) is not None
    assert ledger.enqueue(key(1), started_by="4712") is None  # one is open


def test_a_closed_row_answers_a_comment_that_it_has_obeyed_and_refuses_every_other(ledger, time):
    uuid = ledger.enqueue(key())
    assert ledger.request(uuid, "stop", comment="9") is Status.STOPPED
    assert ledger.request(uuid, "stop", comment="9") is Status.STOPPED
    with pytest.raises(UsageError):
        ledger.request(uuid, "stop", comment="10")


@pytest.mark.parametrize(("word", "other"), [("pause", "resume"), ("resume", "pause")])
def test_a_comment_is_obeyed_once(ledger, time, word, other):
    uuid = ledger.enqueue(key())
    if word == "resume":
        ledger.request(uuid, "pause")
    after = ledger.request(uuid, word, comment="9")
    back = ledger.request(uuid, other, comment="10")
    assert ledger.request(uuid, word, comment="9") is back
    assert ledger.get(uuid).status is back
    assert ledger.request(uuid, word, comment="11") is after
    assert ledger.get(uuid).obeyed == "9 10 11"


def test_a_word_that_is_refused_is_not_remembered(ledger, base_dir, time):
    uuid = ended(ledger, base_dir)
    with pytest.raises(UsageError):
        ledger.request(uuid, "pause", comment="9")
    assert ledger.get(uuid).obeyed is None


def test_watched_is_the_newest_row_of_each_key_that_nobody_works_on(ledger, base_dir, time):
    old = ended(ledger, base_dir, 1)
    time.move(100)
    since = clock.now()
    time.move(1)
    done, paused, running = ended(ledger, base_dir, 2), ledger.enqueue(key(3)), ledger.enqueue(key(4))
    ended(ledger, base_dir, 5)
    time.move(1)
    queued = ledger.enqueue(key(5))
    ledger.request(paused, "pause")
    ledger.claim(running, me(base_dir), 60)
    ended(ledger, base_dir, 6)
    time.move(1)
    ledger.claim(ledger.enqueue(key(6)), me(base_dir), 60)
    found = [row.uuid for row in ledger.rows_to_watch("local", "/t", since)]
    assert set(found) == {done, paused, queued}
    assert found[0] == queued
    assert old not in found
    assert ledger.rows_to_watch("local", "/elsewhere", since) == []


def test_an_end_that_nobody_told_is_told_by_one(ledger, base_dir, time):
    uuid = ended(ledger, base_dir, status="failed")
    assert [row.uuid for row in ledger.due_notifications()] == [uuid]
    assert ledger.begin_notification(uuid, clock.now() + timedelta(seconds=60)) is True
    assert ledger.begin_notification(uuid, clock.now() + timedelta(seconds=60)) is False
    assert ledger.due_notifications() == []
    time.move(61)  # the teller died, or the forge was away
    assert [row.uuid for row in ledger.due_notifications()] == [uuid]
    until = clock.now() + timedelta(seconds=60)
    assert ledger.begin_notification(uuid, until) is True
    assert ledger.mark_notified(uuid, until) is True
    time.move(1000)
    assert ledger.due_notifications() == []
    assert ledger.begin_notification(uuid, clock.now()) is False


def test_what_becomes_of_a_task_while_it_is_told_is_told_next(ledger, base_dir, time):
    uuid = ledger.enqueue(key())
    until = clock.now() + timedelta(seconds=60)
    ledger.request(uuid, "pause")
    assert ledger.begin_notification(uuid, until)
    ledger.request(uuid, "resume")
    assert ledger.mark_notified(uuid, until) is False
    assert [row.uuid for row in ledger.due_notifications()] == [uuid]
    ledger.claim(uuid, me(base_dir), 60)  # who works on it tells it
    assert ledger.due_notifications() == []


def test_a_comment_that_was_answered_is_remembered_whatever_the_row_is(ledger, base_dir):
    uuid = ended(ledger, base_dir)
    for _ in range(2):
        ledger.mark_answered(uuid, "9")
    assert ledger.get(uuid).obeyed == "9"


def test_a_paused_task_that_is_stopped_ends_stopped_and_not_paused(ledger):
    uuid = row_in(ledger, None, Status.PAUSED)
    ledger.request(uuid, "stop")
    row = ledger.get(uuid)
    assert (row.status, row.outcome) == (Status.STOPPED, "stopped")


def test_why_a_task_once_waited_is_not_the_outcome_of_its_failure(ledger):
    uuid = row_in(ledger, None, Status.PAUSED)
    ledger.request(uuid, "resume")
    ledger.finish(uuid, ledger.get(uuid).attempt, Status.FAILED, error_message="broken", error_code="bug")
    row = ledger.get(uuid)
    assert (row.status, row.outcome, row.error_code) == (Status.FAILED, None, "bug")


def test_a_task_that_is_stopped_while_it_waits_is_untold_too(ledger, time):
    uuid = ledger.enqueue(key())
    ledger.request(uuid, "stop")
    assert [row.uuid for row in ledger.due_notifications()] == [uuid]


# --- long-term memory ------------------------------------------------------------------------------------------


def due(ledger):
    return [row.uuid for row in ledger.due_extractions()]


def later(seconds):
    return clock.now() + timedelta(seconds=seconds)


def remembering(name, base_dir):
    again = open_ledger(name, base_dir)
    again.remember_ends()
    return closing(again)


def test_an_end_is_due_for_memory_only_where_that_is_wanted(ledger, name, base_dir, time):
    ended(ledger, base_dir, 1, status="failed")
    assert due(ledger) == []
    with remembering(name, base_dir) as again:
        one = ended(again, base_dir, 2, status="failed")
        time.move(1)
        two = ended(again, base_dir, 3, status="failed")
        never_begun = again.enqueue(key(4))
        again.request(never_begun, "stop")
    assert due(ledger) == [one, two], "and nothing of a task that no worker had"


def test_the_own_end_of_a_task_is_due_for_memory_when_it_says_so(ledger, base_dir, time):
    settings = settings_of({"context_storage": {"base_dir": str(base_dir)}})
    uuids = [ledger.enqueue(key(number)) for number in (1, 2, 3, 4)]
    attempts = [ledger.claim(uuid, me(base_dir), 60).attempt for uuid in uuids]
    rows = [TaskRow(ledger.db, uuid) for uuid in uuids]
    for row, attempt in zip(rows, attempts, strict=True):
        row.attempt = attempt
    with closing(TaskContextManager(key(9), str(uuid4()), settings, database=ledger.db)) as context:
        counters = context.counters()
    rows[0].close(Status.COMPLETED, counters, unremembered=True)
    rows[1].close(Status.COMPLETED, counters)
    rows[2].pause("asked", counters, unremembered=True)
    ledger.request(uuids[3], "stop")
    assert rows[3].pause("asked", counters, unremembered=True) is Status.STOPPED
    assert sorted(due(ledger)) == sorted([uuids[0], uuids[3]])


def test_one_process_extracts_and_a_dead_one_leaves_it_due(ledger, base_dir, time):
    uuid = ended(ledger, base_dir)
    assert ledger.begin_extraction(uuid, later(60)) is False
    assert ledger.extract_again(uuid) is True
    until = later(60)
    assert ledger.begin_extraction(uuid, until) is True
    assert ledger.begin_extraction(uuid, later(60)) is False
    assert due(ledger) == []
    time.move(59)
    assert ledger.delay_extraction(uuid, until, later(60)) is True
    until = later(60)
    time.move(59)
    assert due(ledger) == [], "it was kept"
    time.move(2)
    assert due(ledger) == [uuid], "and it died"
    assert ledger.begin_extraction(uuid, later(60)) is True
    assert ledger.delay_extraction(uuid, until, later(99)) is False, "of the one that died"
    assert ledger.mark_extracted(uuid, until) is False
    assert ledger.mark_extracted(uuid, later(60)) is True
    time.move(1000)
    assert due(ledger) == []
    assert ledger.get(uuid).remember_at is None


def test_what_became_of_a_pull_request_is_due_once_for_each_state(ledger, base_dir, time):
    uuid = ended(ledger, base_dir)
    assert ledger.note_pull(uuid, "closed") is True
    assert ledger.note_pull(uuid, "closed") is False
    assert ledger.begin_extraction(uuid, until := later(60))
    assert ledger.note_pull(uuid, "merged") is True, "reopened and merged while the first is taken in"
    assert ledger.mark_extracted(uuid, until) is False
    assert (due(ledger), ledger.get(uuid).pull_state) == ([uuid], "merged")


def test_nothing_is_extracted_of_a_task_that_is_open(ledger, base_dir):
    uuid = ledger.enqueue(key())
    ledger.claim(uuid, me(base_dir), 60)
    assert ledger.extract_again(uuid) is False
    assert ledger.note_pull(uuid, "merged") is False
    assert due(ledger) == []


def test_a_host_extracts_only_what_lies_on_its_disk(ledger, base_dir, time, monkeypatch):
    mine = ended(ledger, base_dir, 1)
    with monkeypatch.context() as there:
        there.setattr(row_holder, "hostname", lambda: "another-host")
        other = ended(ledger, base_dir, 2)
    for uuid in (mine, other):
        assert ledger.extract_again(uuid)
        time.move(1)
    assert due(ledger) == [mine, other]
    assert [row.uuid for row in ledger.due_extractions(host="another-host")] == [other]
    assert [row.uuid for row in ledger.due_extractions(1)] == [mine]


def test_an_extraction_that_a_wrong_clock_put_off_is_due_again(ledger, base_dir, time):
    time.jump(400 * 86400)
    uuid = ended(ledger, base_dir)
    ledger.extract_again(uuid)
    time.jump(-400 * 86400)
    assert due(ledger) == []
    assert ledger.repair_future_times() == [uuid]
    assert due(ledger) == [uuid]


# --- what it says before it is opened --------------------------------------------------------------------------


EVERY = pytest.mark.parametrize("name", [*LEDGERS.names(), *PLUG_INS], indirect=True)
"""The ordinary run has one of the two plug-ins elsewhere, since both hand every call on to the same ledger."""


@pytest.fixture
def kind(name, base_dir):
    address = address_of(name, base_dir)
    return LedgerKind(base_dir, address, entry_of(address, guard_for(name, base_dir)))


@EVERY
def test_before_it_is_opened_it_says_what_it_is_and_makes_nothing(kind, name, base_dir):
    assert kind.is_local == (name in ("sqlite", "ledger_plugins:AtAddress"))
    assert kind.where
    assert kind.title
    for module in kind.preload:
        assert import_module(module)
    before = kind.exists()
    fit, found, advice = kind.check()
    assert (fit and found) or advice
    assert kind.exists() == before
    if before is False:
        assert not base_dir.exists(), "nothing was made"


@EVERY
def test_what_was_put_is_there_when_it_is_looked_at_checked_and_copied(kind, name, tmp_path):
    with closing(kind.open()) as ledger:
        uuids = {ledger.enqueue(key(number), title=f"Issue {number}") for number in (1, 2, 3)}
        open_rows = ledger.open_instances()
    assert kind.exists()
    fit, found, advice = kind.check()
    assert (fit, advice) == (True, "")
    assert "3" in found
    with closing(kind.open_for_reading()) as database:
        rows = database.run("ledger_open_instances")
        assert (
            {(row["task_source"], row["instance"]): row["count"] for row in rows} == open_rows == {("local", "/t"): 3}
        )
    target = tmp_path / "copy"
    target.mkdir()
    file, said = kind.backup(target)
    assert [path.name for path in target.iterdir()] == [file]
    if file.endswith(".jsonl"):
        assert {orjson.loads(line)["uuid"] for line in (target / file).read_bytes().splitlines()} == uuids
        assert said
    else:
        with closing(db.ReadOnly(target / file)) as copied:
            assert {row["uuid"] for row in copied.run("task_list", status=None, limit=9)} == uuids
    assert (target / file).stat().st_mode & 0o077 == 0


@EVERY
def test_a_task_keeps_its_row_in_it_without_being_given_a_connection(name, base_dir):
    """`TaskContextManager(task_key, uuid, config)`, as docs/design/context.md, 4.1 asks."""
    settings = settings_of(
        {"context_storage": {"base_dir": str(base_dir)}, "taskqueue": {"ledger": address_of(name, base_dir)}},
        root=base_dir.parent,
    )
    guard_for(name, base_dir)
    uuid = str(uuid4())
    with TaskContextManager(key(1), uuid, settings) as context:
        assert context.row["status"] == "running"
    with closing(LedgerKind.from_settings(settings).open()) as ledger:
        assert ledger.get(uuid).key == key(1)
