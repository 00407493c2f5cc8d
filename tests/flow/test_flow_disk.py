"""Real disks that are full, and folders that grow: a task waits with the reason and goes on by itself."""

import os
import resource
import signal
import subprocess

import pytest
from flow_home import Held, do, finish, finished, said, until, write
from llm_servers import call


@pytest.fixture
def small(home):
    """A home whose contexts/ is a small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounts = []

    def make(size, plays, **more):
        here = home(plays, **more)
        here.contexts.mkdir()
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(here.contexts)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounts.append(here)
        return here

    yield make
    for here in mounts:
        here.close()
        subprocess.run(["umount", "-l", str(here.contexts)], check=False)


FILL = "cat /dev/zero > ../fill; true"


def test_a_task_that_filled_the_disk_waits_with_the_reason_and_goes_on_by_itself(small):
    here = small(
        "24m",
        {"Fill it": [write("a.txt"), do("run_command", command=FILL), do("read_file", path="README.md"), finish()]},
        config="scheduling: {min_free: 4M}\n",
    )
    here.issue(1, "Fill it")
    daemon = here.start("run")
    fill = until(lambda: next((here.contexts / "running").glob("*/fill"), None), "the file")
    until(lambda: here.worker(1) is None, "the pause")
    assert here.label(1) == "coding agent paused"
    assert "It goes on by itself when that is mended" in here.progress(1)[0]
    said(daemon, "disk_low")
    fill.unlink()
    until(lambda: here.row(1).get("status") == "completed", "the end")
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert "disk_free" in text
    assert here.label(1) == "coding agent done"
    assert here.row(1)["error_message"] is None
    assert here.row(1)["deaths"] == 0
    assert here.show(f"{here.row(1)['branch']}:a.txt") == "x\n"
    assert len(here.said(1)) == len(here.progress(1)) == len(here.pulls()) == 1
    tools = [one["tool"] for one in here.lines(1, "tools.jsonl")]
    assert tools.count("run_command") == tools.count("write_file") == 1


def test_a_task_that_may_not_write_its_record_waits_with_the_reason_and_goes_on_by_itself(home):
    """The file is made immutable, which root does not get past either."""
    held = Held(write("b.txt"))
    here = home({"Forbidden": [write("a.txt"), held, do("read_file", path="README.md"), finish()]})
    here.issue(1, "Forbidden")
    daemon = here.start("run")
    held.arrived()
    record = here.kept(1) / "messages.jsonl"
    done = subprocess.run(["chattr", "+i", str(record)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file can be made immutable here: {done.stderr.strip()}")
    try:
        held.go()
        until(lambda: here.row(1).get("status") == "paused", "the pause")
        row = here.row(1)
        assert (row["outcome"], row["error_code"]) == ("disk", "disk")
        assert row["error_message"].endswith("messages.jsonl: not permitted; check owner and mode")
        until(lambda: "not permitted" in here.progress(1)[0], "the reason")
    finally:
        subprocess.run(["chattr", "-i", str(record)], check=True)
    until(lambda: here.row(1).get("status") == "completed", "the end")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)
    assert here.row(1)["deaths"] == 0
    assert here.show(f"{here.row(1)['branch']}:b.txt") == "x\n"
    assert len(here.said(1)) == len(here.progress(1)) == len(here.pulls()) == 1


def test_low_space_starts_nothing_until_there_is_some(small):
    here = small("24m", {"Wait": [finish()]}, config="scheduling: {min_free: 16M}\n")
    ballast = here.contexts / "ballast"
    ballast.write_bytes(b"1" * (12 << 20))
    here.issue(1, "Wait")
    code, text = here.run("run", "--once")
    assert (code, here.row(1)["attempt"]) == (3, 0), text
    assert "`scheduling.min_free` is 16M" in text
    assert "`scheduling.min_free` is 16M" in here.run("doctor", code=3)[1]
    ballast.unlink()
    here.once(code=0)
    assert here.row(1)["status"] == "completed"


def test_a_folder_over_its_size_ends_the_task_and_the_person_is_told(home):
    grow = "head -c 40M /dev/zero > ../home.bin; sleep 600"
    here = home(
        {"Grow": [write("a.txt"), do("run_command", command=grow, timeout=900), finish()]},
        config="limits: {folder_size: 20M}\n",
    )
    here.issue(1, "Grow")
    here.run("run", "--once")
    row = here.row(1)
    assert (row["status"], row["error_code"]) == ("failed", "limit_folder_size")
    assert "`limits.folder_size` is 20M" in here.said(1)[0]
    assert here.show(f"{row['branch']}:a.txt") == "x\n", "what there was is shown"


def test_a_task_that_cannot_write_its_record_waits_in_its_row_and_a_later_daemon_resumes_it(home):
    """As any user: no file may grow over 600 kB, and one answer is longer than that, in few tokens."""
    limit = 600_000
    here = home({"Long answer": [("=" * limit, [call("list_files", {}, "call_long")]), finish()]})
    here.issue(1, "Long answer")
    bound = here.start("run", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    until(lambda: here.row(1).get("status") == "paused", "the pause")
    row = here.row(1)
    assert (row["outcome"], row["error_code"]) == ("disk", "disk")
    assert "messages.jsonl" in row["error_message"]
    until(lambda: here.label(1) == "coding agent paused", "the label")
    until(lambda: "messages.jsonl" in here.progress(1)[0], "the reason")
    records = here.lines(1, "messages.jsonl")
    assert [one["seq"] for one in records] == list(range(1, len(records) + 1)), "no half line is left"
    bound.send_signal(signal.SIGTERM)
    finished(bound)
    free = here.start("run")
    until(lambda: here.row(1).get("status") == "completed", "the end")
    free.send_signal(signal.SIGTERM)
    finished(free)
    assert here.label(1) == "coding agent done"
    assert len(here.said(1)) == len(here.progress(1)) == 1
