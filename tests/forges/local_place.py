"""A tracker in a folder, and people with an editor (see `contract/forge_places.py`)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import ClassVar

from agent.forge.local.forge import LocalForge
from agent.values import TaskKey


def local_settings(root, **changes):
    """The part of the settings that a forge reads, for the tracker `root/tracker`."""
    section = {
        "tracker": root / "tracker",
        "repos": {"default": root / "code", "other": root / "other"},
        "bot_name": "makimono",
        "bot_label": "coding agent",
        "processing_label": "coding agent processing",
        "done_label": "coding agent done",
        "paused_label": "coding agent paused",
        "stopped_label": "coding agent stopped",
        "failed_label": "coding agent failed",
        "max_file_size": None,
    }
    return SimpleNamespace(root=root, local=SimpleNamespace(**section | changes))


class LocalPlace:
    """People with an editor in the tracker's folder."""

    lacks: ClassVar[dict[str, str]] = {
        "addresses": "issues of the local tracker are files, without an address of the web"
    }

    def __init__(self, root):
        self.tracker = root / "tracker"
        (self.tracker / "issues").mkdir(parents=True, exist_ok=True)
        self.forge = LocalForge(local_settings(root))
        self.number = 0

    def again(self):
        """A new adapter, as of another process."""
        return LocalForge(local_settings(self.tracker.parent))

    def issue(
        self, title="Fix it", body="It is broken.\n", labels=("coding agent",), author="alice", state="open", base=None
    ):
        self.number += 1
        lines = [
            f"title: {json.dumps(title)}",
            f"labels: {json.dumps(list(labels))}",
            f"author: {author}",
            f"state: {state}",
        ]
        lines += [f"base: {base}"] if base else []
        text = "---\n" + "\n".join(lines) + "\n---\n" + body
        (self.tracker / f"issues/{self.number}.md").write_bytes(text.encode())
        return TaskKey("local", "local", "default", "issue", str(self.number), self.forge.instance)

    def _change(self, key, old, new):
        path = self.tracker / f"issues/{key.task_id}.md"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def put_labels(self, key, *labels):
        import re

        path = self.tracker / f"issues/{key.task_id}.md"
        path.write_text(re.sub(r"labels: .*", lambda _: f"labels: {json.dumps(list(labels))}", path.read_text()))

    def labels(self, key):
        return sorted(self.again().read_issue(key).labels)

    def close_issue(self, key):
        self._change(key, "state: open", "state: closed")

    def remove_issue(self, key):
        (self.tracker / f"issues/{key.task_id}.md").unlink()

    def _comments(self, key):
        return self.tracker / f"issues/{key.task_id}.comments.jsonl"

    def comment(self, key, body, author="alice"):
        path = self._comments(key)
        old = path.read_text() if path.exists() else ""
        number = old.count("\n") + 1
        record = {
            "id": number,
            "author": author,
            "body": body,
            "created_at": "2026-01-31T09:00:00Z",
            "updated_at": "2026-01-31T09:00:00Z",
        }
        path.write_text(old + json.dumps(record) + "\n")
        return str(number)

    def edit_comment(self, key, number, body):
        path = self._comments(key)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[int(number) - 1]["body"] = body
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def remove_comment(self, key, number):
        path = self._comments(key)
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["id"] != int(number)]
        path.write_text("".join(line + "\n" for line in lines))

    def comments(self, key):
        """(author, body) of every comment, oldest first."""
        path = self._comments(key)
        lines = path.read_text().splitlines() if path.exists() else []
        return [(record["author"], record["body"]) for record in map(json.loads, lines)]

    def branch(self, name):
        """Does nothing: branches are pushed to the repository, which the tracker does not read."""

    def close(self):
        """Does nothing: no process runs."""

    def close_pull(self, pull):
        path = self.tracker / f"pulls/{pull.id}.md"
        path.write_text(path.read_text().replace("state: open", "state: closed"))

    def pull_body(self, pull):
        return (self.tracker / f"pulls/{pull.id}.md").read_text().split("---\n", 2)[2].strip()

    def pulls(self):
        return len(list((self.tracker / "pulls").glob("*.md"))) if (self.tracker / "pulls").exists() else 0
