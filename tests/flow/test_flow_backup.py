"""A backup that is taken while a daemon works, and what goes on from it."""

import json
import os
import shutil
import signal
import sqlite3

import pytest
from flow_home import Held, do, finish, finished, until, write


def test_a_backup_that_is_taken_while_a_task_runs_can_be_restored_and_the_task_goes_on(home):
    held = Held(finish("Long one", "It is done."))
    here = home(
        {
            "Short": [write("s.txt"), finish("Short one", "It is done.")],
            "Long": [write("l.txt"), do("run_command", command="ln -s l.txt link; mkfifo pipe"), held],
        }
    )
    here.issue(1, "Short")
    here.once(code=0)
    here.issue(2, "Long")
    daemon = here.start("run")
    held.arrived()
    target = here.folder / "kept" / "today"
    said = here.run("backup", str(target), "--json", code=0)[1]
    made = json.loads(said)
    assert (made["completed"], made["running"], made["rows"]) == (1, 1, "tasks.db")
    assert json.loads((target / "backup.json").read_text())["tasks"] == 2
    assert daemon.poll() is None
    os.kill(daemon.pid, signal.SIGKILL)
    os.kill(here.worker(2), signal.SIGKILL)
    finished(daemon)
    until(lambda: here.worker(2) is None, "the end of the worker")
    attempt = here.row(2)["attempt"]
    link = next((target / "running").glob("*/workspace/link"))
    assert os.readlink(link) == "l.txt"

    shutil.rmtree(here.contexts)
    shutil.copytree(target, here.contexts, symlinks=True)
    held.go()
    here.once(code=0)
    assert here.row(2)["status"] == "completed"
    assert here.row(2)["attempt"] == attempt + 1
    assert here.show(f"{here.row(2)['branch']}:l.txt") == "x\n"
    assert len(here.said(2)) == len(here.progress(2)) == 1
    tools = [one["tool"] for one in here.lines(2, "tools.jsonl")]
    assert tools == ["write_file", "run_command", "finish"]
    assert here.run("show", here.row(1)["uuid"], code=0)[1]
    assert here.run("replay", here.row(1)["uuid"], code=0)[1]


@pytest.mark.parametrize("where", ["contexts/inside", "full", "file"])
def test_a_backup_goes_to_a_new_folder_outside(home, where):
    here = home({"Short": [finish()]})
    here.issue(1, "Short")
    here.once(code=0)
    (here.folder / "full").mkdir()
    (here.folder / "full" / "x").write_text("mine")
    (here.folder / "file").write_text("mine")
    code, text = here.run("backup", str(here.folder / where))
    assert code == 2, text
    assert (here.folder / "full" / "x").read_text() == (here.folder / "file").read_text() == "mine"


def test_the_rows_of_a_backup_are_whole(home):
    here = home({"Short": [finish()]})
    here.issue(1, "Short")
    here.once(code=0)
    here.run("backup", str(here.folder / "kept"), code=0)
    with sqlite3.connect(here.folder / "kept" / "tasks.db") as kept:
        assert kept.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert kept.execute("SELECT status FROM tasks").fetchall() == [("completed",)]
    kept.close()
