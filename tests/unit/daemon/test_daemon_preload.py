"""What the forkserver has, a worker need not load: a whole task imports, compiles, builds and reads nothing after the
preload."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from agent.config import load
from agent.llm.replay_server import ReplayServer

ISSUE = "---\ntitle: Totals\nlabels: [coding agent]\nauthor: alice\nstate: open\n---\nRound at the café.\n"

CHILD = """
import json, os, pickle, sys, threading
from pathlib import Path
if os.environ["MEMORY"] == "true":
    import agent.daemon.preload_memory_package
import agent.daemon.preload
from agent.config.base import Section
from agent.observe.events import Events
from agent.wiring.wiring import Wiring
files, threads = os.listdir("/proc/self/fd"), threading.active_count()
def validators(model):
    built = {model.__name__} if model.__pydantic_complete__ else set()
    return built.union(*map(validators, model.__subclasses__()))
built = validators(Section)
settings = pickle.load(sys.stdin.buffer)
loaded = set(sys.modules)
program = os.path.dirname(agent.__file__)
made = []
def note(event, arguments):
    if event == "compile":
        made.append(f"compile {arguments[1]}")
    elif event == "open" and str(arguments[0]).startswith(program) and "/migrations/" not in arguments[0]:
        made.append(os.path.relpath(arguments[0], program))
wiring = Wiring(settings, events=Events([]))
(uuid,) = agent.intake.poller.fetch_and_enqueue_tasks(settings, wiring.ledger, wiring.forges, wiring.events)
wiring.close()
sys.addaudithook(note)
code = agent.worker.worker.process_task(settings, uuid)
made += sorted(validators(Section) - built)
memory = [name for name in sys.modules if name.startswith(("agent.memory", "agent.extraction"))]
files_of_memory = [str(path) for path in Path("contexts").rglob("*") if path.name.startswith(("recalled", "memory"))]
unused = sorted({"rich", "chardet", "charset_normalizer"} & loaded)
print(json.dumps([code, sorted(set(sys.modules) - loaded), unused, len(files), threads, made, memory + files_of_memory]))
"""


def call(number, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return {"seq": number, "role": "assistant", "content": "", "tool_calls": calls}


@pytest.mark.parametrize("memory", ["true", "false"])
def test_a_task_imports_compiles_builds_and_reads_nothing_that_the_forkserver_does_not_have(tmp_path, memory):
    repo, tracker = tmp_path / "repo", tmp_path / "tracker"
    (tracker / "issues").mkdir(parents=True)
    (tracker / "issues" / "1.md").write_text(ISSUE)
    repo.mkdir()
    (repo / "calc.py").write_text("total = 1\n")
    (repo / ".makimono.yaml").write_text("verify: {command: 'true'}\nsetup: {command: 'true'}\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "Start"]):
        subprocess.run(["git", *command], cwd=repo, check=True, capture_output=True)
    records = [
        call(1, "list_files"),
        call(2, "read_file", path="calc.py"),
        call(3, "search_text", pattern="total"),
        call(4, "edit_file", path="calc.py", old_text="1", new_text="2"),
        call(5, "run_command", command="cat calc.py"),
        call(6, "update_plan", items=[{"text": "fix", "status": "done"}]),
        call(7, "finish", title="Two", summary="It is two now."),
    ]
    with ReplayServer(records) as server:
        model = {"model": "m", "base_url": server.url, "context_length": 50_000, "api_key": "a-key-to-be-masked"}
        config = {
            "task_sources": ["local"],
            "local": {"tracker": "tracker", "repos": {"default": "repo"}},
            "llm": {"provider": "openai", "openai": model},
            "sandbox": {"kind": "none"},
            "memory": {"enabled": memory == "true"},
            "repository_file": {"allow": ["verify", "setup"]},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-c", CHILD]
        environment = {**os.environ, "MEMORY": memory}
        settings = pickle.dumps(load(tmp_path / "config.yaml", environ={}))  # as a daemon hands them to its workers
        done = subprocess.run(command, cwd=tmp_path, env=environment, input=settings, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    code, imported, unused, files, threads, made, of_memory = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert imported == []
    assert made == []  # templates, SQL, weights, validators of settings
    assert bool(of_memory) == (memory == "true")  # without memory neither its modules nor its files
    assert not unused
    assert threads == 1
    assert files <= 4  # the standard ones, and the folder that is just being read


MAIN = """
import multiprocessing, os, sys
with open("runs", "a") as file:
    file.write(__name__ + " ")
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["agent.daemon.preload"])
    worker = context.Process(target=os.mkdir, args=("made",))
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


def test_a_worker_does_not_run_the_main_module_of_the_daemon_again(tmp_path):
    (tmp_path / "main.py").write_text(MAIN)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "main.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "made").is_dir()
    assert (tmp_path / "runs").read_text() == "__main__ "


CUT = """
import multiprocessing.spawn, os, pickle, sys
import agent.daemon.preload
told = pickle.dumps({"name": "worker"})
receive, send = os.pipe()
os.write(send, told[: int(sys.argv[1])])
os.close(send)
sys.exit(multiprocessing.spawn._main(receive, os.dup(0)))
"""


@pytest.mark.parametrize("length", [0, 5])
def test_a_daemon_that_is_killed_before_its_worker_knows_what_to_do_leaves_no_trace_in_the_log(length):
    done = subprocess.run([sys.executable, "-c", CUT, str(length)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
