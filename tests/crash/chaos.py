"""Random kill -9 of daemons and workers while tasks run, and the checks afterwards.

A `Chaos` has hosts (a base_dir, a configuration and, as root, a host name each), one tracker, one repository and one
scripted model.  Two oracles do not depend on the program's own lock: the commands of a task hold an flock on a file
outside, and the model's server detects two open requests of one task.  At the end the results in the tracker, the
repository and the rows are counted.
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import quick_start
from flow_home import ROOT, FlowHome, do, finish, until
from hosts import named
from length import LONG
from llm_servers import Script, says

from agent.context.message_records import INTERRUPTED

KILLS_OF_A_TASK = 2
"""At the third death without progress the program gives a task up, which is not tested here."""
STALL = 240.0
"""Seconds without the end of any task after which the remaining tasks count as lost."""
TITLE = re.compile(r"Chaos task (\d+)\b")


class WatchedModel(Script):
    """Plays the same part for every task, and records two open requests of one task."""

    def __init__(self, steps, latency):
        self.steps = steps
        self.latency = latency
        self.live = {}
        self.twice = []
        self.guard = threading.Lock()
        super().__init__(self.step)

    def answer(self, handler, body):
        found = TITLE.search(body.decode("utf-8", "replace"))
        if found is None:
            super().answer(handler, body)
            return
        number, mine = found[1], handler.connection
        with self.guard:
            others = self.live.setdefault(number, [])
            others[:] = [other for other in others if is_open(other)]
            if others:
                self.twice.append(f"task {number}: {mine.getpeername()} while {others[0].getpeername()} is served")
            others.append(mine)
        try:
            super().answer(handler, body)
        finally:
            with self.guard:
                if mine in self.live[number]:
                    self.live[number].remove(mine)

    def step(self, request):
        self.journal.clear()  # two hundred tasks need no journal
        self.released.wait(self.latency)
        messages = request.json["messages"]
        number = TITLE.search(json.dumps(messages))[1]
        answered = sum(1 for one in messages if one["role"] == "assistant")
        step = self.steps[min(answered - unwritten(messages), len(self.steps) - 1)]
        return says("openai", *step(number))


def unwritten(messages):
    """The number of interrupted calls that should write a file.  The program reports that such a call may not have
    happened; the model then repeats it, as a real model would.  A command is never repeated."""
    names = {call["id"]: call["function"]["name"] for one in messages for call in one.get("tool_calls") or ()}
    results = [one for one in messages if one["role"] == "tool" and INTERRUPTED in one["content"]]
    return sum(1 for one in results if names[one["tool_call_id"]] == "write_file")


def is_open(connection):
    """Whether the other side of a connection is still open."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@dataclass
class Host:
    """A simulated host."""

    name: str
    config: Path
    log: Path
    daemon: subprocess.Popen | quick_start.Started | None = None
    said: int = 0
    """Bytes of the log that earlier daemons wrote."""

    def start(self):
        argv = ["run", "--config", str(self.config)]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.config.parent), "LANG": "C.UTF-8"}
        with self.log.open("a") as log:
            self.said = log.tell()
            if named(self.name) and not LONG:
                self.daemon = quick_start.start(argv, cwd=self.config.parent, env=env, files=(log, log), host=self.name)
                return
            self.daemon = subprocess.Popen(
                [*named(self.name), sys.executable, str(ROOT / "main.py"), *argv],
                cwd=self.config.parent,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_up(self):
        """Whether the daemon has started far enough for a SIGTERM to drain it; before that, SIGTERM ends the
        interpreter."""
        return b"daemon_started" in self.log.read_bytes()[self.said :]

    @property
    def contexts(self):
        return self.config.parent / "contexts"


@dataclass
class Told:
    """The result of a run; a line of the table."""

    name: str
    seed: int
    tasks: int
    starts: int = 0
    daemons: int = 0
    workers: int = 0
    once: int = 0
    lost: list = field(default_factory=list)
    twice: list = field(default_factory=list)
    effects: list = field(default_factory=list)
    unreadable: list = field(default_factory=list)
    spoilt: list = field(default_factory=list)
    """Why the run proves nothing: the program's files changed meanwhile, and its daemons started no more workers."""
    seconds: float = 0.0

    def __str__(self):
        return (
            f"| {self.name} | {self.seed} | {self.tasks} | {self.starts} | {self.daemons} | {self.workers} | {self.once} | "
            f"{len(self.lost)} | {len(self.twice)} | {len(self.effects)} | {len(self.unreadable)} | {self.seconds:.0f} s |"
        )


HEAD = (
    "| back ends | seed | tasks | starts | daemons killed | workers killed | finished once | lost | twice at once | "
    "effects twice | unreadable | took |"
)


class Chaos:
    """`rows()` returns the rows; `hosts` is their number; `taskqueue` is that section of config.yaml; `least` is the
    number of kills, one of them of a worker, before the killing may end."""

    def __init__(
        self, folder, name, *, tasks, seed, least, hosts=1, at_once=4, latency=0.1, command=0.3, taskqueue="", rows=None
    ):
        self.folder = folder
        self.oracle = folder / "oracle"
        self.oracle.mkdir(parents=True)
        self.told = Told(name, seed, tasks)
        self.least = least
        self.random = random.Random(seed)
        self.killed = Counter()
        self.command = command
        steps = [self.holding("first"), lambda n: do("write_file", path=f"done-{n}.txt", content=f"{n}\n")]
        steps += [self.holding("second"), lambda n: finish(f"Chaos {n} done", f"Task {n} is done.")]
        self.model = WatchedModel(steps, latency)
        self.home = FlowHome(folder / "home", server=self.model)
        text = self.home.config.read_text()
        text = text.replace("tracker: tracker", f"tracker: {self.home.folder}/tracker")
        text = text.replace("repos/default.git", f"{self.home.folder}/repos/default.git")
        text += f"scheduling: {{max_workers: {at_once}, interval: 3}}\n{taskqueue}"
        self.hosts = []
        for number in range(1, hosts + 1):
            place = folder / f"host-{number}"
            place.mkdir()
            (place / "config.yaml").write_text(text)
            self.hosts.append(Host(f"host-{number}", place / "config.yaml", place / "daemon.log"))
        self.home.config = self.hosts[0].config
        self.rows = rows or self.sqlite_rows
        for number in range(1, tasks + 1):
            self.home.issue(number, f"Chaos task {number}")

    def holding(self, which):
        """A command that holds an flock of the task on a file outside, and records when it does not get the lock."""

        def step(number):
            lock, log = self.oracle / f"{number}.lock", self.oracle / "starts"
            return do(
                "run_command",
                command=(
                    f"exec 9>>{lock}; flock -n 9 || echo {number} {which} >> {self.oracle}/twice; "
                    f'echo "{number} {which} $PWD" >> {log}; sleep {self.command}'
                ),
            )

        return step

    def sqlite_rows(self):
        from pysqlite3 import dbapi2 as sqlite3

        path = self.hosts[0].contexts / "tasks.db"
        if not path.exists():
            return []
        connection = sqlite3.connect(path, timeout=60)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute("SELECT * FROM tasks")]
        except sqlite3.OperationalError:  # not migrated yet
            return []
        finally:
            connection.close()

    # --- while it runs ---------------------------------------------------------------------------------------

    def run(self, seconds):
        """Kill for so many seconds, then wait until all tasks have ended; returns the counts."""
        started = time.monotonic()
        for host in self.hosts:
            host.start()
        try:
            self.kill_for(seconds)
            self.settle()
            self.stop()
            self.count()
        finally:
            self.close()
        self.told.seconds = time.monotonic() - started
        return self.told

    def kill_for(self, seconds):
        until(self.rows, "the first row", 120)
        end = time.monotonic() + seconds
        while (time.monotonic() < end or not self.is_enough()) and any(is_open_row(row) for row in self.rows()):
            time.sleep(self.random.uniform(0.2, 1.0))
            if self.random.random() < 0.25:
                host = self.random.choice(self.hosts)
                host.daemon.kill()
                host.daemon.wait()
                self.told.daemons += 1
                time.sleep(self.random.uniform(0.0, 1.0))
                host.start()
            else:
                self.kill_a_worker()

    def is_spoilt(self):
        for host in self.hosts:
            told = re.search(r"code_changed why=\"([^\"]*)", host.log.read_text(errors="replace"))
            if told is not None:
                self.told.spoilt.append(f"{host.name}: {told[1]}")
        return bool(self.told.spoilt)

    def is_enough(self):
        """Whether there were enough kills: on a busy machine the first worker may start after `seconds` are over."""
        return self.told.workers > 0 and self.told.daemons + self.told.workers >= self.least

    def kill_a_worker(self):
        """Kill one worker of a task that may still die, at a random moment of its life."""
        workers = sorted((uuid, pid) for uuid, pid in self.workers() if self.killed[uuid] < KILLS_OF_A_TASK)
        if not workers:
            return
        uuid, pid = self.random.choice(workers)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed[uuid] += 1
        self.told.workers += 1

    def workers(self):
        uuids = {row["uuid"] for row in self.rows()}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    title = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
                except OSError:
                    continue
                uuid = title.removeprefix("makimono: ")[:36]
                if title.startswith("makimono: ") and uuid in uuids and leads(int(entry.name)):
                    yield uuid, int(entry.name)

    def settle(self):
        """Wait until every task has ended, as long as tasks end now and then, and until the folders of tasks that
        continued on another host are put away."""
        left, moved = None, time.monotonic()
        while time.monotonic() - moved < STALL and not self.is_spoilt():
            rows = self.rows()
            now = sum(is_open_row(row) for row in rows) + self.told.tasks - len(rows)
            if now == 0 and not self.running_folders():
                return
            if now != left:
                left, moved = now, time.monotonic()
            time.sleep(0.3)

    def running_folders(self):
        return [path for host in self.hosts for path in host.contexts.glob("running/*")]

    def stop(self):
        for host in self.hosts:
            until(host.is_up, f"the last start of {host.name}", 120)
            host.daemon.send_signal(signal.SIGTERM)
        for host in self.hosts:
            code = host.daemon.wait(120)
            if code != 0:
                self.told.unreadable.append(f"{host.name} ended with {code}")

    def close(self):
        for host in self.hosts:
            if host.daemon is not None and host.daemon.poll() is None:
                host.daemon.kill()
                host.daemon.wait()
        for _, pid in list(self.workers()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.home.close()

    # --- the result ------------------------------------------------------------------------------------------

    def count(self):
        told, rows = self.told, self.rows()
        told.starts = sum(row["attempt"] for row in rows)
        of_number = Counter(int(row["task_id"]) for row in rows)
        told.lost += [f"task {n} has no row" for n in range(1, told.tasks + 1) if not of_number[n]]
        told.lost += [
            f"{row['task_id']} is {row['status']}: {row['error_message']}"
            for row in rows
            if row["status"] != "completed"
        ]
        told.once = sum(1 for row in rows if row["status"] == "completed" and of_number[int(row["task_id"])] == 1)
        told.effects += [f"task {n} has {count} rows" for n, count in of_number.items() if count != 1]
        told.twice += self.model.twice
        told.twice += (self.oracle / "twice").read_text().splitlines() if (self.oracle / "twice").exists() else []
        ran = Counter((self.oracle / "starts").read_text().splitlines())
        told.twice += [f"run {count} times: {line}" for line, count in ran.items() if count != 1]
        self.count_effects()
        for host in self.hosts:
            self.read_files(host)
        told.unreadable += [f"left: {path}" for path in self.running_folders()]

    def count_effects(self):
        told = self.told
        branches = Counter(name.split("/")[1].split("-")[0] for name in self.home.branches() if "/" in name)
        pulls = Counter(re.search(r"^issue: (\d+)", text, re.MULTILINE)[1] for text in self.home.pulls())
        for n in range(1, told.tasks + 1):
            seen = {
                "branches": branches[str(n)],
                "pull requests": pulls[str(n)],
                "final comments": len(self.home.said(n)),
                "progress comments": len(self.home.progress(n)),
            }
            told.effects += [f"task {n}: {count} {what}" for what, count in seen.items() if count != 1]
            if self.home.label(n) != "coding agent done":
                told.effects.append(f"task {n} has the label {self.home.label(n)!r}")

    def read_files(self, host):
        """Check that every line of every file of facts is JSON, and that messages have no gap."""
        for path in sorted(host.contexts.glob("*/*/*.jsonl")):
            try:
                lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            except ValueError as error:
                self.told.unreadable.append(f"{path}: {error}")
                continue
            if path.name == "messages.jsonl" and [one["seq"] for one in lines] != list(range(1, len(lines) + 1)):
                self.told.unreadable.append(f"{path}: the numbers have gaps")
        for word in ("Traceback", "database is locked"):
            if word in (text := host.log.read_text(errors="replace")):
                self.told.unreadable.append(f"{host.log}: {text[text.index(word) :][:2000]}")


def leads(pid):
    """Whether it is the worker itself, and not a forked child that has not begun its own program."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def is_open_row(row):
    return row["status"] in ("queued", "running", "paused")
