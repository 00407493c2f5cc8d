"""A `contexts/` that older versions of the program wrote is read and gone on with: what people depend on keeps its name.

`old_contexts.py` made the homes: issue 1 is done, issue 2 waits for the answer to a question.
"""

import json
import os
import shutil
import time

import old_contexts
import pytest
import quick_start
from flow_home import git

from agent.context import outside_effects, projection, requests
from agent.context.compaction_store import CompactionStore
from agent.context.summaries import SummaryStore

DONE, ASKED = "1", "2"


@pytest.fixture(params=old_contexts.COMMITS)
def home(request, tmp_path):
    return old_contexts.unpacked(request.param, tmp_path / "home")


def run(home, *args, code=0):
    """What `main.py` says."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    process = quick_start.start([*args, "--config", home / "config.yaml"], cwd=home, env=env)
    said = process.communicate(timeout=90)[0]
    assert process.returncode == code, said
    return said


def tasks(home):
    """The rows, by number of the issue."""
    rows = json.loads(run(home, "tasks", "--json"))
    return {row["task_id"]: row for row in rows}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def files(folder):
    """Every file of a folder with its bytes, but for what a reader may make beside a database."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("tasks.db")
    }


def test_it_is_shown_and_nothing_is_changed(home):
    before = files(home / "contexts")
    rows = tasks(home)
    assert {number: row["status"] for number, row in rows.items()} == {DONE: "completed", ASKED: "paused"}
    assert "Write an a" in run(home, "show", rows[DONE]["uuid"], "--full")
    shown = run(home, "show", rows[DONE]["uuid"])
    assert "There is an a." in shown
    assert "Red or blue?" in run(home, "show", rows[ASKED]["uuid"])
    for row in rows.values():
        request = run(home, "request", row["uuid"])
        assert "write_file" in request
    assert rows[DONE]["uuid"] in run(home, "cleanup", "--dry-run", "--days", "0")
    assert files(home / "contexts") == before


def test_the_view_is_what_today_s_projection_says(home):
    for place, number in (("completed", DONE), ("running", ASKED)):
        (folder,) = (home / "contexts" / place).iterdir()
        assert (folder / "current.jsonl").read_bytes() == b"".join(data for data, _ in projection.lines(folder)), number


def test_a_task_that_asked_goes_on_with_the_answer(home):
    uuid = tasks(home)[ASKED]["uuid"]
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    line = {"id": 99, "author": "alice", "body": "Blue, please.", "created_at": now, "updated_at": now}
    with (home / "tracker" / "issues" / "2.comments.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    said = run(home, "run", "--once")
    row = tasks(home)[ASKED]
    assert (row["uuid"], row["status"]) == (uuid, "completed"), said
    branch, repository = f"makimono/2-{uuid[:8]}", home / "repos" / "default.git"
    assert git("show", f"{branch}:b.txt", cwd=repository) == "two\n"
    assert git("show", f"{branch}:colour.txt", cwd=repository) == "blue\n"
    records = lines(home / "contexts" / "completed" / uuid / "messages.jsonl")
    assert [one["seq"] for one in records] == list(range(1, len(records) + 1))
    assert any("Blue, please." in (one["content"] or "") for one in records)
    comments = lines(home / "tracker" / "issues" / "2.comments.jsonl")
    assert sum(":progress -->" in one["body"] for one in comments) == 1, "the old comment is edited on"


def test_what_is_done_is_removed_by_cleanup(home):
    uuid = tasks(home)[DONE]["uuid"]
    run(home, "cleanup", "--days", "0")
    assert not (home / "contexts" / "completed" / uuid).exists()
    assert set(tasks(home)) == {ASKED}


def test_without_its_rows_the_folders_are_enough(home):
    for path in (home / "contexts").glob("tasks.db*"):
        path.unlink()
    shutil.rmtree(home / "contexts" / "completed")
    assert "row_restored" in run(home, "run", "--once")
    assert tasks(home)[ASKED]["status"] == "paused"


def test_the_files_of_a_task_keep_their_names():
    """A store with another name would begin an empty file beside the old one, and the old facts would be lost."""
    stores = {CompactionStore.NAME, SummaryStore.NAME, requests.NAME, outside_effects.NAME}
    assert stores == {"compactions.jsonl", "summaries.jsonl", "requests.jsonl", "effects.jsonl"}
