"""The whole program where a container lacks things: namespaces are made that lack them, and a task is run in there."""

import os
import subprocess
import sys

import pytest
from flow_home import ROOT, SECONDS, do, finish, write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such hosts")

NOTHING_TO_WRITE = (
    "for x in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o ro none $x; done; mount -t tmpfs none /sys/fs/cgroup"
)
"""No temporary place, no shared memory, no control groups."""

MASKED = "for x in /proc/sys /proc/irq; do mount --bind $x $x; mount -o remount,ro,bind $x; done"
"""What Docker does to /proc, in part (its maskedPaths and readonlyPaths)."""


def in_a_container(here, lacks, *args):
    """main.py as the first process of namespaces with a read-only root, in which only the home, as /mnt, can be written.

    The check-out is /media there, since it may lie in a place that is missing.
    """
    binds = f"mount --bind {here.folder} /mnt; mount --bind {ROOT} /media"
    line = f'{binds}; {lacks}; mount -o remount,ro,bind /; cd / && exec "$@"'
    argv = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", line, "sh"]
    trial = subprocess.run([*argv, "true"], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"such a host cannot be made here: {trial.stderr.strip()}")
    python = "/media/.venv/bin/python" if (ROOT / ".venv").exists() else sys.executable
    call = [*argv, python, "/media/main.py", *args, "--config", "/mnt/config.yaml"]
    return subprocess.run(call, env=here.environment, capture_output=True, text=True, timeout=SECONDS, check=False)


def run_there(home, lacks):
    """(home, row and exit code) of a task with a command, in a container that lacks something."""
    run = do("run_command", command="echo works > a.txt")
    here = home({"One": [run, write("b.txt"), finish()]}, sandbox="bubblewrap")
    here.issue(1, "One")
    done = in_a_container(here, lacks, "run", "--once")
    return here, here.row(1), done.returncode


def test_a_task_whose_commands_cannot_be_isolated_says_that_nothing_could_be_run(home):
    here, row, code = run_there(home, MASKED)
    assert (row["status"], row["error_code"], code) == ("failed", "no_sandbox", 1)
    assert "draft: true" in here.pulls()[0]


def test_a_task_runs_with_a_read_only_root_and_without_a_folder_for_temporary_files(home):
    here, row, code = run_there(home, NOTHING_TO_WRITE)
    assert (row["status"], row["error_code"], code) == ("completed", None, 0)
    assert "works" in here.show(f"{row['branch']}:a.txt")
    assert list((here.contexts / "tmp").iterdir()) == [], "nothing is left there"
