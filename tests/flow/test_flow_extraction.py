"""Long-term memory in whole runs: what a task leaves to the next, and who does it when."""

import os
import re
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
from flow_home import FlowHome, Held, do, finish, git, until, write

from agent.config import load
from agent.wiring.memory import open_memory

CHECK = "verify: {command: 'grep -q round calc.py'}\nscheduling: {interval: 1, idle_interval: 1}\n"
CALC = write("calc.py", "def total(prices):\n    return round(sum(prices))\n")
TEST = do("run_command", command="grep -q 'round(sum' calc.py")
PLAN = do("update_plan", items=[{"text": "Round the sum once", "status": "done"}])
WORK = [PLAN, TEST, CALC, TEST, finish("Round late", "total() now rounds the sum of an invoice once.")]
OTHER = [write("notes.md", "x\n"), finish("Notes", "Notes on the login of the shop.")]


@pytest.fixture
def home(tmp_path):
    made = []

    def make(plays, config=CHECK, **more):
        made.append(FlowHome(tmp_path, plays, config=config, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Remembered:
    """The memory of a home."""

    def __init__(self, home):
        self.settings = load(home.config, environ={})

    def records(self, strategy, status="active"):
        with closing(open_memory(self.settings, "a test")) as memory:
            return memory.list_memory_records(f"/{strategy}/", status=status)

    def find(self, query, strategy):
        with closing(open_memory(self.settings, "a test")) as memory:
            found = memory.retrieve_memory_records(query, f"/{strategy}/", relevance_score=0.05)
        return [hit.record.title for hit in found]

    def jobs(self):
        with closing(open_memory(self.settings, "a test")) as memory:
            return {one["id"]: one["status"] for one in memory.list_memory_extraction_jobs()}


def is_remembered(home, *numbers):
    """Whether these tasks are completed and nothing of them is due."""
    rows = [home.row(number) for number in numbers]
    return all(row.get("status") == "completed" and row["remember_at"] is None for row in rows)


def memory_processes():
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if title.startswith("makimono memory: "):
                found.append((int(entry.name), title.split()[-1]))
    return found


def test_the_second_task_finds_in_memory_what_the_first_one_did(home):
    home = home({"invoice": WORK, "login": OTHER})
    home.issue(1, "Round the invoice once", "Please use grep, not pytest.")
    home.comment(1, "Keep the name of total().")
    assert "memory_extracted" in home.once()
    home.issue(2, "Describe the login")
    home.once()
    memory = Remembered(home)
    assert memory.find("invoices are rounded", "episodes")[0] == "Round the invoice once"
    first, second = memory.records("episodes")
    assert first.session_id == home.row(1)["uuid"]
    assert re.search(r"Commands: `grep .*` failed \(exit code 1\)\. It passed after changes to calc\.py\.", first.text)
    assert first.files == ("calc.py",)
    assert first.trust == 1
    assert first.namespace.split("/")[2] == second.namespace.split("/")[2], "one repository, one actor"
    assert set(memory.jobs().values()) == {"done"}
    with closing(open_memory(memory.settings, "a test")) as store:
        hits = store.likely_files("First calc", first.namespace.split("/")[2])
    assert "calc.py" in [hit.path for hit in hits]
    assert is_remembered(home, 1, 2)


def test_a_daemon_remembers_while_it_runs_and_nothing_waits_for_it(home):
    home = home({"invoice": WORK})
    home.issue(1, "Round the invoice once")
    process = home.start("run")
    until(lambda: home.row(1).get("status") == "completed", "the task")
    assert home.label(1) == "coding agent done"
    until(lambda: is_remembered(home, 1) and Remembered(home).records("episodes"), "the memory")
    process.terminate()
    assert process.wait(60) == 0
    assert "memory_extracted" in process.stdout.read()


def test_a_producer_takes_nothing_in_and_leaves_it_to_a_worker(home):
    home = home({"invoice": WORK})
    home.issue(1, "Round the invoice once")
    home.once()
    execute(home, "UPDATE tasks SET remember_at = created_at")
    home.run("run", "--once", "--role", "producer", code=0)
    assert not is_remembered(home, 1)
    assert "memory_extracted" not in home.run("run", "--once", "--role", "worker", code=0)[1], "it is in memory already"
    assert is_remembered(home, 1)


def execute(home, statement):
    from pysqlite3 import dbapi2 as sqlite3

    connection = sqlite3.connect(home.contexts / "tasks.db", timeout=30, isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_a_job_that_failed_is_done_when_a_person_has_it_tried_again(home):
    home = home({"invoice": WORK})
    home.issue(1, "Round the invoice once")
    process = home.start("run")
    until(lambda: is_remembered(home, 1), "the memory")
    process.terminate()
    process.wait(60)
    memory, uuid = Remembered(home), home.row(1)["uuid"]
    with closing(open_memory(memory.settings, "a test")) as store:
        store.jobs.end(uuid, "failed", "as if it had failed three times")
    home.once()
    assert memory.jobs() == {uuid: "failed"}, "nobody has asked for it"
    home.run("memory", "retry", uuid, code=0)
    assert memory.jobs() == {uuid: "queued"}
    assert not is_remembered(home, 1)
    home.once()
    assert memory.jobs() == {uuid: "done"}
    assert is_remembered(home, 1)


def test_solve_remembers_beside_itself(home):
    home = home({"invoice": WORK})
    (home.folder / "Round.md").write_text("# Round the invoice once\n\nPlease.\n")
    home.run("solve", str(home.folder / "Round.md"), "--repo", str(home.repos["default"]), code=0)
    until(lambda: is_remembered(home, 1), "the memory")
    assert [one.title for one in Remembered(home).records("episodes")] == ["Round the invoice once"]


def test_with_memory_off_nothing_is_made_and_no_end_is_due(home):
    home = home({"invoice": WORK}, config=f"{CHECK}memory: {{enabled: false}}\n")
    home.issue(1, "Round the invoice once")
    home.once()
    assert home.row(1)["remember_at"] is None
    assert list(home.contexts.glob("memory*")) == []
    names = [line["name"] for line in home.lines(1, "effects.jsonl")]
    assert "origin" not in names
    assert "delivery" not in names


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_pull_request_that_a_person_merges_is_in_the_episode(home, by_hand):
    home = home({"invoice": WORK})
    home.issue(1, "Round the invoice once")
    process = home.start("run")
    until(lambda: home.row(1).get("status") == "completed" and is_remembered(home, 1), "the memory")
    if by_hand:
        home.commit("default", {"by_hand.txt": "x\n"}, branch="by-hand")
        tip = home.show("by-hand").split()[1]
        git("update-ref", f"refs/heads/{home.row(1)['branch']}", tip, cwd=home.repos["default"])
    (pull,) = (home.folder / "tracker" / "pulls").glob("*.md")
    pull.write_text(pull.read_text().replace("state: open", "state: merged"))
    memory = Remembered(home)
    until(lambda: "was merged" in memory.records("episodes")[0].text, "the episode")
    until(lambda: is_remembered(home, 1), "the end of the job")
    process.terminate()
    assert process.wait(60) == 0
    text = process.stdout.read()
    assert text.count("pull_ended") == 1
    (episode,) = memory.records("episodes")
    assert ("Others changed the branch" in episode.text) is by_hand


def test_a_job_that_is_killed_with_its_daemon_is_done_by_the_next(home):
    """The job hangs where it asks the model; `kill -9` of all, and what it left is done once."""
    remember = do("remember", facts=[], preferences=[], reflections=[])
    held = Held(remember)
    plays = {"notebook": [held], "invoice": WORK}
    home = home(plays, config=f"{CHECK}memory: {{extraction: {{enabled: true}}}}\n")
    home.issue(1, "Round the invoice once")
    process = home.start("run")
    held.arrived()
    uuid = home.row(1)["uuid"]
    ((pid, _),) = [one for one in memory_processes() if one[1] == uuid]
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    os.kill(process.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    process.wait()
    held.go()
    assert not is_remembered(home, 1)
    execute(home, "UPDATE tasks SET remember_at = created_at")  # its lease would end in a minute and a half
    plays["notebook"][:] = [remember]
    home.once()
    memory = Remembered(home)
    assert is_remembered(home, 1)
    assert len(memory.records("episodes")) == len(memory.records("summaries")) == 1
    requests = [one for one in home.lines(1, "requests.jsonl") if one["purpose"] == "memory"]
    assert [one["status"] for one in requests] == ["interrupted", "ok"]
    assert home.row(1)["memory_requests"] == 2


def test_a_daemon_that_drains_ends_its_job_at_once_and_leaves_it_due(home):
    held = Held(do("remember", facts=[], preferences=[], reflections=[]))
    plays = {"notebook": [held], "invoice": WORK}
    home = home(plays, config=f"{CHECK}memory: {{extraction: {{enabled: true}}}}\n")
    home.issue(1, "Round the invoice once")
    process = home.start("run")
    held.arrived()
    began = time.monotonic()
    process.terminate()
    assert process.wait(60) == 0
    assert time.monotonic() - began < 15
    held.go()
    assert home.row(1)["remember_at"] is not None
    assert Remembered(home).jobs()[home.row(1)["uuid"]] == "queued"
