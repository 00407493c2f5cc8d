"""Real disks that are full, and folders that grow: a task waits with the reason and goes on by itself."""

import os
import resource
import signal
import subprocess

import pytest
from flow_home import Held, do, finish, finished, said, until, write
from length import either
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


SOON = "interval: 0.5, idle_interval: 0.5"
FILES = "mkdir d; i=0; while %s > d/$i; do i=$((i+1)); done 2> /dev/null; sleep 600"
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


FILLS = {
    "bytes": ("48m", "cat /dev/zero > big.bin; sleep 600", "MiB"),
    "files": ("48m,nr_inodes=3000", FILES % ":", "files"),
    "files that differ": ("48m,nr_inodes=3000", FILES % "echo $i", "files"),
    "many files": ("48m", FILES % "head -c 300k /dev/urandom", "MiB"),
    "several files": (
        "48m",
        "mkdir -p ~/.cache .git-like; head -c 8M /dev/zero > k.log; cat /dev/zero > k.o; sleep 600",
        "MiB",
    ),
}


@pytest.mark.parametrize("how", either(["files", "several files"], list(FILLS)))
def test_of_several_tasks_on_a_full_disk_the_one_that_grew_most_ends_and_the_others_go_on(small, how):
    size, fill, amount = FILLS[how]
    held = Held(do("run_command", command="echo y > c.txt"))
    plays = {
        "Go on": [write("b.txt"), held, finish()],
        "Fill it": [write("a.txt"), do("run_command", command=fill, timeout=900), finish()],
        "Wait": [write("e.txt"), finish()],
    }
    here = small(size, plays, config=f"scheduling: {{min_free: 8M, max_workers: 2, {SOON}}}\n")
    here.issue(1, "Go on")
    daemon = here.start("run")
    held.arrived()
    here.issue(2, "Fill it")
    until(lambda: here.row(2).get("status") == "failed", "the end of the one that grew")
    row = here.row(2)
    assert row["error_code"] == "limit_disk"
    assert "most of the 2 tasks that ran" in here.said(2)[0]
    assert f"{amount}, most of" in here.said(2)[0]
    assert "files that git did not know were removed" in here.said(2)[0]
    assert here.show(f"{row['branch']}:a.txt") == "x\n", "what the tools wrote is shown"
    assert here.row(1)["status"] == "running"
    here.issue(3, "Wait")
    until(lambda: here.row(3).get("status") == "completed", "a task that came later")
    held.go()
    until(lambda: here.row(1).get("status") == "completed", "the end of the other")
    assert here.show(f"{here.row(1)['branch']}:c.txt") == "y\n"
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)


def test_a_task_that_fills_the_disk_alone_ends_where_its_files_can_be_removed(small):
    plays = {"Fill it": [write("a.txt"), do("run_command", command="cat /dev/zero > big.bin; sleep 600", timeout=900)]}
    here = small("48m", plays | {"Next": [write("b.txt"), finish()]}, config="scheduling: {min_free: 8M}\n")
    here.issue(1, "Fill it")
    here.issue(2, "Next")
    here.run("run", "--once")
    assert (here.row(1)["status"], here.row(1)["error_code"]) == ("failed", "limit_disk")
    assert here.row(2)["status"] == "completed"


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


def test_a_task_that_could_not_write_goes_on_with_the_next_run(home):
    """Where the program is started now and then, and no daemon is there to resume it."""
    limit = 600_000
    here = home({"Long answer": [("=" * limit, [call("list_files", {}, "call_long")]), finish()]})
    here.issue(1, "Long answer")
    bound = here.start("run", "--once", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    finished(bound)
    assert bound.returncode == 3
    assert (here.row(1)["status"], here.row(1)["outcome"]) == ("paused", "disk")
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert here.label(1) == "coding agent done"
    assert len(here.said(1)) == len(here.progress(1)) == 1


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


def test_one_command_does_not_outlast_the_time_of_a_task(home):
    """The command alone would take longer than a test may."""
    sleep = do("run_command", command="touch b.txt; sleep 3000", timeout=3600)
    here = home({"Sleep": [write("a.txt"), sleep, finish()]}, config="limits: {wall_seconds: 5}\n")
    here.issue(1, "Sleep")
    here.run("run", "--once")
    row = here.row(1)
    assert (row["status"], row["error_code"]) == ("failed", "limit_wall_seconds")
    assert here.show(f"{row['branch']}:a.txt") == "x\n"


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


def test_a_file_that_nobody_wants_in_a_commit_is_named_once_and_the_rest_is_published(home):
    """It is not hashed, compared or searched; the model hears of it, and the person reads it."""
    dd = "for n in 1 2 3; do dd if=/dev/zero bs=1M count=1 2> /dev/null; done > flood.bin"
    here = home({"Flood": [write("a.txt"), do("run_command", command=dd), finish(), finish()]})
    here.config.write_text(here.config.read_text().replace("local: {", "local: {max_file_size: 2M, "))
    here.issue(1, "Flood")
    here.once(code=0)
    row = here.row(1)
    assert row["status"] == "completed"
    assert here.show(f"{row['branch']}:a.txt") == "x\n"
    assert "flood.bin" not in here.show(row["branch"])
    sent_back = [one for one in here.lines(1, "messages.jsonl") if one.get("kind") == "fix"]
    assert len(sent_back) == 1
    assert "flood.bin has 3.0 MiB and was left out" in sent_back[0]["content"]
    assert "flood.bin has 3.0 MiB and was left out" in here.said(1)[0]


def test_a_file_that_grows_over_the_limit_of_a_command_ends_the_command_and_not_the_task(home):
    """`sandbox.limits.file_size` (RLIMIT_FSIZE): the shell reports the signal, and the task goes on."""
    grow = "dd if=/dev/zero of=big.bin bs=1M count=40; echo after"
    here = home({"Grow": [write("a.txt"), do("run_command", command=grow), finish()]})
    here.config.write_text(here.config.read_text().replace("{kind: none}", "{kind: none, limits: {file_size: 4M}}"))
    here.issue(1, "Grow")
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    result = next(one for one in here.lines(1, "messages.jsonl") if "after" in str(one.get("content")))
    assert "File size limit exceeded" in result["content"] or "File too large" in result["content"]
    assert here.show(f"{here.row(1)['branch']}:a.txt") == "x\n"
