"""A long task on a small window, against a server that enforces it by its own count: the whole program, real processes.

300 turns in the ordinary run.  MAKIMONO_LONG=1 makes it 2,000, with the byte-class counter and with tiktoken (a few
minutes); the figures of docs/window.md are from that.
"""

import json
import os
import re
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from flow_home import FlowHome, until
from strict_server import StrictServer

from agent.context import projection

LONG = os.environ.get("MAKIMONO_LONG") == "1"
TURNS = 2000 if LONG else 300
TASK = "RULE 7: never touch setup.py. Keep notes of every file in notes/ and then finish."
WORDS = (
    "The scroll is written once, from the right to the left, and unrolled again whenever somebody needs it. "
    "メモリは会話とともに増えません。すべてはディスクの上にあります。 def total(prices): return sum(prices)\n"
)


def play(messages, number, turns=TURNS):
    """Reads, searches, lists, writes; a few calls at once now and then; `finish` at the end."""
    if number >= turns - 1:
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
        self.before = b""
        self.compactions = 0
        self.port = 0
        self.metrics = ""
        self.shares = []

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
        self.prefix(raw)
        if self.port and len(self.shares) == 40:
            self.metrics = until(self.told, "that the metrics are fed")
        status = Path(f"/proc/{self.pid}/status").read_text() if self.pid else ""
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            self.peak = int(found[1])

    def told(self):
        """GET /metrics of the daemon, once its follower has read the worker's log."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return text if "memory_layer_usage_total{" in text else ""

    def prefix(self, raw):
        """How much of the last request stands at the start of this one, compactions aside."""
        path = self.folder / "compactions.jsonl"
        compactions = path.read_bytes().count(b"\n") if path.exists() else 0
        if self.before and compactions == self.compactions:
            same = os.path.commonprefix([self.before, raw])  # noqa: RUF071 - byte by byte is meant
            self.shares.append(len(same) / len(self.before))
        self.before, self.compactions = raw, compactions


def run(folder, model, turns=TURNS, window=8192, *, metrics=False, factor=1.0):
    watch = Watch()
    server = StrictServer(
        window, lambda messages, number: play(messages, number, turns), on_request=watch, factor=factor
    )
    home = FlowHome(folder, server=server, url=server.url.removesuffix("/v1"))
    watch.home = home
    home.commit("default", sources())
    config = home.config.read_text()
    config = config.replace("model: m, context_length: 32000", f"model: {model}, context_length: {window}")
    home.config.write_text(config + f"limits: {{turns: {2 * turns}, wall_seconds: 7200}}\n")
    home.issue(1, "Take notes", TASK)
    more = []
    if metrics:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            watch.port = free.getsockname()[1]
        more = ["--metrics", str(watch.port)]
    process = home.start("run", "--once", *more)
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
        assert min(watch.shares) >= 0.99
        assert 0 < watch.peak < (64 + vocabulary) * 1024
    finally:
        home.close()


def test_what_was_sent_once_stays_the_same_bytes_in_the_same_place(tmp_path):
    """A provider's prompt cache holds: 50 turns without a compaction."""
    home, server, watch = run(tmp_path, "gpt-4o-mini", turns=50, window=128_000, metrics=True)
    try:
        assert server.refused == []
        assert server.turns == 50
        assert home.lines(1, "compactions.jsonl") == []
        assert len(watch.shares) == 49
        assert min(watch.shares) >= 0.99
        log = [json.loads(line) for line in (home.kept(1) / "worker.log").read_text().splitlines()]
        planned = [one for one in log if one["event"] == "context_assembled"]
        assert len(planned) == 50
        for one in planned:
            assert one["tokens"] <= one["limit"]
            assert one["latency_ms"] >= 0
            assert set(one["layers"]) == {"system", "semantic", "user_message", "session_summary", "working"}
            assert one["counts"]["working"] >= 0
        for name in ("context_assembly_latency_ms_count", "context_token_count_count"):
            assert float(re.search(rf"^{name} (\S+)$", watch.metrics, re.MULTILINE)[1]) >= 1
        assert 'memory_layer_usage_total{layer="working"}' in watch.metrics
        # After the first report nothing is far from what the server counts.
        for one, told in zip(planned[2:], server.counts[2:], strict=True):
            assert one["tokens"] == pytest.approx(told, rel=0.05)
    finally:
        home.close()


def test_a_server_that_counts_half_as_much_again_is_learnt_within_three_requests_and_never_surprised(tmp_path):
    home, server, watch = run(tmp_path, "phi4", turns=80, window=12_288, factor=1.5)
    try:
        assert server.refused == []
        assert watch.wrong == []
        log = [json.loads(line) for line in (home.kept(1) / "worker.log").read_text().splitlines()]
        drifted = [one for one in log if one["event"] == "token_drift"]
        assert drifted[0]["reported"] > 1.1 * drifted[0]["estimated"]
        assert [one for one in log if one["event"] == "compaction"]
        guesses = [one["tokens"] for one in log if one["event"] == "request_sent" and one["tokens"]]
        errors = [guess / told - 1 for guess, told in zip(guesses, server.counts, strict=True)]
        print(
            "requests 1 to 4:",
            " ".join(f"{error:+.1%}" for error in errors[:4]),
            f"worst after: {max(map(abs, errors[3:])):.1%}",
        )
        assert [error for error in errors[3:] if abs(error) > 0.05] == []
    finally:
        home.close()
