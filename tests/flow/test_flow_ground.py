"""A real daemon whose log, folders or rows are taken away: it goes on, or says why it starts nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from flow_home import ROOT, Held, finish, finished, until, write

from agent import durable_files

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
    lock = durable_files.lock(durable_files.make_dir(folder) / "lock")
    daemon = here.start("run")
    started, said = time.monotonic(), ""
    for line in daemon.stdout:
        if "worker_unclaimed" in line:
            said = line
            break
    assert "is locked by another process" in said
    assert "exit_code=0" in said
    until(lambda: time.monotonic() - started > 1, "some time")
    durable_files.unlock(lock)
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert text.count("worker_unclaimed") <= 1, text
    assert here.row(1)["status"] == "queued"


QUICK = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv[1:] = sys.argv[2:]
from agent.daemon import supervisor
supervisor.SWEEP_SECONDS = 0.2
import main
sys.exit(main.start())
"""


def test_tasks_come_to_their_end_although_somebody_removes_base_dir_under_the_daemon(home):
    held = Held(finish())
    plays = {"First": [write("a.txt"), held], "Second": [write("b.txt"), finish()]}
    here = home(plays, config=SOON.replace("{", "{max_workers: 1, ", 1))
    here.issue(1, "First")
    here.issue(2, "Second")
    daemon = here.start("run", program=["-c", QUICK, str(ROOT)])
    held.arrived()
    until(lambda: here.row(2).get("status") == "queued", "the second one's row")
    shutil.rmtree(here.contexts, ignore_errors=True)
    held.go()
    until(lambda: [here.label(1), here.label(2)] == ["coding agent done"] * 2, "both ends")
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    # One for tasks.db, one for base_dir, which stays where the daemon made a file in it during the removal.
    assert text.count("ground_replaced") in (1, 2), text
    assert text.count("issue_taken_up") == 2, text
    assert (len(here.pulls()), len(here.said(1)), len(here.said(2))) == (2, 1, 1), "nothing outside happened twice"


def test_every_open_task_comes_back_when_tasks_db_was_moved_away(home):
    """What `doctor` advises for a damaged file: one that was worked on, and one that never began."""
    held = Held(finish())
    plays = {"Works": [write("a.txt"), held], "Waits": [write("c.txt"), finish()]}
    here = home(plays, config=SOON.replace("{", "{max_workers: 1, ", 1))
    here.issue(1, "Works")
    here.issue(2, "Waits")
    daemon = here.start("run")
    held.arrived()
    until(lambda: here.row(2).get("status") == "queued", "the last one's row")
    daemon.kill()
    daemon.wait()
    os.kill(here.worker(1), signal.SIGKILL)
    folder = here.kept(1)
    (here.folder / "away").mkdir()
    for path in here.contexts.glob("tasks.db*"):
        path.rename(here.folder / "away" / path.name)
    held.go()
    text = here.once()
    assert (text.count("row_restored"), text.count("issue_taken_up")) == (1, 1), text
    rows = here.rows()
    assert [rows[number]["status"] for number in (1, 2)] == ["completed", "completed"], rows
    assert here.kept(1).name == folder.name
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "finish"], "it went on"
    assert [here.label(number) for number in (1, 2)] == ["coding agent done"] * 2
