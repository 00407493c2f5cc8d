"""What a task and each of its commands may hold in memory, whatever holds it."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agent import clock
from agent.config import settings_of
from agent.values import End, Outcome
from agent.worker import memory_limits, process_groups
from agent.worker.memory_limits import ServerMemory, TaskMemory, first_outcome

MIB = 1 << 20
OWN = 50 * MIB


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as fake:
        fake.move(1000)
        yield fake


@pytest.fixture
def task(monkeypatch, time):
    """A task whose processes hold `holds` bytes, on a machine of 1 GiB without control groups."""
    monkeypatch.setattr(process_groups, "machine", lambda: 1 << 30)
    monkeypatch.setattr(process_groups, "group_places", lambda: SimpleNamespace(memory=None))
    monkeypatch.setattr(process_groups, "memory_used", lambda *_: None)
    monkeypatch.setattr(memory_limits.proc, "has_children", lambda: False)  # earlier tests may have left some

    def make(config):
        made = TaskMemory(settings_of(config), "u", 1)
        made.holds, made.looks = 0, 0

        def memory_of(pid, *, itself=True, below=True):
            made.looks += below
            return made.slow() or made.holds * below + OWN * itself

        made.slow = lambda: 0

        monkeypatch.setattr(memory_limits.process_tree, "memory_of", memory_of)
        return made

    return make


def test_by_default_a_command_may_hold_half_of_the_machine_more_than_before(task, time):
    made = task({})
    command = made.watch_command()
    assert made.looks == 0, "the start of a command costs no look"
    made.holds = 512 * MIB
    time.move(1)
    assert not command()
    made.holds += MIB
    assert not command(), "it was looked at just now"
    time.move(1)
    assert command()
    assert "`sandbox.limits.memory` is 50% of this machine's memory" in command.why
    assert "held 513 MiB" in command.why
    made.holds = 0
    time.move(1)
    assert command(), "it stays ended"


def test_a_task_over_its_own_share_ends(task, time):
    made = task({})
    made.holds = 650 * MIB
    time.move(1)
    assert made() is None
    made.holds = 670 * MIB
    time.move(1)
    outcome = first_outcome(lambda: None, made)()
    assert (outcome.end, outcome.code) == (End.LIMIT, "memory")
    assert "held 720 MiB together; `limits.memory` is 70% of this machine's memory" in outcome.summary
    assert first_outcome(lambda: Outcome(End.STOPPED), made)().end is End.STOPPED


def test_a_look_serves_the_task_and_the_command(task, time):
    """Both are asked in one breath, and only one of them looks."""
    made = task({})
    command = made.watch_command()
    made.holds = 600 * MIB
    time.move(1)
    assert (made(), command()) == (None, True)
    assert made.looks == 1


def test_where_the_kernel_holds_the_task_it_is_not_counted_here(task, time, monkeypatch):
    made = task({})
    monkeypatch.setattr(process_groups, "group_places", lambda: SimpleNamespace(memory=object()))
    made.holds = 1 << 40
    time.move(1)
    assert (made(), made.looks) == (None, 0)


def test_without_limits_nothing_is_looked_at(task, time):
    made = task({"limits": {"memory": None}, "sandbox": {"limits": {"memory": None}}})
    command = made.watch_command()
    time.move(1)
    assert (command(), made(), made.looks) == (False, None, 0)


def test_looking_takes_a_twentieth_of_the_time(task, time):
    made = task({})
    made.slow = lambda: time.move(1)
    command = made.watch_command()
    time.move(1)
    command()
    before = made.looks
    time.move(19)
    command()
    assert made.looks == before
    time.move(2)
    command()
    assert made.looks == before + 1


def test_what_the_kernel_holds_for_a_command_counts_above_its_noise(task, time, monkeypatch):
    """Sockets held 2 GiB of data that no process showed."""
    kernel = [300 * MIB]
    monkeypatch.setattr(process_groups, "is_whole_machine", lambda: True)
    monkeypatch.setattr(memory_limits.process_tree, "kernel_memory", lambda: kernel[0])
    made = task({})
    command = made.watch_command()
    made.holds = 500 * MIB
    kernel[0] += 256 * MIB
    time.move(1)
    assert not command()
    kernel[0] += 13 * MIB
    time.move(1)
    made()
    assert command(), "the look of the task serves the command"
    assert "held 513 MiB" in command.why
    after = made.watch_command()
    made.holds = 0
    time.move(1)
    assert not after(), "what was there at its start is not the next one's"


def test_in_a_container_the_kernels_memory_says_nothing_of_the_task(task, time, monkeypatch):
    monkeypatch.setattr(memory_limits.process_tree, "kernel_memory", lambda: 1 << 40)
    made = task({})
    command = made.watch_command()
    monkeypatch.setattr(memory_limits.process_tree, "kernel_memory", lambda: 1 << 41)
    time.move(1)
    assert not command()


def test_a_server_is_measured_with_all_below_it_and_ended_over_the_limit_of_a_command():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    inner = "held = bytearray(200 << 20); print('ready', flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, inner], stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout.readline() == b"ready\n"
            small = ServerMemory(settings_of({"sandbox": {"limits": {"memory": "100M"}}}), child.pid)
            large = ServerMemory(settings_of({"sandbox": {"limits": {"memory": "2G"}}}), child.pid)
            none = ServerMemory(settings_of({"sandbox": {"limits": {"memory": None}}}), child.pid)
            early = ServerMemory(settings_of({"sandbox": {"limits": {"memory": "100M"}}}))
            assert [small(), large(), none(), early()] == [True, False, False, False]
            assert "MiB of memory; `sandbox.limits.memory` is 100M" in small.why
            assert small()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
