"""The control group of an attempt: its memory, and what a start finds of a daemon that died."""

import os
import subprocess
import sys

import pytest

from agent.run import groups
from agent.run.supervisor import Supervisor
from agent.values import Status

EAT = """
import sys
from pathlib import Path
from agent.config import load
from agent.run import groups
groups.join(load(Path(sys.argv[1]), environ={}), sys.argv[2], int(sys.argv[3]))
x = bytearray(b'1' * (int(sys.argv[4]) << 20))
"""


@pytest.fixture
def here(place):
    made = place("limits: {memory: 100M}\n")
    if groups.places().memory is None:
        pytest.skip(str(groups.places()))
    yield made
    groups.remove(made.settings.base_dir)


def worked(here, claim, megabytes):
    """The worker of a claim: a process that joins its group and holds so much memory."""
    argv = [here.folder / "config.yaml", claim.uuid, str(claim.attempt), str(megabytes)]
    code = subprocess.run([sys.executable, "-c", EAT, *argv], check=False).returncode
    return code, here.ledger.get(claim.uuid)


def test_a_worker_that_the_kernel_killed_for_memory_fails_its_task_with_that_word(here):
    claim = here.claim(1)
    code, row = worked(here, claim, 300)
    assert code == -9
    Supervisor(here.wiring).close_if_too_large(claim.uuid, row.process_id)
    row = here.ledger.get(claim.uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "memory")
    assert "`limits.memory` is 100M" in row.error_message


def test_a_worker_that_was_killed_by_somebody_else_is_not_too_large(here):
    claim = here.claim(1)
    assert worked(here, claim, 1)[0] == 0
    supervisor = Supervisor(here.wiring)
    supervisor.close_if_too_large(claim.uuid, os.getpid())
    assert here.ledger.get(claim.uuid).status is Status.RUNNING
    name = groups._name(here.settings.base_dir, claim.uuid, claim.attempt)
    supervisor.sweep()
    assert not any((parent.folder / name).exists() for parent in groups.places().all())


def test_of_a_limit_that_is_a_share_of_the_machine_the_event_has_bytes(place, monkeypatch):
    made = place("limits: {memory: 50%}\n")
    claim = made.claim(1)
    monkeypatch.setattr(groups, "ran_over", lambda *_: True)
    Supervisor(made.wiring).close_if_too_large(claim.uuid, made.ledger.get(claim.uuid).process_id)
    (event,) = made.named("task_too_large")
    assert event["bytes"] == event["limit"] == groups.in_bytes("50%")
    assert "`limits.memory` is 50% of this machine's memory" in made.ledger.get(claim.uuid).error_message
