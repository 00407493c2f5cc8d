"""Which deaths of a worker count against its task."""

import os
import signal
import subprocess
import sys

import pytest

from agent import clock, durable_files, proc
from agent.daemon.crash_blame import CrashBlame, memory_kills
from agent.daemon.start_delays import FREE_KILLS, LONGEST_SECONDS
from agent.daemon.supervisor import Supervisor
from agent.daemon.worker_process import WorkerProcess
from agent.taskqueue.row_holder import machine
from agent.values import Status
from agent.wiring.folders import make_folder


@pytest.mark.parametrize(
    ("code", "kills", "blamed"),
    [
        (1, 0, True),
        (-signal.SIGSEGV, 0, True),
        (-signal.SIGABRT, 0, True),
        (-signal.SIGBUS, 0, True),
        (-signal.SIGKILL, 0, False),
        (-signal.SIGKILL, -1, True),  # the kernel has killed something meanwhile
        (-signal.SIGKILL, None, True),  # the kernel does not say
        (-signal.SIGTERM, 0, False),
        (-signal.SIGHUP, 0, False),
    ],
)
def test_a_death_counts_where_the_task_may_be_the_cause(place, code, kills, blamed):
    here = place()
    blame = CrashBlame()
    claim = here.claim(1)
    row = here.ledger.get(claim.uuid)
    now = memory_kills()
    blame.record_end(claim.uuid, row.process_id, code, None if kills is None or now is None else now + kills)
    assert blame.may_be_the_task(row) is blamed
    blame.record_end(claim.uuid, row.process_id + 1, code, 0)  # of another worker
    assert blame.may_be_the_task(row), "under a daemon that lived nobody else is to blame"


def test_a_host_that_was_started_again_and_a_daemon_that_died_too_count_for_nothing(place):
    here = place()
    claim = here.claim(1)
    row = here.ledger.get(claim.uuid)
    assert machine() in row.lease_owner
    with clock.use(clock.FakeClock(clock.now())) as time:
        time.move(60)
        assert not CrashBlame().may_be_the_task(row), "its daemon was another one"
    other = row.lease_owner.replace(machine(), "0" * 12)
    here.wiring.db.execute("UPDATE tasks SET lease_owner = :owner", owner=other)
    blame = CrashBlame()
    blame.record_end(claim.uuid, row.process_id, -signal.SIGSEGV, 0)
    assert not blame.may_be_the_task(here.ledger.get(claim.uuid))


def test_a_daemon_of_months_remembers_the_ends_of_workers_only_while_their_rows_run(place):
    here = place()
    supervisor = Supervisor(here.wiring)
    with clock.use(clock.FakeClock(clock.now())) as time:
        for number in range(1, 6):
            ended = here.claim(number)
            pid = here.ledger.get(ended.uuid).process_id
            supervisor.blame.record_end(ended.uuid, pid, 0, 0)
            here.ledger.finish(ended.uuid, ended.attempt, Status.COMPLETED)
            supervisor.delays.known[ended.uuid] = (3, clock.monotonic() + 8)
        hung = here.claim(6)
        pid = here.ledger.get(hung.uuid).process_id
        supervisor.blame.record_hang(hung.uuid, pid)
        lock = durable_files.lock(make_folder(here.settings, hung.uuid) / "lock")
        supervisor.step()
        durable_files.unlock(lock)
        assert supervisor.blame.known == {hung.uuid: (pid, True)}
        assert len(supervisor.delays.known) == 5, "they still wait"
        time.move(8 + LONGEST_SECONDS)
        supervisor.step()
        assert supervisor.delays.known == {}


class Ended:
    """A worker's process that has ended; `report` never said anything more."""

    def __init__(self, pid, exitcode):
        self.pid, self.exitcode = pid, exitcode

    def join(self):
        pass

    def close(self):
        pass

    def poll(self):
        return False


def death(here, supervisor, uuid, number):
    """A real process has the row, and dies by a signal under its daemon."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as holder:
        here.ledger.claim(uuid, here.wiring.owner, 60)
        here.wiring.db.execute("UPDATE tasks SET process_id = :pid WHERE uuid = :uuid", pid=holder.pid, uuid=uuid)
        os.kill(holder.pid, number)
    ended = Ended(holder.pid, holder.returncode)
    supervisor.children[uuid] = WorkerProcess(ended, ended, claimed=True)
    supervisor.reap()


def test_a_task_whose_workers_somebody_kills_is_not_given_up_but_started_later_each_time(place):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    for count in range(1, 6):
        death(here, supervisor, uuid, signal.SIGKILL)
        row = here.ledger.get(uuid)
        assert (row.status, row.deaths) == (Status.QUEUED, 0)
        assert (uuid in supervisor.delays.waiting()) is (count > FREE_KILLS)


def test_a_task_whose_workers_crash_by_themselves_is_given_up_at_the_third(place):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    for _ in range(3):
        death(here, supervisor, uuid, signal.SIGSEGV)
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "poison")
    assert proc.marked(uuid) == []
