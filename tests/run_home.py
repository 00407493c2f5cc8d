"""Settings, a tracker and a ledger in a folder, for tests of the rooms around a run."""

import json
import os
import tempfile
from functools import cache
from pathlib import Path

from agent.config import load
from agent.observe.events import Events
from agent.store.db import TASKS, open_tasks
from agent.wiring.wiring import Wiring

UUID = f"{os.getpid():08x}-0000-4000-8000-00000000000%d"
"""Unique to this process: ending a task's tree kills every process with its uuid, even one of a test that runs beside
this one."""


@cache
def empty_ledger():
    """The bytes of a tasks.db without rows.  Its migrations are applied once, not in each test: they take 6 ms."""
    with tempfile.TemporaryDirectory() as folder:
        open_tasks(Path(folder)).close()
        return (Path(folder) / TASKS).read_bytes()


class Place:
    """`folder` with a tracker and a base_dir; `said` are the emitted events."""

    def __init__(self, folder, extra=""):
        self.folder = folder
        (folder / "tracker" / "issues").mkdir(parents=True)
        (folder / "config.yaml").write_text(
            "llm: {provider: openai, openai: {model: m, context_length: 32000, base_url: 'http://127.0.0.1:9/v1', api_key: key-of-the-test}}\n"
            "local: {tracker: tracker, repos: {default: repo.git}}\n"
            "context_storage: {durability: none}\n" + ("" if "sandbox:" in extra else "sandbox: {kind: none}\n") + extra
        )
        self.settings = load(folder / "config.yaml", environ={})
        self.said = []
        self.events = Events([lambda name, fields: self.said.append((name, dict(fields)))])
        self.wiring = Wiring(self.settings, events=self.events)

    def shared(self):
        """Set the settings to a ledger that hosts share; the rows stay in tasks.db.  Returns itself."""
        assert self.ledger.list() is not None  # opens it
        queue = self.settings.taskqueue.model_copy(update={"ledger": "postgresql://db.example/makimono"})
        self.settings = self.wiring.settings = self.settings.model_copy(update={"taskqueue": queue})
        return self

    def named(self, name):
        return [fields for said, fields in self.said if said == name]

    @property
    def ledger(self):
        file = self.settings.base_dir / TASKS
        if "ledger" not in vars(self.wiring) and self.settings.taskqueue.ledger == "sqlite" and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(0o600)
            file.write_bytes(empty_ledger())
        return self.wiring.ledger

    @property
    def forge(self):
        return self.wiring.forges[0]

    def issue(self, number, title="An issue", label="coding agent", state="open", body="Please."):
        path = self.folder / "tracker" / "issues" / f"{number}.md"
        path.write_text(f"---\ntitle: {title}\nlabels: [{label}]\nauthor: alice\nstate: {state}\n---\n{body}\n")
        return path

    def comment(self, number, body, author="alice", ident=100):
        path = self.folder / "tracker" / "issues" / f"{number}.comments.jsonl"
        at = "2026-01-31T09:15:00.000000Z"
        line = {"id": ident, "author": author, "body": body, "created_at": at, "updated_at": at}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def key(self, number):
        return {
            "task_source": "local",
            "instance": self.forge.instance,
            "owner": "local",
            "repo": "default",
            "task_type": "issue",
            "task_id": str(number),
        }

    def row(self, number):
        """Add a queued row; returns its uuid."""
        return self.ledger.enqueue(self.key(number), uuid=UUID % number, user="alice", title=f"Issue {number}")

    def claim(self, number):
        uuid = self.row(number)
        return self.ledger.claim(uuid, self.wiring.owner, 60)

    def close(self):
        self.wiring.close()
