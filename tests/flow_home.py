"""A home for whole runs: repositories, a tracker, a configuration, and a scripted model server.

The daemon and its workers are real processes, git is real, the model is HTTP on loopback.  The model's answer depends
only on the request (the issue, the number of answers so far), so that a run that is interrupted and resumed gets the
right answer.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import quick_start
from length import LONG
from llm_servers import Reply, Script, call, says

from agent.plugin_guard import PluginGuard

ROOT = Path(__file__).resolve().parents[1]
IDENTITY = {
    **{f"GIT_{who}_NAME": "Alice" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "alice@localhost" for who in ("AUTHOR", "COMMITTER")},
}
SECONDS = 90
"""Seconds that a test waits before it fails because something does not happen."""


IDS = itertools.count(1)


def do(name, **arguments):
    """One step of a part: a single call."""
    return "", [call(name, arguments, f"call_{next(IDS)}")]


def finish(title="Done", summary="It is done."):
    return do("finish", title=title, summary=summary)


def write(path, content="x\n"):
    return do("write_file", path=path, content=content)


class Held:
    """A step that blocks the model's answer until the test releases it; `asked` is set when the worker waits.

    Once released it answers at once, also to a worker that resumes the task.
    """

    def __init__(self, step):
        self.step = step
        self.asked = threading.Event()
        self.free = threading.Event()
        self.requests = []

    def __call__(self, request):
        self.requests.append(request.json)
        self.asked.set()
        self.free.wait(SECONDS)
        return self.step

    def arrived(self):
        assert self.asked.wait(SECONDS), "no worker came this far"

    def go(self):
        self.free.set()


class Parts:
    """The model's answers: `plays` maps words of an issue's title to the steps of its conversation.

    A step is (text, calls), a Reply, or a callable of the request that gives one of these.
    """

    def __init__(self, plays):
        self.plays = plays

    def __call__(self, request):
        messages = request.json["messages"]
        briefing = next((one["content"] for one in messages if one["role"] == "user"), "")
        answered = sum(1 for one in messages if one["role"] == "assistant")
        for words, steps in self.plays.items():
            if words in briefing:
                if answered >= len(steps):
                    return Reply({"error": {"message": f"the part {words!r} is over"}}, 400)
                step = steps[answered]
                if callable(step):
                    step = step(request)
                return step if isinstance(step, Reply) else says("openai", step[0], step[1])
        return Reply({"error": {"message": "no part for this issue"}}, 400)


class FlowHome:
    """`folder` with config.yaml, tracker/, and bare repositories in repos/."""

    drain_seconds = 1  # a drain does not wait for a model that a test blocks

    def __init__(self, folder, plays=None, *, server=None, config="", repos=("default",), sandbox="none", url=None):
        self.folder = folder
        self.processes = []
        self.variables = {}  # more environment of the processes
        self.plays = plays or {}
        self.repos = {}
        (folder / "tracker" / "issues").mkdir(parents=True)
        self.server = server or (Script(Parts(self.plays)) if url is None else None)
        for name in repos:
            self.repository(name)
        names = ", ".join(f"{name}: repos/{name}.git" for name in repos)
        self.config = folder / "config.yaml"
        self.config.write_text(
            "task_sources: [local]\n"
            f"local: {{tracker: tracker, repos: {{{names}}}}}\n"
            f"llm: {{provider: openai, openai: {{model: m, context_length: 32000, base_url: '{url or self.server.url}/v1', "
            "api_key: key-of-the-test}}\n"
            "context_storage: {durability: none}\n"
            f"sandbox: {{kind: {sandbox}}}\n"
            f"{config}"
        )

    # --- the home --------------------------------------------------------------------------------------------

    def repository(self, name, files=None, branch="main"):
        """A bare repository with one commit; `files` {} leaves it empty."""
        path = self.folder / "repos" / f"{name}.git"
        git("init", "-q", "--bare", "-b", branch, str(path), cwd=self.folder)
        self.repos[name] = path
        if files is None:
            files = {"calc.py": "def total(prices):\n    return sum(round(p) for p in prices)\n", "README.md": "# It\n"}
        if files:
            self.commit(name, files, branch)
        return path

    def commit(self, name, files, branch="main", message="First"):
        work = self.folder / f"work-{name}-{branch.replace('/', '-')}-{time.monotonic_ns()}"
        git("clone", "-q", str(self.repos[name]), str(work), cwd=self.folder)
        git("checkout", "-q", "-B", branch, cwd=work)
        for path, content in files.items():
            target = work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        git("add", "-A", cwd=work)
        git("commit", "-q", "-m", message, cwd=work)
        git("push", "-q", "origin", branch, cwd=work)

    def issue(self, number, title, body="Please.", **head):
        labels = head.pop("labels", "[coding agent]")
        lines = [f"title: {json.dumps(title)}", f"labels: {labels}", "author: alice", "state: open"]
        lines += [f"{key}: {value}" for key, value in head.items()]
        text = "\n".join(["---", *lines, "---", body]) + "\n"
        self.issue_path(number).write_text(text)

    def issue_path(self, number):
        return self.folder / "tracker" / "issues" / f"{number}.md"

    def comment(self, number, body, author="alice"):
        """Append a line, as a person's editor does."""
        path = self.folder / "tracker" / "issues" / f"{number}.comments.jsonl"
        ids = [one["id"] for one in self.comments(number)]
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        line = {"id": max(ids, default=0) + 1, "author": author, "body": body, "created_at": now, "updated_at": now}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    # --- the result ------------------------------------------------------------------------------------------

    def label(self, number):
        found = re.search(r"^labels: \[?(.*?)\]?$", self.issue_path(number).read_text(), re.MULTILINE)
        return found[1]

    def comments(self, number):
        path = self.folder / "tracker" / "issues" / f"{number}.comments.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def said(self, number):
        """The bot's comments of an issue that are not the progress comment."""
        return [
            one["body"]
            for one in self.comments(number)
            if one["author"] == "makimono" and ":progress -->" not in one["body"]
        ]

    def progress(self, number):
        return [one["body"] for one in self.comments(number) if ":progress -->" in one["body"]]

    def pulls(self):
        folder = self.folder / "tracker" / "pulls"
        return [path.read_text() for path in sorted(folder.glob("*.md"))] if folder.is_dir() else []

    def branches(self, name="default"):
        out = git("for-each-ref", "--format=%(refname:short)", "refs/heads", cwd=self.repos[name])
        return out.split()

    def show(self, what, name="default"):
        return git("show", what, cwd=self.repos[name])

    @property
    def contexts(self):
        return self.folder / "contexts"

    def rows(self):
        """The rows of tasks.db, by number of the issue."""
        if not (self.contexts / "tasks.db").exists():
            return {}
        from pysqlite3 import dbapi2 as sqlite3

        with_names = sqlite3.connect(self.contexts / "tasks.db", timeout=30)
        with_names.row_factory = sqlite3.Row
        try:
            return {
                int(row["task_id"]): dict(row)
                for row in with_names.execute("SELECT * FROM tasks ORDER BY created_at").fetchall()
            }
        except sqlite3.OperationalError:  # not migrated yet
            return {}
        finally:
            with_names.close()

    def half_a_minute_later(self):
        """Make queued rows due: after the death of its daemon an unoffered row waits for that long."""
        from pysqlite3 import dbapi2 as sqlite3

        connection = sqlite3.connect(self.contexts / "tasks.db", timeout=30, isolation_level=None)
        connection.execute("UPDATE tasks SET not_before = NULL WHERE status = 'queued'")
        connection.close()

    def row(self, number):
        return self.rows().get(number, {})

    def kept(self, number):
        """The folder of a task."""
        uuid = self.row(number)["uuid"]
        return next(path for name in ("running", "completed") if (path := self.contexts / name / uuid).exists())

    def lines(self, number, name):
        path = self.kept(number) / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def main(self):
        return ROOT / "main.py"

    @property
    def environment(self):
        return {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TZ", "TMPDIR")} | {
            "HOME": str(self.folder)
        }

    # --- running ---------------------------------------------------------------------------------------------

    def run(self, *args, code=None):
        """Run main.py to its end; returns (exit code, stdout + stderr)."""
        process = self.start(*args)
        text = finished(process)
        if code is not None:
            assert process.returncode == code, f"exit {process.returncode}\n{text}"
        return process.returncode, text

    def pin(self, *plug_ins):
        """Pin the plug-ins of config.yaml by the command, or those that are named in this process."""
        if plug_ins:
            PluginGuard(self.folder).pin(plug_ins)
        else:
            self.run("plugins", "pin", code=0)

    def once(self, code=0):
        return self.run("run", "--once", code=code)[1]

    def start(self, *args, config=None, program=(), **more):
        """A run of `main.py`, or of `program`, as a process.  `more` is for `subprocess.Popen`."""
        args = [*args, "--config", str(config or self.config)]
        env = {
            **self.environment,
            "AGENT__SCHEDULING__DRAIN_SECONDS": str(self.drain_seconds),
            **self.variables,
        }
        if program or more or LONG:
            process = subprocess.Popen(
                [sys.executable, *(program or (str(self.main),)), *args],
                cwd=self.folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                **more,
            )
        else:
            process = quick_start.start(args, cwd=self.folder, env=env)
        self.processes.append(process)
        return process

    def workers(self):
        """Processes of this home's tasks, by uuid."""
        found = {}
        uuids = {row["uuid"] for row in self.rows().values()}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            for uuid in uuids:
                if title.startswith(f"makimono: {uuid}"):
                    found.setdefault(uuid, []).append(int(entry.name))
        return found

    def worker(self, number):
        """The one process of a task, None when there is none."""
        pids = self.workers().get(self.row(number).get("uuid"), [])
        return pids[0] if pids else None

    def close(self):
        for steps in self.plays.values():
            for step in steps:
                if isinstance(step, Held):
                    step.go()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            if process.stdout:
                process.stdout.close()
        for pids in self.workers().values():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if self.server is not None:
            self.server.close()


def finished(process, seconds=SECONDS):
    """Output of a process that is about to end."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it did not end\n{process.communicate()[0]}") from None


def until(true, what="it", seconds=SECONDS, process=None):
    """Wait until `true()` is true; returns its value.  Fails at once, with its output, if `process` has ended before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        over = process is not None and process.poll() is not None
        if value := true():
            return value
        if over:
            raise AssertionError(f"{what} did not happen, exit {process.returncode}\n{process.communicate()[0]}")
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen in {seconds} s")


def said(process, what, seconds=SECONDS):
    """The next line on the process's stdout that contains the word `what`, or for which `what(line)` is true.  A silent
    process is killed, because a read of a pipe has no time-out of its own."""
    wanted = what if callable(what) else lambda line: what in line
    guard = threading.Timer(seconds, process.kill)
    guard.start()
    try:
        for line in iter(process.stdout.readline, ""):
            if wanted(line):
                return line
    finally:
        guard.cancel()
    raise AssertionError(f"{what!r} was not said in {seconds} s")


def git(*args, cwd):
    done = subprocess.run(
        ["git", *args],
        cwd=cwd,
        env={**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout.decode("utf-8", "replace")
