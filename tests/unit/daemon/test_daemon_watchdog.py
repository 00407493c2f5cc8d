"""A worker that hangs is traced and ended, one that waits is not, and one that is too large fails with that word."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from agent import clock, durable_files, process_tree
from agent.daemon import watchdog
from agent.daemon.finalize import send_pending_notifications
from agent.daemon.supervisor import Supervisor
from agent.values import Status
from agent.wiring.folders import make_folder

WORKER = """
import fcntl, os, pathlib, signal, sys
from agent import durable_files, proc
from agent.worker.hang_trace import trace_on_signal
folder = pathlib.Path(sys.argv[1])
lock = durable_files.lock(folder / "lock")
proc.title(f"makimono: {folder.name}")
def a_step_that_hangs():
    ballast = bytearray(b"1" * int(sys.argv[2]))
    print("up", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    while True:
        os.read(reader, 1)
reader, writer = os.pipe()
with trace_on_signal(folder / "worker.log"):
    a_step_that_hangs()
"""


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as now:
        yield now


@pytest.fixture
def hanging(place):
    """A place with one task whose worker, a real process, hangs; `more` is its ballast in bytes."""
    made = []

    def make(extra="", more=0):
        here = place(extra)
        here.issue(1, label="coding agent processing")
        claim = here.claim(1)
        folder = make_folder(here.settings, claim.uuid)
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(more)], stdout=subprocess.PIPE, start_new_session=True
        )
        made.append(process)
        assert process.stdout.readline() == b"up\n"
        with open(f"/proc/{process.pid}/stat") as stat:
            ticks = stat.read().rpartition(")")[2].split()[19]
        owner = f"{here.wiring.owner.rsplit(':', 2)[0]}:{process.pid}:{ticks}"
        here.wiring.db.execute("UPDATE tasks SET lease_owner = :owner, process_id = :pid", owner=owner, pid=process.pid)
        return here, claim, process

    yield make
    for process in made:
        process.kill()
        process.wait()
        process.stdout.close()


def over(here, seconds=1.0):
    """The lease ended so long ago."""
    until = clock.stamp(clock.now() - timedelta(seconds=seconds))
    here.wiring.db.execute("UPDATE tasks SET lease_until = :until", until=until)


def look(supervisor, time, seconds):
    """What the supervisor does while `seconds` pass."""
    for _ in range(int(seconds // watchdog.SECONDS) + 1):
        time.move(watchdog.SECONDS)
        supervisor.step()


def test_a_worker_that_hangs_is_traced_and_ended_and_its_row_goes_back_as_a_death(hanging, time):
    here, claim, process = hanging("scheduling: {max_workers: 1}\n")
    supervisor = Supervisor(here.wiring, starts=False)
    over(here)
    while not here.named("worker_hung"):  # one step at a time: the next may end it before it has written
        time.move(watchdog.SECONDS)
        supervisor.step()
    assert here.named("worker_hung")[0]["pid"] == process.pid
    log = here.settings.base_dir / "running" / claim.uuid / "worker.log"
    while "a_step_that_hangs" not in log.read_text():  # it writes by its own clock
        assert process.poll() is None
    look(supervisor, time, watchdog.SECONDS + watchdog.TRACE_SECONDS)
    assert process.wait(30) == -signal.SIGKILL
    row = here.ledger.get(claim.uuid)
    assert (row.status, row.deaths) == (Status.QUEUED, 1)


def test_a_lease_that_was_over_only_for_a_while_is_no_hang(hanging, time):
    """A laptop that slept, a database that was busy."""
    here, claim, process = hanging()
    supervisor = Supervisor(here.wiring, starts=False)
    for _ in range(5):
        over(here)
        look(supervisor, time, watchdog.HUNG_SECONDS - 10)
        over(here, -3600)
        look(supervisor, time, watchdog.SECONDS)
    assert process.poll() is None
    assert here.ledger.get(claim.uuid).status is Status.RUNNING
    assert here.named("worker_hung") == []


def test_a_worker_that_somebody_stopped_waits_and_does_not_hang(hanging, time):
    here, _, process = hanging()
    supervisor = Supervisor(here.wiring, starts=False)
    over(here)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    look(supervisor, time, 3 * watchdog.HUNG_SECONDS)
    assert process.poll() is None
    assert here.named("worker_hung") == []


def test_a_task_over_its_memory_fails_with_that_word_and_the_person_is_told(hanging, time):
    here, claim, process = hanging("limits: {memory: 100M}\n", more=120 << 20)
    supervisor = Supervisor(here.wiring, starts=False)
    look(supervisor, time, 2 * watchdog.SECONDS)
    assert process.wait(30) == -signal.SIGKILL
    row = here.ledger.get(claim.uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "memory")
    assert "`limits.memory` is 100M" in row.error_message
    assert send_pending_notifications(here.wiring) == [claim.uuid]
    comments = (here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text()
    assert comments.count("`limits.memory` is 100M") == 1
    assert "coding agent failed" in (here.folder / "tracker" / "issues" / "1.md").read_text()
    assert (here.settings.base_dir / "completed" / claim.uuid).is_dir()


def test_hundreds_of_workers_cost_one_look_at_the_processes_of_the_machine(hanging, time, monkeypatch):
    """200 looks every two seconds were all that a daemon with 200 workers did."""
    here, *_ = hanging("limits: {memory: 1T}\n")
    (owner,) = {row.lease_owner for row in here.ledger.list()}
    for number in range(2, 20):
        here.ledger.enqueue(here.key(number))
    for row in here.ledger.list(Status.QUEUED):
        here.ledger.claim(row.uuid, owner, 600)
    looks, parents = [], process_tree.parents
    monkeypatch.setattr(process_tree, "parents", lambda: looks.append(1) or parents())
    assert not watchdog.Watchdog(here.wiring).check()
    assert len(looks) == 1


def test_looks_that_cost_much_come_rarely(hanging, time, monkeypatch):
    here, *_ = hanging("limits: {memory: 1T}\n")
    spent = [0.0]
    monkeypatch.setattr(watchdog.time, "thread_time", lambda: spent[0])
    looks, parents = [], process_tree.parents

    def slow():
        looks.append(clock.monotonic())
        spent[0] += cost
        return parents()

    monkeypatch.setattr(process_tree, "parents", slow)
    watched, gaps = watchdog.Watchdog(here.wiring), {}
    for cost in (0.001, 0.1, 5.0):
        looks.clear()
        for _ in range(400):
            watched.check()
            time.move(0.1)
        gaps[cost] = round(looks[-1] - looks[-2], 1)
    assert gaps[0.001] == watchdog.SECONDS
    assert gaps[0.1] == pytest.approx(0.1 * watchdog.LOOKS, abs=0.2), "2 % of a core"
    assert gaps[5.0] == pytest.approx(watchdog.MOST_SECONDS, abs=0.2), "a task that is too large is still found"


def test_a_task_below_its_memory_is_left_alone(hanging, time):
    here, claim, process = hanging("limits: {memory: 200M}\n", more=20 << 20)
    look(Supervisor(here.wiring, starts=False), time, 4 * watchdog.SECONDS)
    assert process.poll() is None
    assert here.ledger.get(claim.uuid).status is Status.RUNNING


def test_a_holder_that_is_another_process_of_the_same_number_is_never_touched(hanging, time):
    here, _, process = hanging()
    here.wiring.db.execute("UPDATE tasks SET lease_owner = lease_owner || '1'")
    over(here)
    supervisor = Supervisor(here.wiring, starts=False)
    look(supervisor, time, 3 * watchdog.HUNG_SECONDS)
    assert process.poll() is None
    assert durable_files.is_locked(here.settings.base_dir / "running" / next(iter(here.ledger.list())).uuid / "lock")


def test_a_clock_that_is_set_back_hides_no_hang_and_one_set_forward_makes_none(hanging, time):
    here, claim, process = hanging("scheduling: {max_workers: 1}\n")
    supervisor = Supervisor(here.wiring, starts=False)

    def renew():
        until = clock.stamp(clock.now() + timedelta(seconds=watchdog.LEASE_SECONDS))
        here.wiring.db.execute("UPDATE tasks SET lease_until = :until", until=until)

    for hours in (1, -2, 3):
        renew()
        time.jump(hours * 3600)
        look(supervisor, time, 20)
        renew()  # as a worker that gets on does
        look(supervisor, time, watchdog.HUNG_SECONDS)
    assert here.named("worker_hung") == []
    assert here.ledger.get(claim.uuid).status is Status.RUNNING
    renew()
    time.jump(-3600)  # from now on the lease lies far in the future, and nobody renews it
    look(supervisor, time, watchdog.LEASE_SECONDS)
    assert here.named("worker_hung") == []
    look(supervisor, time, watchdog.HUNG_SECONDS + watchdog.TRACE_SECONDS + 2 * watchdog.SECONDS)
    assert here.named("worker_hung") != []
    assert process.wait(30) == -signal.SIGKILL
    assert here.ledger.get(claim.uuid).status is Status.QUEUED
