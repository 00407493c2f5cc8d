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


@pytest.mark.parametrize(
    ("lacks", "status", "code"),
    [
        pytest.param(NOTHING_TO_WRITE, "completed", None, id="a read-only root without /tmp"),
        pytest.param(MASKED, "failed", "no_sandbox", id="a /proc that is masked"),
    ],
)
def test_a_task_runs_there_or_says_that_nothing_could_be_run(home, lacks, status, code):
    run = do("run_command", command="echo works > a.txt")
    here = home({"One": [run, write("b.txt"), finish()]}, sandbox="bubblewrap")
    here.issue(1, "One")
    done = in_a_container(here, lacks, "run", "--once")
    row = here.row(1)
    assert (row["status"], row["error_code"]) == (status, code), done.stdout + done.stderr
    assert done.returncode == (0 if status == "completed" else 1)
    if code is not None:
        assert "draft: true" in here.pulls()[0]
        return
    assert "works" in here.show(f"{row['branch']}:a.txt")
    assert list((here.contexts / "tmp").iterdir()) == [], "nothing is left there"
