"""Two hosts, one memory, in whole runs: each with its own base_dir and host name, one ledger in PostgreSQL."""

import json
import os
import re
import signal
from contextlib import closing

import pytest
import quick_start
import services
from flow_home import IDENTITY, SECONDS, FlowHome, Parts, finish, until, write
from hosts import end_all, named, started
from llm_servers import Script, says
from llm_servers import call as calls
from shared_memory import contents, rows

from agent.config import load
from agent.memory import Selector
from agent.wiring.memory import open_memory

pytestmark = pytest.mark.skipif(not named("x"), reason="host names of their own need root")

LIKES = "柑橘系の香りが好き"
ASKS = "柑橘系の香りを"
STEPS = [write("a.txt"), finish()]
ANSWER = {
    "facts": [],
    "preferences": [{"text": LIKES, "event": 1, "quote": LIKES}],
    "reflections": [],
}


def tools_of(request):
    return [tool["function"]["name"] for tool in request.json.get("tools", ())]


class Devices:
    """The hosts `a` and `b`, with one tracker, one ledger and one model."""

    def __init__(self, folder, ledger):
        self.ledger = ledger
        parts = Parts({LIKES: STEPS, ASKS: STEPS})

        def answer(request):
            if "remember" in tools_of(request):
                return says("openai", "", [calls("remember", ANSWER, "call_1")])
            return parts(request)

        self.home = FlowHome(folder, server=Script(answer))
        text = self.home.config.read_text().replace("tracker: tracker", f"tracker: {folder}/tracker")
        text = text.replace("repos/default.git", f"{folder}/repos/default.git")
        text += f"taskqueue: {{ledger: '{ledger}', home_seconds: 0}}\nscheduling: {{interval: 1, drain_seconds: 1}}\n"
        text += "memory: {extraction: {enabled: true}}\n"
        self.places, self.daemons = {}, []
        for name in ("a", "b"):
            self.places[name] = folder / name
            self.places[name].mkdir()
            (self.places[name] / "config.yaml").write_text(text)

    def run(self, name, *args, code=0):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.places[name]), **IDENTITY}
        argv = [*args, "--config", "config.yaml"]
        done = quick_start.run(argv, cwd=self.places[name], env=env, timeout=SECONDS, host=f"device-{name}")
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr if "--json" not in args else json.loads(done.stdout)

    def start(self, name):
        place = self.places[name]
        self.daemons.append((started(f"device-{name}", place, place / "daemon.log"), place))
        return self.daemons[-1][0]

    def base_dir(self, name):
        return self.places[name] / "contexts"

    def store(self, name):
        return open_memory(load(self.places[name] / "config.yaml", environ={}), "a test")

    def bytes_of(self, name):
        files = [path for path in self.base_dir(name).glob("memory*") if path.is_file()]
        return b"".join(path.read_bytes() for path in files)

    def close(self):
        for daemon, place in self.daemons:
            if daemon.poll() is None:
                end_all(daemon, place)
        self.home.close()


@pytest.fixture
def devices(tmp_path):
    with services.schema(tmp_path) as ledger:
        made = Devices(tmp_path, ledger)
        yield made
        made.close()


def test_what_a_person_told_on_device_a_is_in_the_request_on_device_b(devices):
    home = devices.home
    home.issue(1, LIKES, f"{LIKES}。")
    devices.run("a", "run", "--once")
    home.issue(2, ASKS, "どの香りが好き?")
    devices.run("b", "run", "--once")
    assert [home.label(number) for number in (1, 2)] == ["coding agent done"] * 2
    asked = next(one for one in home.server.asked if "finish" in tools_of(one) and ASKS in str(one.json["messages"]))
    briefing = asked.json["messages"][1]["content"]
    assert briefing.splitlines()[0].endswith(' source="memory">>>')
    assert re.search(re.escape(LIKES) + r" \(source: preferences, task [0-9a-f]{8}, ", briefing)
    assert re.search(r"device-b", str({row["who"] for row in rows(devices.ledger)}))
    answers = [devices.run(name, "memory", "search", ASKS, "--json")["records"] for name in ("a", "b")]
    assert answers[0] == answers[1] != []
    shown = [devices.run(name, "memory", "status", "--json") for name in ("a", "b")]
    assert shown[0]["jobs"] == shown[1]["jobs"] == {"done": 2}, "the jobs of all hosts"
    assert [(one["log"]["last"], one["log"]["own"]) for one in shown] == [(len(rows(devices.ledger)), False)] * 2
    with closing(devices.store("a")) as a, closing(devices.store("b")) as b:
        assert contents(a) == contents(b)
        before = contents(b)
    devices.run("b", "memory", "rebuild")
    with closing(devices.store("b")) as b:
        assert contents(b) == before


def test_a_daemon_follows_what_another_host_learns_and_forgets_and_goes_on_after_a_kill(devices):
    daemon = devices.start("b")
    with closing(devices.store("a")) as a:
        a.create_memory_record("/preferences/local/", LIKES, strategy="preferences")
        until(lambda: LIKES.encode() in devices.bytes_of("b"), "the record on the other host")
        a.forget(Selector(match=LIKES), dry_run=False)
        until(lambda: LIKES.encode() not in devices.bytes_of("b"), "the forgetting on the other host")
        assert LIKES.encode() not in devices.bytes_of("a")
        assert LIKES not in str(rows(devices.ledger))
        log = (devices.places["b"] / "daemon.log").read_text()
        assert "memory_followed" in log
        assert "memory_remains" not in log
        end_all(daemon, devices.places["b"])
        for n in range(300):
            a.create_event("local", f"s{n // 50}", f"while the other host is down {n}")
        again = devices.start("b")
        with closing(devices.store("b")) as b:
            until(lambda: len(b._open.log.entries(limit=1000)) == len(rows(devices.ledger)), "the entries")
            assert contents(a) == contents(b)
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 0


def test_commands_work_on_the_memory_of_all_hosts_and_say_when_the_log_is_away(devices):
    with closing(devices.store("a")) as a:
        fact = a.create_memory_record("/facts/local/", "The port is 8080.", strategy="facts", quarantine="an order")
        a.jobs.begin("job-1", "local", "job-1", "all", "device-a", "2026-01-01T00:00:00.000000Z")
        a.jobs.end("job-1", "failed", "no model")
    assert devices.run("b", "memory", "show", fact.id, "--json")["record"]["status"] == "quarantined"
    assert [one["status"] for one in devices.run("b", "memory", "jobs", "--json")] == ["failed"]
    devices.run("b", "memory", "promote", fact.id)
    devices.run("b", "memory", "pin", fact.id)
    shown = devices.run("a", "memory", "show", fact.id, "--json")
    assert (shown["record"]["status"], shown["record"]["pinned"]) == ("active", True)
    assert shown["history"][-1]["who"] == "command line on device-b"
    assert "0 behind" in devices.run("a", "memory", "status")
    assert "this host is 0 behind" in devices.run("a", "doctor", code=None)
    config = devices.places["b"] / "config.yaml"
    config.write_text(config.read_text().replace(":5432", ":1"))
    said = devices.run("b", "memory", "list")
    assert "The port is 8080." in said
    assert "note: memory.db of this host is shown as it is: the shared log of memory cannot be used" in said
    assert "cannot be used" in devices.run("b", "memory", "status")
    devices.run("b", "memory", "forget", "--id", fact.id, "--yes", code=3)
    config.write_text(config.read_text().replace(":1/", ":5432/"))
    devices.run("b", "memory", "forget", "--id", fact.id, "--yes")
    devices.run("a", "memory", "show", fact.id, code=2)
