"""A ledger of somebody else, `package.module:function` in `taskqueue.ledger`: a daemon with workers, and every command.

The rows are in a file that nothing else knows of; a command that opened `tasks.db` instead would make one.
"""

import json
import os
import signal
from pathlib import Path

import ledger_plugins
import pytest
from flow_home import Held, finish, finished, until, write
from page_home import served

from agent.cli import docs_page
from agent.config import load
from agent.dashboard.pages import PARTS

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(params=["elsewhere", "AtAddress"])
def here(request, home, tmp_path):
    address = f"ledger_plugins:{request.param}"
    file = tmp_path / "contexts" / ledger_plugins.FILE
    if request.param == "AtAddress":
        file = tmp_path / "at" / "rows.db"
        address += f"://{file}"
    held = Held(write("m.txt"))
    steps = {
        "Short": [write("s.txt"), finish("Short one", "It is done.")],
        "Long": [write("l.txt"), held, finish("Long one", "It is done.")],
        "By hand": [write("h.txt"), finish("By hand", "It is done.")],
    }
    made = home(steps, config=f"taskqueue: {{ledger: '{address}'}}\n")
    made.variables = {"PYTHONPATH": str(TESTS)}
    made.held, made.file, made.address = held, file, address
    made.pin()
    return made


def result(here, *args, code=0):
    return json.loads(here.run(*args, "--json", code=code)[1])


def rows(here):
    return {int(row["task_id"]): row for row in result(here, "tasks")}


def test_a_daemon_and_every_command_work_on_it(here):
    assert "no tasks" in here.run("tasks", code=0)[1] or not here.file.exists()
    here.issue(1, "Short")
    here.once()
    assert here.file.exists()
    done = rows(here)[1]
    assert done["status"] == "completed"
    assert here.show(f"{done['branch']}:s.txt") == "x\n"

    here.issue(2, "Long")
    daemon = here.start("run")
    here.held.arrived()
    assert rows(here)[2]["status"] == "running"
    until(lambda: here.run("health", "--live")[0] == 0, "a daemon that is live")
    uuid = rows(here)[2]["uuid"]
    assert "Long" in here.run("show", uuid[:8], code=0)[1]
    assert here.run("request", uuid, code=0)[1]

    target = here.folder / "kept"
    made = result(here, "backup", str(target))
    assert made["rows"] == ("rows.db" if "AtAddress" in here.address else "tasks.jsonl")
    assert (target / made["rows"]).exists()
    assert made["note"]
    assert made["note"] in here.run("backup", str(here.folder / "again"), code=0)[1]

    checks = {one["name"]: one for one in result(here, "doctor")["checks"]}
    ledger = checks["rows" if "AtAddress" in here.address else "ledger"]
    assert ledger["state"] == "ok"
    assert "2" in ledger["found"]

    assert result(here, "pause", uuid)["status"] == "running"
    until(lambda: rows(here)[2]["status"] == "paused", "the pause")
    here.held.go()
    assert result(here, "resume", uuid)["status"] == "queued"
    until(lambda: rows(here)[2]["status"] == "completed", "the end of the second task")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)

    (here.folder / "hand.md").write_text("---\ntitle: By hand\n---\nPlease.\n")
    solved = result(here, "solve", str(here.folder / "hand.md"), "--repo", str(here.repos["default"]))
    assert solved["status"] == "completed"
    replayed = result(here, "replay", done["uuid"])
    assert replayed["same"]
    assert {row["status"] for row in result(here, "tasks")} == {"completed"}
    assert len(result(here, "tasks")) == 3, "the copy of a replay is in a ledger of its own"

    here.issue(3, "Gone")
    here.once(code=1)
    failed = rows(here)[3]
    assert failed["status"] == "failed"
    assert result(here, "retry", failed["uuid"])["status"] == "queued"
    again = next(row for row in result(here, "tasks") if row["status"] == "queued")
    assert result(here, "stop", again["uuid"])["status"] == "stopped"
    assert here.run("doctor", "--repair", code=0)[1]

    removed = result(here, "cleanup", "--days", "0")["removed"]
    assert done["uuid"] in {one["uuid"] for one in removed}
    assert not list((here.contexts).glob("tasks.db*")), "no command opened a ledger that is not configured"


def test_a_worker_that_is_killed_is_started_again_by_the_next_daemon(here):
    here.issue(2, "Long")
    daemon = here.start("run")
    here.held.arrived()
    pid = rows(here)[2]["process_id"]
    os.kill(daemon.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    finished(daemon)
    here.held.go()
    if "AtAddress" not in here.address:  # shared by its own word, but the holder is of this base_dir
        assert rows(here)[2]["lease_until"]
    here.once()
    row = rows(here)[2]
    assert (row["status"], row["attempt"]) == ("completed", 2)


def test_what_is_no_ledger_is_named_by_every_command(home):
    here = home({}, config="taskqueue: {ledger: 'ledger_plugins:broken'}\n")
    here.variables = {"PYTHONPATH": str(TESTS)}
    here.pin()
    for command in (["run", "--once"], ["tasks"], ["doctor"], ["backup", "kept"]):
        code, text = here.run(*command)
        assert code != 0
        assert "has no `db`" in text, command
        assert "Traceback" not in text


@pytest.mark.parametrize("name", ["ledger_plugins:nothing", "nobody.knows:it"])
def test_a_plug_in_that_is_not_there_is_named_by_every_command(home, name):
    here = home({}, config=f"taskqueue: {{ledger: '{name}'}}\n")
    here.variables = {"PYTHONPATH": str(TESTS)}
    for command in (["run", "--once"], ["tasks"], ["health"], ["doctor"], ["backup", "kept"], ["cleanup"]):
        code, text = here.run(*command)
        assert code != 0
        assert name in text, command
        assert "Traceback" not in text


ABOVE = {"cleanup", "pause", "replay", "request", "resume", "retry", "run", "solve", "stop"}
"""Commands that `test_a_daemon_and_every_command_work_on_it` calls."""
LEFT_OUT = {"demo", "mcp accept", "memory retry"}
"""Commands with a ledger of their own, or for a changed server or a failed job, which this home has not."""


@pytest.mark.parametrize("here", ["elsewhere"], indirect=True)
def test_every_other_command_that_there_is_works_on_it(here):
    """The names come from the program, so that a command that is added later is missed here."""
    here.issue(1, "Short")
    here.once()
    uuid = rows(here)[1]["uuid"]
    record = until(lambda: result(here, "memory", "list"), "the memory of the task")[0]["id"]
    question = here.folder / "question.md"
    question.write_text("Shall we?\n")
    calls = {
        "backup": ["kept"],
        "config show": [],
        "dashboard": ["--help"],  # its pages are below
        "deliberate": ["--file", str(question)],
        "doctor": [],
        "health": [],
        "mcp list": [],
        "memory status": [],
        "memory list": [],
        "memory search": ["s.txt"],
        "memory show": [record],
        "memory why": [uuid],
        "memory jobs": [],
        "memory pin": [record],
        "memory promote": [record],
        "memory export": [str(here.folder / "memory.jsonl")],
        "memory rebuild": [],
        "memory forget": ["--id", record, "--yes"],
        "plugins list": [],
        "plugins pin": [],
        "poke": [],
        "prompts list": [],
        "prompts show": ["system"],
        "prompts check": [],
        "prompts reload": [],
        "show": [uuid],
        "tasks": [],
    }
    assert {name for name, _ in docs_page.commands()} == calls.keys() | ABOVE | LEFT_OUT
    done = {name: here.run(*name.split(), *arguments) for name, arguments in calls.items()}
    assert [text for _, text in done.values() if "Traceback" in text] == []
    # no daemon runs, the scripted model gives no vote, no templates are configured, and the record is active already
    others = {"deliberate": 12, "health": 3, "memory promote": 2, "poke": 3, "prompts check": 2, "prompts reload": 2}
    wrong = {name: found for name, found in done.items() if found[0] != others.get(name, 0)}
    assert wrong == {}
    with served(load(here.config, environ={})) as page:
        assert [row["uuid"] for row in page.json("/tasks")["tasks"]] == [uuid]
        assert page.json(f"/tasks/{uuid}")["task"]["status"] == "completed"
        for part in PARTS:
            assert page.get(f"/tasks/{uuid}/{part}").status in (200, 404), part
        assert [page.get(path).status for path in ("/memory", "/health", "/health/machine")] == [200, 200, 200]
    assert not list(here.contexts.glob("tasks.db*")), "no command opened a ledger that is not configured"
