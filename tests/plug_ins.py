"""One plug-in of every kind that the configuration accepts as a dotted path, each as small as a user would write it."""

import json
from pathlib import Path

from agent.forge.local.forge import LocalForge
from agent.llm.openai import OpenAIClient
from agent.sandbox.unconfined import Unconfined
from agent.window.strategies import Hybrid


class Tracker(LocalForge):
    """A source of tasks with a name of its own."""

    source = "toy"


class Client(OpenAIClient):
    """A model's client."""


class Box(Unconfined):
    """A sandbox."""


class Strategy(Hybrid):
    """A means of compaction."""


class Memory:
    """A layer of long-term memory."""

    def __init__(self, settings):
        pass

    def recall(self, query, limit):
        return [{"content": "Totals are never rounded.", "source": "toy", "relevance": 1.0}][:limit]


class Pointer:
    """A message of `Broker`."""

    def __init__(self, path):
        self.path = path
        self.uuid = json.loads(path.read_text())["uuid"]

    def ack(self):
        self.path.unlink(missing_ok=True)


class Broker:
    """A queue of files in the process's start folder."""

    where = "files"

    def __init__(self):
        self.folder = Path.cwd() / "queue"
        self.given = set()

    def connect(self):
        self.folder.mkdir(exist_ok=True)
        self.given = set()

    def publish(self, pointer):
        (self.folder / pointer["uuid"]).write_text(json.dumps(dict(pointer)))

    def get(self):
        waiting = [path for path in sorted(self.folder.iterdir()) if path.name not in self.given]
        if not waiting:
            return None
        self.given.add(waiting[0].name)
        return Pointer(waiting[0])

    def depth(self):
        return len([path for path in self.folder.iterdir() if path.name not in self.given])

    def close(self):
        pass
