"""Layers of long-term memory as somebody else's package would bring them: named by dotted path in `assembler.memory`."""

import json


class Notes:
    """Lines of notes.jsonl beside contexts/; what was asked is added to asked.jsonl there."""

    def __init__(self, settings):
        self.folder = settings.base_dir.parent

    def recall(self, query, limit):
        with (self.folder / "asked.jsonl").open("a") as file:
            file.write(json.dumps({"query": query, "limit": limit}) + "\n")
        return [json.loads(line) for line in (self.folder / "notes.jsonl").read_text().splitlines()]


class Broken(Notes):
    """One that cannot be asked."""

    def recall(self, query, limit):
        raise RuntimeError("the index is damaged")


class Unbuildable:
    """One that cannot even be made."""

    def __init__(self, settings):
        raise TypeError("no such store")
