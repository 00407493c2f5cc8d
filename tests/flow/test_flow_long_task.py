"""A long task on a small window, against a server that enforces it by its own count: the whole program, real processes.

MAKIMONO_LONG=1 makes it 2,000 turns on 8,192, with the byte-class counter and with tiktoken, and 300 on the other
windows (about a quarter of an hour); the figures of docs/window.md are from that.
"""

import json
import os
import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from flow_home import FlowHome, until
from long_work import COMMENTS, WORDS, Work, files
from ports import free_port
from strict_server import StrictServer

from agent.context import projection

LONG = os.environ.get("MAKIMONO_LONG") == "1"
TASK = "RULE 7: never touch setup.py. Keep notes of every file in notes/ and then finish."
TURNS = {4096: (60, 300), 8192: (80, 2000), 16_384: (90, 300), 32_768: (120, 300)}
"""window → turns of the ordinary run and of the long one.  Only the long one has the largest window, which the program
treats like the one before it."""
ROOM_FOR_COMMENTS = 16_384
"""The smallest window that holds all comments word for word, with what stands around them."""
CASES = [
    pytest.param(window, "phi4", TURNS[window][LONG], id=f"{window}") for window in TURNS if LONG or window < 32_768
] + [pytest.param(8192, "gpt-4o", TURNS[8192][True], id="8192-tiktoken")] * LONG


def joined(messages):
    """The view as it is sent: neighbouring messages of the user are one (llm/role_alternation.py)."""
    sent = []
    for one in messages:
        if sent and one["role"] == sent[-1]["role"] == "user":
            sent[-1] = {**sent[-1], "content": sent[-1]["content"] + "\n\n" + one["content"]}
        else:
            sent.append(one)
    return sent


class Watch:
    """Looks at the task at every request, while its worker waits for the answer."""

    def __init__(self, *, closely=True):
        self.home = None
        self.folder = None
        self.closely = closely
        self.wrong = []
        self.pid = None
        self.first = self.peak = 0
        self.before = b""
        self.last = {}
        self.compactions = 0
        self.port = 0
        self.metrics = ""
        self.shares = []

    def __call__(self, body, raw):
        self.last = body
        if self.folder is None:
            [self.folder] = [path for path in (self.home.contexts / "running").iterdir() if path.is_dir()]
            self.pid = self.home.worker(1)
        if TASK not in body["messages"][1]["content"]:
            self.wrong.append("the task text is not in the request")
        derived = b"".join(data for data, _ in projection.lines(self.folder))
        if derived != (self.folder / "current.jsonl").read_bytes():
            self.wrong.append("the view is not what the facts say")
        lines = [json.dumps(one) for one in body["messages"]]
        if lines != [json.dumps(one) for one in joined(map(json.loads, derived.splitlines()))]:
            self.wrong.append("the request is not the view")
        self.prefix(raw)
        if self.port and len(self.shares) == 40:
            self.metrics = until(self.told, "that the metrics are fed")
        status = Path(f"/proc/{self.pid}/status").read_text() if self.pid else ""
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            self.peak = int(found[1])
            self.first = self.first or self.peak

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


def thinks(number):
    """Tokens of thinking before an answer: often none, some hundreds, now and then as many as an answer may have."""
    return (0, 0, 150, 0, 400, 0, 0, 900)[number % 8]


def run(folder, model, work, window=8192, *, metrics=False, **how):
    """The whole program with one task; (home, server, watch) when it has ended."""
    watch = Watch()
    server = StrictServer(window, work.play, on_request=watch, **how)
    home = FlowHome(folder, server=server, url=server.url.removesuffix("/v1"))
    watch.home = home
    work.say = lambda words: home.comment(1, words)
    home.commit("default", files())
    config = home.config.read_text()
    config = config.replace("model: m, context_length: 32000", f"model: {model}, context_length: {window}")
    more = f"limits: {{turns: {2 * work.turns}, wall_seconds: 7200}}\nscheduling: {{interval: 0.01}}\n"
    home.config.write_text(config + more)
    home.issue(1, "Take notes", TASK)
    more = []
    if metrics:
        watch.port = free_port()
        more = ["--metrics", str(watch.port)]
    process = home.start("run", "--once", *more)
    out, _ = process.communicate(timeout=3600)
    home.output = out
    return home, server, watch


@pytest.mark.parametrize(("window", "model", "turns"), CASES)
def test_a_long_task_on_a_small_window_lives_to_its_end_and_never_sends_what_does_not_fit(
    tmp_path, window, model, turns
):
    work = Work(turns)
    home, server, watch = run(tmp_path, model, work, window, thinks=thinks)
    try:
        row = home.row(1)
        strategies = [one["strategy"] for one in home.lines(1, "compactions.jsonl")]
        print(
            f"{model} {window}: {server.turns} turns, {work.calls} calls, largest prompt {max(server.counts)}, "
            f"{len(strategies)} compactions, {server.summaries} summary requests, peak of the worker "
            f"{watch.peak / 1024:.1f} MiB, {watch.first / 1024:.1f} at its first request"
        )
        assert server.refused == []
        assert (row["status"], row["error_code"]) == ("completed", None), row["error_message"]
        assert server.turns == turns
        assert watch.wrong == []
        done = home.lines(1, "tools.jsonl")
        assert [one for one in done if one["status"] != "success"] == []
        assert len(done) == work.calls
        ended = [one for one in done if re.match(r"\[exit code (?!0\])", one["result"])]
        assert len(ended) == work.failed
        assert len(strategies) > turns // 60
        assert work.said == list(COMMENTS)
        sent = "\n".join(one["content"] or "" for one in watch.last["messages"])
        assert [words for words in COMMENTS if words not in sent] == [] or window < ROOM_FOR_COMMENTS
        assert min(watch.shares) >= 0.99
        assert (
            0 <= watch.peak - watch.first < (8 + (0 if model == "phi4" else 100)) * 1024
        )  # a vocabulary is read later
        assert watch.first > 0
    finally:
        home.close()


def test_what_was_sent_once_stays_the_same_bytes_in_the_same_place(tmp_path):
    """A provider's prompt cache holds: 50 turns without a compaction."""
    home, server, watch = run(tmp_path, "gpt-4o-mini", Work(50), window=200_000, metrics=True)
    try:
        assert home.row(1)["status"] == "completed", home.output
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
        for name in ("makimono_context_assembly_seconds_count", "context_token_count_count"):
            assert float(re.search(rf"^{name} (\S+)$", watch.metrics, re.MULTILINE)[1]) >= 1
        assert 'memory_layer_usage_total{layer="working"}' in watch.metrics
        # After the first report nothing is far from what the server counts.
        for one, told in zip(planned[2:], server.counts[2:], strict=True):
            assert one["tokens"] == pytest.approx(told, rel=0.05)
    finally:
        home.close()


class PlainWork(Work):
    """Pages of code, notes and searches in English and Japanese alone: the ratio of one kind of text is learnt."""

    def talk(self, number):
        pass

    def text(self, number):
        return "" if number % 3 else f"Turn {number}: going on."

    def step(self, number):
        name, kind = f"src/part{number % 6}.py", number % 6
        if kind == 0:
            return [("read_file", {"path": name, "offset": 1 + number % 40, "limit": 20 + number % 30})]
        if kind == 1:
            content = f"{number}: {WORDS['en']} {WORDS['ja']} def total(prices): return sum(prices)\n"
            return [("write_file", {"path": f"notes/{number % 50}.md", "content": content})]
        if kind == 2:
            return [
                ("read_file", {"path": name, "offset": number % 30 + 1, "limit": 12}),
                ("search_text", {"pattern": f"value_{number % 90}", "path": "src"}),
                ("list_files", {"path": "src", "pattern": "*.py"}),
            ]
        if kind == 3:
            return [("search_text", {"pattern": f"line {number % 90} ", "path": "src"})]
        if kind == 4:
            return [("list_files", {"path": ".", "pattern": f"*{number % 9}*"})]
        return [("update_plan", {"items": self.plan(number)})]


def test_a_server_that_counts_half_as_much_again_is_learnt_within_three_requests_and_never_surprised(tmp_path):
    home, server, watch = run(tmp_path, "phi4", PlainWork(80), window=12_288, factor=1.5)
    try:
        assert home.row(1)["status"] == "completed", home.output
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
        assert [error for error in errors[3:] if abs(error) > 0.08] == []
    finally:
        home.close()
