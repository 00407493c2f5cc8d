"""`tasks --watch` beside a daemon: a line for each change in a pipe, an object with --json, a table on a terminal."""

import contextlib
import itertools
import json
import os
import pty
import signal
import subprocess
import sys

from flow_home import Held, finish, finished, said, until, write


def heard(process, true):
    """Lines of `process` until one is as `true` wants."""
    lines = []
    said(process, lambda line: lines.append(line) or true(line))
    return lines


def test_each_change_is_told_once_as_a_line_and_as_an_object(home):
    held = Held(finish())
    here = home({"Watched": [write("a.txt"), held]})
    lines, objects = here.start("tasks", "--watch"), here.start("tasks", "--watch", "--json")
    here.issue(1, "Watched")
    daemon = here.start("run")
    held.arrived()
    told = heard(lines, lambda text: "running" in text)
    assert here.row(1)["uuid"] in told[-1]
    held.go()
    until(lambda: here.row(1)["status"] == "completed", "the end")
    assert "running → completed" in heard(lines, lambda text: "completed" in text)[-1]
    seen = [json.loads(text) for text in heard(objects, lambda text: '"status":"completed"' in text)]
    assert seen[0]["was"] is None
    assert (seen[-1]["uuid"], seen[-1]["status"]) == (here.row(1)["uuid"], "completed")
    assert all(one != following for one, following in itertools.pairwise(seen))
    for process in (lines, objects, daemon):
        process.send_signal(signal.SIGINT)
        finished(process)
    assert lines.returncode == objects.returncode == 130


def test_a_reader_who_goes_away_ends_it(home):
    here = home({"One": [finish()]})
    here.issue(1, "One")
    here.once(code=0)
    command = f"{sys.executable} {here.main} tasks --watch --config {here.config} | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=here.folder, env=here.environment, capture_output=True, text=True, timeout=90, check=True)  # fmt: skip
    assert "completed" in done.stdout
    assert done.stderr == ""


def test_a_terminal_gets_one_table_that_redraws_itself(home):
    here = home({"On a terminal": [finish()]})
    here.issue(1, "On a terminal")
    here.once(code=0)
    master, slave = pty.openpty()
    env = {**here.environment, "COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"}
    command = [sys.executable, str(here.main), "tasks", "--watch", "--config", str(here.config)]
    child = subprocess.Popen(command, cwd=here.folder, env=env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.set_blocking(master, False)
    data, short = bytearray(), here.row(1)["uuid"][:8].encode()

    def drawn(times):
        with contextlib.suppress(BlockingIOError):
            data.extend(os.read(master, 1 << 16))
        return data.count(short) >= times

    until(lambda: drawn(1), "the first table")
    here.run("retry", here.row(1)["uuid"], code=0)
    until(lambda: drawn(2), "the second table, with the new task")
    child.send_signal(signal.SIGINT)
    child.wait(60)
    os.close(master)
