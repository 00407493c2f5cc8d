"""Layers of long-term memory as in a third-party package: `assembler.memory` names them by dotted path."""

import json


class Notes:
    """The lines of notes.jsonl beside contexts/; each query is appended to asked.jsonl there."""

    def __init__(self, settings):
        self.folder = settings.base_dir.parent

    def recall(self, query, limit):
        with (self.folder / "asked.jsonl").open("a") as file:
            file.write(json.dumps({"query": query, "limit": limit}) + "\n")
        return [json.loads(line) for line in (self.folder / "notes.jsonl").read_text().splitlines()]


class Broken(Notes):
    """A layer that fails at each query."""

    def recall(self, query, limit):
        raise RuntimeError("the index is damaged")


class Unbuildable:
    """A layer that cannot be constructed."""

    def __init__(self, settings):
        raise TypeError("no such store")
