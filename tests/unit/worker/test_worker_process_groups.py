"""The control group of an attempt: its memory, and what a start finds of a daemon that died."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from agent.context import ToolStore
from agent.context.task_row import TaskRow
from agent.daemon.supervisor import Supervisor
from agent.daemon.worker_process import WorkerProcess
from agent.errors import LedgerError
from agent.values import Status
from agent.wiring.folders import make_folder
from agent.worker import process_groups

EAT = """
import sys
from pathlib import Path
from agent.config import load
from agent.worker import process_groups
process_groups.join(load(Path(sys.argv[1]), environ={}), sys.argv[2], int(sys.argv[3]))
x = bytearray(b'1' * (int(sys.argv[4]) << 20))
"""


@pytest.fixture
def here(place):
    made = place("limits: {memory: 100M}\n")
    if process_groups.group_places().memory is None:
        pytest.skip(str(process_groups.group_places()))
    yield made
    process_groups.remove(made.settings.base_dir)


def worked(here, claim, megabytes):
    """The worker of a claim: a process that joins its group and holds so much memory."""
    argv = [here.folder / "config.yaml", claim.uuid, str(claim.attempt), str(megabytes)]
    code = subprocess.run([sys.executable, "-c", EAT, *argv], check=False).returncode
    return code, here.ledger.get(claim.uuid)


def test_a_worker_that_the_kernel_killed_for_memory_fails_its_task_with_that_word(here):
    claim = here.claim(1)
    code, row = worked(here, claim, 300)
    assert code == -9
    Supervisor(here.wiring).watchdog.close_if_over_limit(claim.uuid, row.process_id)
    row = here.ledger.get(claim.uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "memory")
    assert "`limits.memory` is 100M" in row.error_message


def test_a_worker_that_was_killed_by_somebody_else_is_not_too_large(here):
    claim = here.claim(1)
    assert worked(here, claim, 1)[0] == 0
    supervisor = Supervisor(here.wiring)
    supervisor.watchdog.close_if_over_limit(claim.uuid, os.getpid())
    assert here.ledger.get(claim.uuid).status is Status.RUNNING
    name = process_groups._name(here.settings.base_dir, claim.uuid, claim.attempt)
    supervisor.dead_rows.requeue()
    assert not any((parent.folder / name).exists() for parent in process_groups.group_places().distinct_parents())


def test_of_a_limit_that_is_a_share_of_the_machine_the_event_has_bytes(place, monkeypatch):
    made = place("limits: {memory: 50%}\n")
    claim = made.claim(1)
    monkeypatch.setattr(process_groups, "ran_over", lambda *_: True)
    Supervisor(made.wiring).watchdog.close_if_over_limit(claim.uuid, made.ledger.get(claim.uuid).process_id)
    (event,) = made.named("task_too_large")
    assert event["bytes"] == event["limit"] == process_groups.in_bytes("50%")
    assert "`limits.memory` is 50% of this machine's memory" in made.ledger.get(claim.uuid).error_message


class Killed:
    """What multiprocessing says of a worker that the kernel ended; the row of this test is held by this process."""

    pid = os.getpid()
    exitcode = -9

    def join(self):
        pass

    close = join


def away(*_, **__):
    raise LedgerError("the ledger is away")


@pytest.mark.parametrize("has_work", [False, True])
@pytest.mark.parametrize("part", ["get", "finish", "set", "release"])
def test_that_a_task_is_too_large_is_said_once_the_ledger_answers_again(place, monkeypatch, part, has_work):
    """The kernel's word is gone with the group, and a row that only lost its worker would run into it again."""
    here = place("limits: {memory: 100M}\n")
    claim = here.claim(1)
    if has_work:
        tools = ToolStore(make_folder(here.settings, claim.uuid))
        tools.add_tool_call("run_command", {"command": "make"}, "ok", "success", 1)
        tools.file.close()
    supervisor = Supervisor(here.wiring)
    receive, send = multiprocessing.Pipe(duplex=False)
    send.close()
    supervisor.children[claim.uuid] = WorkerProcess(Killed(), receive, claimed=True, heard=True)
    with monkeypatch.context() as now:
        now.setattr(process_groups, "ran_over", lambda *_: True)
        now.setattr(TaskRow if part == "set" else here.ledger, part, away)
        if part == "get" or has_work == (part != "finish"):
            with pytest.raises(LedgerError):
                supervisor.reap()
        else:
            supervisor.reap()
    assert not supervisor.busy()
    supervisor.dead_rows.requeue()
    row = here.ledger.get(claim.uuid)
    expected = (Status.QUEUED, "publishing") if has_work else (Status.FAILED, None)
    assert (row.status, row.outcome, row.error_code, row.deaths) == (*expected, "memory", 0)
    assert len(here.named("task_too_large")) == 1
    supervisor.dead_rows.requeue()
    assert supervisor.watchdog.too_large == {}
    assert len(here.named("task_too_large")) == 1
