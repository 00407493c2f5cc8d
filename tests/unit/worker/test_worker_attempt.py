"""The one entrance to a task: what a worker, `solve` and `replay` do is the same.

Each runs in a process of its own, as at a person's: it is renamed and takes in orphans.  A command of the task looks
from inside at what its process holds.
"""

import json
import multiprocessing
import subprocess
import sys
from datetime import timedelta

import pytest
from first_commit import bare
from llm_servers import Script, call, says
from run_home import UUID

from agent import clock, durable_files
from agent.config import load
from agent.errors import ClaimLost, ConfigError, DiskError, Fenced, LockHeld
from agent.observe import log
from agent.values import Status
from agent.wiring.wiring import Wiring
from agent.worker.attempt import CLAIMED, Mode, attempt, hold

WAYS = ("worker", "solve", "replay")

CHILD = """
import sys
from pathlib import Path
from agent.config import load
folder, way, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = load(folder / "config.yaml", environ={})
try:
    if way == "worker":
        from agent.worker.worker import process_task
        print("code", process_task(settings, what, own=True))
    elif way == "solve":
        from agent.commands.solve import solve
        print(solve(settings, what).status)
    else:
        from agent.commands.replay import replay
        from agent.wiring.wiring import Wiring
        print("same", replay(settings, Wiring(settings).ledger, what).same)
except Exception as error:
    print(type(error).__name__, error)
from agent.observe import log
print("log is closed", log._log.file < 0)
"""

LOOK = """
import fcntl, json, os, signal, sys
from pathlib import Path
from pysqlite3 import dbapi2
out, fence = Path(sys.argv[1]), sys.argv[2] == "fence"
folder = Path.cwd().parent
def is_held():
    with open(folder / "lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False
db = dbapi2.connect(folder.parents[1] / "tasks.db", timeout=30, isolation_level=None)
names = "status, attempt, process_id, lease_owner, lease_until"
row = dict(zip(names.split(", "), db.execute(f"SELECT {names} FROM tasks WHERE uuid = ?", (folder.name,)).fetchone()))
pid = row["process_id"]
caught = int(next(l for l in Path(f"/proc/{pid}/status").read_text().splitlines() if l.startswith("SigCgt")).split()[1], 16)
seen = {
    "uuid": folder.name, "held": is_held(), "row": row, "log": (folder / "worker.log").read_text(),
    "title": Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\\0").decode(),
    "traceable": bool(caught >> (signal.SIGUSR1 - 1) & 1),
}
with out.open("a") as file:
    file.write(json.dumps(seen) + "\\n")
if fence:
    db.execute("UPDATE tasks SET attempt = attempt + 1 WHERE uuid = ?", (folder.name,))
"""

SECRET = "key-of-the-test"
"""A key of the configuration; the name of the model, which is logged, has it in it."""


class Ways:
    """A home whose model lets a command look around, and the three ways to a task in it."""

    def __init__(self, here):
        self.here = here
        self.folder = here.folder
        self.seen = self.folder / "seen.jsonl"
        (self.folder / "look.py").write_text(LOOK)
        bare(self.folder / "repo.git")
        here.issue(1)

    def looking(self, then=""):
        command = f"{sys.executable} {self.folder}/look.py {self.seen} {then or 'look'}"
        return says("openai", "", [call("run_command", {"command": command})])

    def model(self, *replies):
        self.here.script = Script(*replies)
        config = self.folder / "config.yaml"
        text = config.read_text().replace("http://127.0.0.1:9", self.here.script.url)
        config.write_text(text.replace("model: m,", f"model: m-{SECRET},"))
        self.here.settings = load(config, environ={})
        return self.here.script

    def go(self, way, what):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(self.folder), way, what],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        said, closed = done.stdout.splitlines()[-2:]
        assert closed == "log is closed True"
        return said

    def looks(self):
        return [json.loads(line) for line in self.seen.read_text().splitlines()]

    def where(self, way):
        """The base_dir in which the way works."""
        base_dir = self.here.settings.base_dir
        return next((base_dir / "replays").glob("*")) if way == "replay" else base_dir

    def row(self, way, uuid):
        storage = self.here.settings.context_storage.model_copy(update={"base_dir": self.where(way)})
        wiring = Wiring(self.here.settings.model_copy(update={"context_storage": storage}))
        try:
            return wiring.ledger.get(uuid)
        finally:
            wiring.close()


@pytest.fixture
def ways(place):
    made = []

    def make(extra=""):
        made.append(Ways(place(extra)))
        return made[-1]

    yield make
    for one in made:
        one.here.script.close()


FINISH = says("openai", "", [call("finish", {"title": "Done", "summary": "It is done."})])


@pytest.mark.parametrize("way", WAYS)
def test_lock_claim_log_and_end_are_the_same(ways, way):
    home = ways()
    uuid = UUID % 1
    with home.model(home.looking(), FINISH):
        if way == "solve":
            assert home.go("solve", "#1") == "completed"
        else:
            home.here.row(1)
            assert home.go("worker", uuid) == "code 0"
        if way == "replay":
            assert home.go("replay", uuid) == "same True"
    seen = home.looks()[-1]
    uuid = seen["uuid"]
    assert len(home.looks()) == (2 if way == "replay" else 1)
    assert seen["held"]
    row = seen["row"]
    assert (row["status"], row["attempt"]) == ("running", 1)
    assert row["lease_owner"].endswith(f":{row['process_id']}:{row['lease_owner'].rpartition(':')[2]}")
    assert row["lease_until"] > clock.stamp(clock.now() - timedelta(seconds=60))
    assert seen["title"] == f"makimono: {uuid}"
    assert seen["traceable"]
    lines = [json.loads(line) for line in seen["log"].splitlines()]
    assert lines
    assert {line["uuid"] for line in lines} == {uuid}

    ended = home.row(way, uuid)
    assert (ended.status, ended.attempt, ended.lease_owner) == (Status.COMPLETED, 1, None)
    folder = home.where(way) / "completed" / uuid
    kept = (folder / "worker.log").read_text()
    assert SECRET not in kept
    assert '"model":"m-***"' in kept
    assert not durable_files.is_locked(folder / "lock")
    assert not (home.where(way) / "running" / uuid).exists()


@pytest.mark.parametrize("way", WAYS)
def test_an_attempt_that_lost_its_row_leaves_it_to_the_newer_one(ways, way):
    home = ways()
    uuid = UUID % 1
    with home.model(home.looking("fence" if way != "replay" else "look"), FINISH, FINISH):
        if way == "solve":
            said = home.go("solve", "#1")
        elif way == "worker":
            home.here.row(1)
            said = home.go("worker", uuid)
        else:
            home.here.row(1)
            assert home.go("worker", uuid) == "code 0"
            look = home.folder / "look.py"
            look.write_text(look.read_text().replace('sys.argv[2] == "fence"', "True"))
            said = home.go("replay", uuid)
    assert said.startswith("Fenced")
    uuid = home.looks()[-1]["uuid"]
    row = home.row(way, uuid)
    assert (row.status, row.attempt) == (Status.RUNNING, 2), "it is the newer attempt's"
    assert (home.where(way) / "running" / uuid).is_dir()


@pytest.mark.parametrize("way", ["worker", "solve"])
def test_what_cannot_begin_gives_its_row_back_and_its_lock(ways, way):
    """The replica is away, which is asked before anything else of the task."""
    home = ways()
    with home.model(FINISH):
        key = home.here.key(1)
        uuid = home.here.ledger.enqueue(key, uuid=UUID % 1)
        claim = home.here.ledger.claim(uuid, "elsewhere:/b:1:1", 60)
        home.here.wiring.db.execute("UPDATE tasks SET llm_call_count = 3 WHERE uuid = :uuid", uuid=uuid)
        home.here.ledger.release(uuid, claim.attempt)
        (home.folder / "file").write_text("no folder")
        config = home.folder / "config.yaml"
        config.write_text(
            config.read_text().replace("durability: none", f"durability: none, replica: {home.folder}/file/replica")
        )
        said = home.go(way, uuid if way == "worker" else "#1")
    assert said in ("code 3", "queued")
    row = home.here.ledger.get(uuid)
    assert (row.status, row.attempt, row.error_code) == (Status.QUEUED, 2, "replica_away")
    assert clock.parse(row.not_before) > clock.now()
    assert not durable_files.is_locked(home.here.settings.base_dir / "running" / uuid / "lock")


# --- the mechanism itself --------------------------------------------------------------------------------------

HERE = Mode(named=False)


def test_a_held_task_is_nobody_elses(place):
    here = place()
    uuid = here.row(1)
    with hold(here.settings, uuid) as folder:
        assert folder == here.settings.base_dir / "running" / uuid
        with pytest.raises(LockHeld), hold(here.settings, uuid):
            pass
    assert not durable_files.is_locked(folder / "lock")
    assert folder.is_dir()


def test_a_folder_of_a_task_whose_files_lie_elsewhere_goes_with_its_lock(place):
    here = place()
    storage = here.settings.context_storage.model_copy(update={"enabled": False})
    settings = here.settings.model_copy(update={"context_storage": storage})
    with hold(settings, UUID % 1) as folder:
        pass
    assert not folder.exists()
    with hold(settings, UUID % 2) as folder:
        (folder / "messages.jsonl").write_text("of before `enabled` was false")
    assert folder.is_dir()


def test_a_row_that_is_not_free_is_left_as_it_is(place):
    here = place()
    claim = here.claim(1)
    with hold(here.settings, claim.uuid), pytest.raises(ClaimLost, match="is running, held by"):
        attempt(here.wiring, claim.uuid, HERE)
    assert here.ledger.get(claim.uuid).attempt == claim.attempt


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DiskError("full"), Status.QUEUED, "disk"),
        (ConfigError("a key is wrong"), Status.FAILED, "config"),
        (TypeError("a mistake"), Status.FAILED, "bug"),
        (Fenced("a newer attempt"), Status.RUNNING, None),
        (KeyboardInterrupt(), Status.STOPPED, None),
    ],
)
def test_what_comes_before_the_handler_lets_go_of_the_row_and_is_raised(place, error, status, code):
    here = place()
    uuid = here.row(1)
    began = []

    def begin(wiring, claim):
        began.append(claim.uuid)
        raise error

    receive, send = multiprocessing.Pipe(duplex=False)
    with hold(here.settings, uuid), pytest.raises(type(error)):
        attempt(here.wiring, uuid, Mode(named=False, report=send, begin=begin))
    assert began == [uuid]
    assert receive.recv() == CLAIMED
    receive.close()
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code) == (status, code)
    assert log._log.file < 0
