"""How often a daemon with nothing to do wakes up and asks the ledger, by switched time."""

import os
import threading
from contextlib import closing

import psycopg
import pytest
import services

from agent import clock, durable_files
from agent.daemon import broker_client as courier_of
from agent.daemon.broker_client import BrokerClient
from agent.daemon.daemon import NOTICE_SECONDS, Daemon
from agent.daemon.pollers import TOLD_SECONDS
from agent.daemon.supervisor import IDLE_SWEEP_SECONDS, QUEUE_SECONDS, Supervisor
from agent.daemon.waker import Waker
from agent.errors import LedgerError
from agent.store.queries import LEDGER, queries

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
        time.move(supervisor.seconds_to_next_step())
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
    assert supervisor.seconds_to_next_step() > QUEUE_SECONDS
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
    courier = BrokerClient(here.settings, here.events)
    assert courier._tick() == courier_of.IDLE_TICK
    courier.tells = True
    assert courier._tick() == courier_of.QUIET_TICK
    courier.wake()
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

    def poll(self):
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


class Storm:
    """Notices that never end."""

    def __init__(self):
        self.descriptor = os.eventfd(1)

    def fileno(self):
        return self.descriptor

    def poll(self):
        return True


class Moving(Waker):
    """Waits by switched time."""

    def __init__(self, time):
        super().__init__()
        self.time = time

    def wait(self, seconds, descriptors=()):
        happened = super().wait(0, descriptors)
        if not happened:
            self.time.move(seconds)
        return happened


def test_where_something_changes_all_the_time_a_daemon_looks_once_a_second(place, time, monkeypatch):
    """100 daemons that look at each of 40 changes a second asked 8,000 questions a second."""
    here = place()
    daemon, supervisor = Daemon(here.settings, here.events), Supervisor(here.wiring)
    daemon.waker, daemon.notices = Moving(time), Storm()
    supervisor.tells = True
    supervisor.step()
    names, begun, wakes, looks = asked(here.wiring.db, monkeypatch), clock.monotonic(), 0, []
    while clock.monotonic() - begun < LONG and wakes < 9 * LONG:
        wakes += 1
        if woken := daemon._wait(supervisor, once=False):
            looks.append(clock.monotonic() - begun)
        supervisor.step(woken=woken)
    assert looks[0] == 0, "the first is heard at once"
    assert LONG / NOTICE_SECONDS - 1 <= len(looks) <= LONG / NOTICE_SECONDS + 1
    assert wakes <= 2 * LONG + LONG / IDLE_SWEEP_SECONDS
    assert len(names) <= 3.5 * LONG, "two a look, the watchdog's, the sweep's"
    os.close(daemon.notices.fileno())


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
    from agent.taskqueue.postgresql import PostgresLedger
    from agent.values import TaskKey

    key = TaskKey("local", "o", "r", "issue", "1", "/t")
    with services.schema(tmp_path) as address, services.schema(tmp_path / "other") as elsewhere:
        one, two, stranger = (PostgresLedger(tmp_path, where) for where in (address, address, elsewhere))
        notices, waker = two.notices(), Waker()
        assert two.has_notices
        stranger.enqueue(key)
        assert not notices.poll(), "another schema of the same database is another fleet"
        uuid = one.enqueue(key, not_before=one.now())
        assert waker.wait(PATIENCE, [notices.fileno()])
        assert notices.poll()
        assert not notices.poll()
        one.heartbeat(uuid, one.claim(uuid, "m:/b:1:1", 60).attempt, 60)
        one.get(uuid)
        assert not notices.poll(), "a claim and a beat give nobody anything to do"
        one.release(uuid, 1)
        assert waker.wait(PATIENCE, [notices.fileno()])
        assert notices.poll()
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
        notices.poll()


def services_cut(notices):
    with psycopg.connect(services.POSTGRES, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (notices._connection.info.backend_pid,))


def test_the_programs_files_are_looked_at_only_before_something_is_started(place, time, monkeypatch):
    """435 of them, once a second, were 3 % of a core."""
    here = place()
    supervisor = Supervisor(here.wiring)
    looked = []
    monkeypatch.setattr(supervisor.installed, "describe_change", lambda: looked.append(1) or "the code was replaced")
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
    supervisor.dead_rows.settings = here.settings.model_copy(
        update={"taskqueue": shared}
    )  # others are judged by their leases
    supervisor.tells = True
    supervisor.step()
    names = asked(here.wiring.db, monkeypatch)

    def sweep():
        del names[:]
        time.move(IDLE_SWEEP_SECONDS)
        supervisor.step(woken=False)
        return len([one for one in names if "remember_at" not in one])  # that is asked once a minute

    def run(number, owner, hostname):
        uuid = here.ledger.enqueue(here.key(number))
        here.ledger.claim(uuid, owner, 10_000)
        here.wiring.db.execute("UPDATE tasks SET hostname = :hostname WHERE uuid = :uuid", uuid=uuid, hostname=hostname)
        return uuid

    locks = []
    for number in range(1, 10):
        uuid = run(number, here.wiring.owner, os.uname().nodename)
        locks.append(
            durable_files.lock(durable_files.make_dir(here.settings.base_dir / "running" / uuid, 0o711) / "lock")
        )
    few = sweep()
    for number in range(10, 40):
        run(number, f"0123456789ab:/contexts{number}:7:99", f"builder{number}")
    assert sweep() <= few + 1, "one question more, where none of the newest rows is known from before"
    assert sweep() == few
    for number in range(40, 60):
        uuid = run(number, here.wiring.owner, os.uname().nodename)
        locks.append(
            durable_files.lock(durable_files.make_dir(here.settings.base_dir / "running" / uuid, 0o711) / "lock")
        )
    assert sweep() == few
    for lock in locks:
        durable_files.unlock(lock)


def test_a_sweep_asks_once_what_runs_here(place, time, monkeypatch):
    """The parts of a sweep asked for the same rows one after another, five of the fourteen queries of an idle one."""
    here = place()
    supervisor = Supervisor(here.wiring)
    supervisor.tells, calls, read = True, [], here.ledger.running_here
    monkeypatch.setattr(here.ledger, "running_here", lambda: calls.append(1) or read())
    for _ in range(3):
        del calls[:]
        supervisor.step(woken=False)
        assert len(calls) == 1
        time.move(IDLE_SWEEP_SECONDS)
    supervisor.running()
    supervisor.running()
    assert len(calls) == 3, "between two steps others may have changed rows"


def test_a_sweep_that_requeues_a_dead_worker_starts_its_task_at_once(place, time, monkeypatch):
    """The rows of the sweep's beginning would show the only place as taken."""
    here = place("scheduling: {max_workers: 1}\n")
    supervisor = Supervisor(here.wiring)
    uuid = here.row(1)
    here.ledger.claim(uuid, here.wiring.owner, 60)
    started = []
    monkeypatch.setattr(supervisor, "start", started.append)
    supervisor.step(woken=False)
    assert here.ledger.get(uuid).status == "queued"
    assert started == [uuid]


def test_what_runs_here_is_found_by_index(place):
    found = place().wiring.db.execute(f"EXPLAIN QUERY PLAN {queries(LEDGER)['ledger_running_here']}", hostname="h")
    assert "idx_tasks_running_host" in " ".join(row["detail"] for row in found)


@pytest.mark.parametrize(("name", "index"), [("_status", "idx_tasks_status"), ("", "idx_tasks_created_at")])
def test_a_list_of_rows_is_found_by_index(place, name, index):
    explained = f"EXPLAIN QUERY PLAN {queries(LEDGER)[f'ledger_list{name}']}"
    (found, *_) = place().wiring.db.execute(explained, limit=9, **({"status": "running"} if name else {}))
    assert index in found["detail"]


def test_rows_that_may_be_dead_are_found_by_two_indexes_on_a_ledger_of_many_hosts(tmp_path):
    from agent.taskqueue.postgresql import PostgresLedger

    with services.schema(tmp_path) as address, closing(PostgresLedger(tmp_path, address)) as ledger:
        ledger.db.execute(
            "INSERT INTO tasks (uuid, task_source, owner, repo, task_type, task_id, status, created_at, hostname, "
            "lease_until) SELECT n::text, 'local', 'o', 'r', 'issue', n::text, 'running', '2026-02-01', 'h' || n, "
            "'2026-02-01' FROM generate_series(1, 2000) n"
        )
        ledger.db.execute("ANALYZE tasks")  # the planner reads a small table as a whole
        explained = f"EXPLAIN {queries(LEDGER)['ledger_perhaps_dead']}"
        plan = " ".join(row["QUERY PLAN"] for row in ledger.db.execute(explained, hostname="h7", now="2026-01-01"))
    assert "BitmapOr" in plan
    assert "idx_tasks_running_host" in plan
    assert "idx_tasks_running_lease" in plan


def test_limits_are_counted_once_and_not_for_each_row_that_waits(place):
    """Of 10,000 rows that ran each was looked at twice for each of 1,000 that waited: 12 s for one start."""
    names = ("owner", "now", "until", "server", "without", "outcome", "limited", "of_repository", "of_person")
    params = dict.fromkeys((*names, "of_server", "limit", "depth"), 1)
    found = place().wiring.db.execute(f"EXPLAIN QUERY PLAN {queries(LEDGER)['ledger_take']}", **params)
    details = [row["detail"] for row in found]
    assert len([one for one in details if "CORRELATED" in one]) == 1, "when a pair was served last"
    assert "idx_tasks_served" in " ".join(details)
