"""A real daemon whose log, folders or rows are taken away: it goes on, or says why it starts nothing."""

import os
import signal
import subprocess
import sys
import time

import pytest
from flow_home import ROOT, finish, finished, until, write

from agent import disk

SOON = "scheduling: {interval: 0.2, idle_interval: 0.2, drain_seconds: 1}\n"


@pytest.mark.parametrize("place", ["full", "gone"])
def test_a_log_that_cannot_be_written_keeps_no_task_from_its_end(home, place):
    here = home({"First": [write("a.txt"), finish()]}, config=SOON)
    here.issue(1, "First")
    if place == "full":
        errors = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, errors = os.pipe()
        os.close(reader)
    daemon = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "run", "--config", str(here.config)],
        cwd=here.folder,
        env=here.environment,
        stdout=subprocess.PIPE,
        stderr=errors,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    here.processes.append(daemon)
    os.close(errors)
    until(lambda: here.row(1).get("status") == "completed", "the end", seconds=30)
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(30)
    assert daemon.returncode == 0


def test_a_task_whose_lock_somebody_else_holds_is_said_and_not_forked_again_and_again(home):
    """A frozen host of a shared base_dir, say: its lease is over, and its lock is not."""
    here = home({"First": [write("a.txt"), finish()]}, config=SOON)
    here.issue(1, "First")
    here.run("run", "--once", "--role", "producer", code=0)
    folder = here.contexts / "running" / here.row(1)["uuid"]
    lock = disk.lock(disk.make_dir(folder) / "lock")
    daemon = here.start("run")
    started, said = time.monotonic(), ""
    for line in daemon.stdout:
        if "worker_unclaimed" in line:
            said = line
            break
    assert "is locked by another process" in said
    assert "exit_code=0" in said
    until(lambda: time.monotonic() - started > 1, "some time")
    disk.unlock(lock)
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert text.count("worker_unclaimed") <= 1, text
    assert here.row(1)["status"] == "queued"
