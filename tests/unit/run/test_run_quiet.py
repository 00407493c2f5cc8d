"""How often a daemon with nothing to do wakes up and asks the ledger, by switched time."""

import os
import threading
from contextlib import closing

import psycopg
import pytest
import services

from agent import clock, disk
from agent.errors import LedgerError
from agent.run import courier as courier_of
from agent.run.courier import Courier
from agent.run.daemon import TOLD_SECONDS, Daemon
from agent.run.supervisor import IDLE_SWEEP_SECONDS, QUEUE_SECONDS, Supervisor
from agent.run.waker import Waker
from agent.store.queries import queries

LONG = 300.0
PATIENCE = 60.0


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as fake:
        yield fake


def asked(database, monkeypatch):
    """The statements that are executed from now on."""
    names, execute = [], database.execute

    def counted(statement, /, **params):
        names.append(statement)
        return execute(statement, **params)

    monkeypatch.setattr(database, "execute", counted)
    return names


@pytest.mark.parametrize(("tells", "steps"), [(True, LONG / IDLE_SWEEP_SECONDS), (False, LONG / QUEUE_SECONDS)])
def test_an_idle_supervisor_wakes_rarely_and_hardly_asks(place, time, monkeypatch, tells, steps):
    here = place()
    supervisor = Supervisor(here.wiring)
    supervisor.tells = tells
    supervisor.step()
    names, begun, count = asked(here.wiring.db, monkeypatch), clock.monotonic(), 0
    while clock.monotonic() - begun < LONG:
        time.move(supervisor.seconds())
        supervisor.step(woken=False)
        count += 1
    assert count <= steps + 1
    told = LONG / TOLD_SECONDS[tells]  # the poller's share: whether anybody is to be told something
    if tells:
        # A connection that was idle is tried first (`store.postgres`), and the courier asks what to publish.
        assert len(names) + 2 * told + 2 * count <= LONG, "at most one a second"
    assert count + told <= 2 * LONG, "at most two wake-ups a second"


def test_a_notice_is_heard_at_once_and_a_daemon_that_hears_none_asks_more_often(place, time):
    here = place()
    supervisor = Supervisor(here.wiring)
    supervisor.tells = True
    supervisor.step()
    assert supervisor.seconds() > QUEUE_SECONDS
    uuid = here.row(1)
    started = []
    supervisor.start = started.append
    supervisor.step(woken=False)
    assert started == [], "nobody has told it"
    supervisor.step(woken=True)
    assert started == [uuid]
    supervisor.tells = False
    here.row(2)
    time.move(QUEUE_SECONDS)
    supervisor.step(woken=False)
    assert len(started) == 2


def test_the_next_look_is_put_off_no_more_when_a_worker_has_ended(place, time):
    here = place("scheduling: {max_workers: 1}\n")
    supervisor = Supervisor(here.wiring)
    supervisor.step()
    supervisor.tells = supervisor.ended = True
    uuid = here.row(1)
    started = []
    supervisor.start = started.append
    supervisor.step(woken=False)
    assert started == [uuid]


def test_a_wake_ends_the_wait_and_a_descriptor_too():
    with closing(Waker()) as waker:
        assert not waker.wait(0)
        threading.Timer(0.01, waker.wake).start()
        assert waker.wait(PATIENCE)
        assert not waker.wait(0), "it was one wake"
        reading, writing = os.pipe()
        assert not waker.wait(0, [reading])
        os.close(writing)
        assert waker.wait(PATIENCE, [reading]), "hung up"
        os.close(reading)


def test_a_quiet_broker_is_asked_rarely_where_the_ledger_tells_of_changes(place, time):
    here = place("taskqueue: {broker: 'redis://127.0.0.1:1'}\n")
    courier = Courier(here.settings, here.events)
    assert courier._tick() == courier_of.IDLE_TICK
    courier.tells = True
    assert courier._tick() == courier_of.QUIET_TICK
    courier.stir()
    assert courier._tick() == courier_of.TICK
    time.move(courier_of.ACTIVE_SECONDS)
    assert courier._tick() == courier_of.QUIET_TICK


class Cut:
    """Notices of a connection that is cut; the descriptor is a pipe that is hung up."""

    def __init__(self):
        self.descriptor, writing = os.pipe()
        os.close(writing)
        self.closed = False

    def fileno(self):
        return self.descriptor

    def take(self):
        raise LedgerError("the connection was cut")

    def close(self):
        if not self.closed:
            os.close(self.descriptor)
        self.closed = True


def test_notices_that_are_lost_are_said_and_asked_for_again_later(place, time):
    here = place()
    daemon = Daemon(here.settings, here.events)
    supervisor = Supervisor(here.wiring)
    cut = daemon.notices = Cut()
    assert daemon._wait(supervisor, once=False)
    assert cut.closed
    assert daemon.notices is None
    assert here.named("notices_lost") == [{"error": "the connection was cut"}]


def test_a_drain_needs_no_notices_and_leaves_them_to_be_closed_at_the_end(place, time):
    here = place()
    daemon = Daemon(here.settings, here.events)
    supervisor = Supervisor(here.wiring)
    cut = daemon.notices = Cut()
    daemon.waker.wake()
    daemon._wait(supervisor, once=True)
    assert not supervisor.tells
    assert daemon.notices is cut, "`run` closes what stands there"
    cut.close()


def test_what_one_host_queues_is_told_to_the_others(tmp_path):
    """LISTEN and NOTIFY, as two daemons use them."""
    from agent.taskqueue.ledger import open_postgresql
    from agent.values import TaskKey

    key = TaskKey("local", "o", "r", "issue", "1", "/t")
    with services.schema(tmp_path) as address, services.schema(tmp_path / "other") as elsewhere:
        one, two, stranger = (open_postgresql(tmp_path, where) for where in (address, address, elsewhere))
        notices, waker = two.notices(), Waker()
        assert two.has_notices
        stranger.put(key)
        assert not notices.take(), "another schema of the same database is another fleet"
        uuid = one.put(key, not_before=one.now())
        assert waker.wait(PATIENCE, [notices.fileno()])
        assert notices.take()
        assert not notices.take()
        one.beat(uuid, one.claim(uuid, "m:/b:1:1", 60).attempt, 60)
        one.get(uuid)
        assert not notices.take(), "a claim and a beat give nobody anything to do"
        one.release(uuid, 1)
        assert waker.wait(PATIENCE, [notices.fileno()])
        assert notices.take()
        services_cut(notices)
        with pytest.raises(psycopg.OperationalError):
            take_until_cut(notices, waker)
        notices.close()
        notices.close()
        waker.close()
        for ledger in (one, two, stranger):
            ledger.close()


def take_until_cut(notices, waker):
    """The server's last words are read first, then its end."""
    for _ in range(3):
        assert waker.wait(PATIENCE, [notices.fileno()])
        notices.take()


def services_cut(notices):
    with psycopg.connect(services.POSTGRES, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (notices._connection.info.backend_pid,))


def test_the_programs_files_are_looked_at_only_before_something_is_started(place, time, monkeypatch):
    """435 of them, once a second, were 3 % of a core."""
    here = place()
    supervisor = Supervisor(here.wiring)
    looked = []
    monkeypatch.setattr(supervisor.installed, "look", lambda: looked.append(1) or "the code was replaced")
    supervisor.step()
    assert looked == []
    uuid = here.row(1)
    supervisor.step()
    assert looked
    assert not supervisor.children
    assert here.ledger.due(9) == [uuid], "others may take it"


def test_a_sweep_asks_no_more_for_hundreds_of_tasks_that_run_here_or_elsewhere(place, time, monkeypatch):
    here = place()
    supervisor = Supervisor(here.wiring)
    shared = here.settings.taskqueue.model_copy(update={"ledger": "postgresql://of.many.hosts/"})
    supervisor.settings = here.settings.model_copy(update={"taskqueue": shared})  # others are judged by their leases
    supervisor.tells = True
    supervisor.step()
    names = asked(here.wiring.db, monkeypatch)

    def sweep():
        del names[:]
        time.move(IDLE_SWEEP_SECONDS)
        supervisor.step(woken=False)
        return len(names)

    def run(number, owner, hostname):
        uuid = here.ledger.put(here.key(number))
        here.ledger.claim(uuid, owner, 10_000)
        here.wiring.db.execute("UPDATE tasks SET hostname = :hostname WHERE uuid = :uuid", uuid=uuid, hostname=hostname)
        return uuid

    locks = []
    for number in range(1, 10):
        uuid = run(number, here.wiring.owner, os.uname().nodename)
        locks.append(disk.lock(disk.make_dir(here.settings.base_dir / "running" / uuid, 0o711) / "lock"))
    few = sweep()
    for number in range(10, 40):
        run(number, f"0123456789ab:/contexts{number}:7:99", f"builder{number}")
    assert sweep() == few
    for number in range(40, 60):
        uuid = run(number, here.wiring.owner, os.uname().nodename)
        locks.append(disk.lock(disk.make_dir(here.settings.base_dir / "running" / uuid, 0o711) / "lock"))
    assert sweep() == few
    for lock in locks:
        disk.unlock(lock)


def test_what_runs_here_is_found_by_index(place):
    found = place().wiring.db.execute(f"EXPLAIN QUERY PLAN {queries()['ledger_running_here']}", hostname="h")
    assert "idx_tasks_running_host" in " ".join(row["detail"] for row in found)
