"""A plug-in of every kind at once, each a dotted path in config.yaml: a daemon, and every command."""

import json
import signal
from pathlib import Path

from flow_home import Held, finish, finished, until, write

TESTS = Path(__file__).resolve().parents[1]


def result(here, *args, code=0):
    return json.loads(here.run(*args, "--json", code=code)[1])


def test_a_daemon_and_every_command_work_with_plug_ins_alone(home):
    held = Held(write("m.txt"))
    steps = {
        "Short": [write("s.txt"), finish("Short one", "It is done.")],
        "By hand": [write("h.txt"), finish("By hand", "It is done.")],
        "Long": [write("l.txt"), held, finish("Long one", "It is done.")],
    }
    here = home(steps)
    text = here.config.read_text()
    for old, new in (
        ("task_sources: [local]", "task_sources: ['plug_ins:Tracker']"),
        ("provider: openai, openai:", "provider: 'plug_ins:Client', plugin:"),
        ("durability: none", "durability: none, strategy: 'plug_ins:Strategy'"),
        ("kind: none", "kind: 'plug_ins:Box'"),
    ):
        assert old in text
        text = text.replace(old, new)
    more = "taskqueue: {broker: 'plug_ins:Broker'}\nassembler: {memory: ['plug_ins:Memory']}\n"
    here.config.write_text(text + more)
    here.variables = {"PYTHONPATH": str(TESTS)}

    refused = here.run("run", "--once", code=2)[1]
    assert "plug_ins:Tracker" in refused
    assert "run `./main.py plugins pin`" in refused
    listed = result(here, "plugins", "list", code=2)["plug_ins"]
    assert {one["state"] for one in listed} == {"not pinned"}
    here.pin()
    listed = result(here, "plugins", "list")["plug_ins"]
    assert {one["state"] for one in listed} == {"pinned"}
    assert {one["file"] for one in listed} == {str(TESTS / "plug_ins.py")}
    assert sorted(key for one in listed for key in one["keys"]) == [
        "assembler.memory",
        "context_storage.strategy",
        "llm.provider",
        "sandbox.kind",
        "task_sources",
        "taskqueue.broker",
    ]

    checks = {one["name"]: one for one in result(here, "doctor")["checks"]}
    assert {one["state"] for one in checks.values()} <= {"ok", "warn"}
    assert "can be read" in checks["plug_ins:Tracker"]["found"]
    assert "plug_ins:Box" in checks["sandbox"]["found"]
    assert "files answers" in checks["broker"]["found"]
    assert checks["repository default"]["state"] == "ok"

    here.issue(1, "Short")
    here.once()
    row = here.row(1)
    assert (row["status"], row["task_source"], row["llm_provider"]) == ("completed", "toy", "plug_ins:Client")
    assert here.show(f"{row['branch']}:s.txt") == "x\n"
    assert here.label(1) == "coding agent done"
    briefing = here.lines(1, "messages.jsonl")[1]["content"]
    assert "Totals are never rounded." in briefing

    here.issue(2, "Long")
    daemon = here.start("run")
    held.arrived()
    assert here.run("health", "--live", code=0)[1]
    uuid = here.row(2)["uuid"]
    assert "Long" in here.run("show", uuid, code=0)[1]
    assert here.run("request", uuid, code=0)[1]
    assert result(here, "pause", uuid)["status"] == "running"
    until(lambda: here.row(2)["status"] == "paused", "the pause")
    held.go()
    assert result(here, "resume", uuid)["status"] == "queued"
    until(lambda: here.row(2)["status"] == "completed", "the end")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)

    assert result(here, "backup", str(here.folder / "kept"))["completed"] == 2
    assert result(here, "replay", row["uuid"])["same"]
    again = result(here, "retry", row["uuid"])
    assert result(here, "stop", again["uuid"])["status"] == "stopped"
    (here.folder / "hand.md").write_text("---\ntitle: By hand\n---\nPlease.\n")
    solved = result(here, "solve", str(here.folder / "hand.md"), "--repo", str(here.repos["default"]))
    assert solved["status"] == "completed"
    assert here.run("doctor", "--repair", code=0)[1]
    assert len(result(here, "cleanup", "--days", "0")["removed"]) >= 3
    assert {row["status"] for row in result(here, "tasks")} <= {"completed", "stopped"}
