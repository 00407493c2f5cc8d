"""A container that is made anew on the same volume: its host has another name each time, and the tasks go on."""

import signal
from uuid import uuid4

import pytest
from flow_home import Held, do, finish, until, write
from hosts import end_all, named, started
from pysqlite3 import dbapi2 as sqlite3

pytestmark = pytest.mark.skipif(not named("x"), reason="host names of their own need root")
SOON = "scheduling: {interval: 0.2, idle_interval: 0.2}\n"


def pause_for_the_disk(here, number):
    """A row beside that of issue 1, of the same host."""
    columns = "task_source, instance, owner, repo, task_type, hostname, attempt, user, created_at"
    database = sqlite3.connect(here.contexts / "tasks.db", timeout=30, isolation_level=None)
    database.execute(
        f"INSERT INTO tasks ({columns}, task_id, uuid, status, outcome, title) "
        f"SELECT {columns}, ?, ?, 'paused', 'disk', 'Waits' FROM tasks",
        (str(number), str(uuid4())),
    )
    database.close()


def test_tasks_of_a_container_that_is_gone_go_on_in_the_next_one(home):
    """One that runs goes on at its turn, without waiting for its lease; one that was paused for the disk is resumed."""
    held = Held(do("read_file", path="a.txt"))
    plays = {"Runs": [write("a.txt"), held, finish()], "Waits": [write("b.txt"), finish()]}
    here = home(plays, config=SOON)
    here.issue(1, "Runs")
    first = started("made-7f9c", here.folder, here.folder / "first.log")
    held.arrived()
    known = (here.contexts / "home.id").read_text()
    here.issue(2, "Waits", label="coding agent paused")
    end_all(first, here.folder)
    before = here.row(1)
    assert before["hostname"] == "made-7f9c"
    pause_for_the_disk(here, 2)
    held.go()
    second = started("made-1b2d", here.folder, here.folder / "second.log")
    until(lambda: [here.label(1), here.label(2)] == ["coding agent done"] * 2, "both ends", seconds=120)
    rows = here.rows()
    assert [(rows[number]["attempt"], rows[number]["hostname"]) for number in (1, 2)] == [(2, "made-1b2d")] * 2
    assert rows[1]["uuid"] == before["uuid"]
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "read_file", "finish"], "it went on"
    assert (here.contexts / "home.id").read_text() == known
    assert (len(here.pulls()), len(here.said(1)), len(here.said(2))) == (2, 1, 1)
    second.send_signal(signal.SIGTERM)
    second.wait(60)
