"""A long task on a small window, against a server that enforces it by its own count: the whole program, real processes.

300 turns in the ordinary run.  MAKIMONO_LONG=1 makes it 2,000, with the byte-class counter and with tiktoken (a few
minutes); the figures of docs/window.md are from that.
"""

import json
import os
import re
from pathlib import Path

import pytest
from flow_home import FlowHome
from strict_server import StrictServer

from agent.context import projection

LONG = os.environ.get("MAKIMONO_LONG") == "1"
TURNS = 2000 if LONG else 300
TASK = "RULE 7: never touch setup.py. Keep notes of every file in notes/ and then finish."
WORDS = (
    "The scroll is written once, from the right to the left, and unrolled again whenever somebody needs it. "
    "メモリは会話とともに増えません。すべてはディスクの上にあります。 def total(prices): return sum(prices)\n"
)


def play(messages, number):
    """Reads, searches, lists, writes; a few calls at once now and then; `finish` at the end."""
    if number >= TURNS - 1:
        return "All notes are kept.", [("finish", {"title": "Notes", "summary": "Every file has its note."})]
    name = f"src/part{number % 7}.py"
    kind = number % 6
    if kind == 0:
        return f"Reading {name}.", [("read_file", {"path": name, "offset": 1 + number % 40, "limit": 20 + number % 30})]
    if kind == 1:
        return "", [("write_file", {"path": f"notes/{number % 50}.md", "content": f"{number}: {WORDS}"})]
    if kind == 2:
        return "Three at once.", [
            ("read_file", {"path": name, "offset": number % 30 + 1, "limit": 12}),
            ("search_text", {"pattern": f"value_{number % 90}", "path": "src"}),
            ("list_files", {"path": "src", "pattern": "*.py"}),
        ]
    if kind == 3:
        return "", [("search_text", {"pattern": f"line {number % 100} ", "path": "src"})]
    if kind == 4:
        return f"Turn {number}: going on.", [("list_files", {"path": ".", "pattern": f"*{number % 9}*"})]
    return "", [("update_plan", {"items": [{"step": f"file {number % 7}", "status": "in_progress"}]})]


def sources():
    files = {
        f"src/part{part}.py": "".join(
            f"value_{n} = {n * part}  # line {n} of part {part}: 価格の合計を計算する\n" for n in range(120)
        )
        for part in range(7)
    }
    return {**files, "README.md": "# Parts\n"}


class Watch:
    """Looks at the task at every request, while its worker waits for the answer."""

    def __init__(self):
        self.home = None
        self.folder = None
        self.wrong = []
        self.pid = None
        self.peak = 0
        self.window = 0

    def __call__(self, body, raw):
        if self.folder is None:
            [self.folder] = [path for path in (self.home.contexts / "running").iterdir() if path.is_dir()]
            self.pid = self.home.worker(1)
        if TASK not in body["messages"][1]["content"]:
            self.wrong.append("the task text is not in the request")
        derived = b"".join(data for data, _ in projection.lines(self.folder))
        if derived != (self.folder / "current.jsonl").read_bytes():
            self.wrong.append("the view is not what the facts say")
        lines = [json.dumps(one) for one in body["messages"]]
        if lines != [json.dumps(json.loads(line)) for line in derived.splitlines()]:
            self.wrong.append("the request is not the view")
        status = Path(f"/proc/{self.pid}/status").read_text() if self.pid else ""
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            self.peak = int(found[1])


def run(folder, model):
    watch = Watch()
    server = StrictServer(8192, play, on_request=watch)
    home = FlowHome(folder, server=server, url=server.url.removesuffix("/v1"))
    watch.home = home
    home.commit("default", sources())
    config = home.config.read_text()
    config = config.replace("model: m, context_length: 32000", f"model: {model}, context_length: 8192")
    home.config.write_text(config + f"limits: {{turns: {2 * TURNS}, wall_seconds: 7200}}\n")
    home.issue(1, "Take notes", TASK)
    process = home.start("run", "--once")
    out, _ = process.communicate(timeout=3600)
    assert process.returncode == 0, out
    return home, server, watch


@pytest.mark.parametrize("model", ["phi4", *(["gpt-4o"] if LONG else [])])
def test_a_long_task_on_a_small_window_never_sends_what_does_not_fit(tmp_path, model):
    home, server, watch = run(tmp_path, model)
    try:
        assert server.refused == []
        assert server.turns == TURNS
        assert watch.wrong == []
        row = home.row(1)
        assert row["status"] == "completed"
        strategies = [one["strategy"] for one in home.lines(1, "compactions.jsonl")]
        assert len(strategies) > TURNS // 60
        vocabulary = 0 if model == "phi4" else 100
        print(
            f"{model}: {server.turns} turns, largest prompt {max(server.counts)}, {len(strategies)} compactions, "
            f"{server.summaries} summary requests, peak of the worker {watch.peak / 1024:.1f} MiB"
        )
        assert 0 < watch.peak < (64 + vocabulary) * 1024
    finally:
        home.close()
