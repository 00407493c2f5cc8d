"""A worker that is killed while its reviewers deliberate: the next one asks for no finished vote again."""

import os
import signal
import threading

import pytest
from flow_home import FlowHome, Parts, finish, write
from length import either
from llm_servers import Reply, Script
from reviewing import Panel, is_review

FIX = [write("calc.py", "def total(prices):\n    return round(sum(prices))\n"), finish("Round once", "It rounds once.")]
SECONDS = 60


class Office:
    """Answers the worker and its reviewers; the reviewers' request `at` (from 0) hangs until `free` is set."""

    def __init__(self, at):
        self.at = at
        self.parts = Parts({"Round": FIX})
        self.panel = Panel(upkeep="C")
        self.panel.script["upkeep.voting"] = "A"
        self.asked = threading.Event()
        self.free = threading.Event()
        self.reviews = 0
        self.lock = threading.Lock()

    def __call__(self, request):
        if not is_review(request.json):
            return self.parts(request)
        with self.lock:
            number, self.reviews = self.reviews, self.reviews + 1
        if number == self.at and not self.free.is_set():
            self.asked.set()
            self.free.wait(SECONDS)
            return Reply({}, 500)
        return self.panel(request)


@pytest.mark.parametrize("at", either([0, 4, 8], list(range(9))))
def test_a_killed_worker_goes_on_after_the_last_finished_vote(tmp_path, at):
    office = Office(at)
    home = FlowHome(tmp_path, server=Script(office), config="consensus: {enabled: true, rounds: 1, slots: 1}\n")
    try:
        home.issue(1, "Round once", "Round the sum.")
        process = home.start("run", "--once")
        assert office.asked.wait(SECONDS)
        os.kill(home.worker(1), signal.SIGKILL)
        process.terminate()
        process.wait(SECONDS)
        office.free.set()
        home.half_a_minute_later()
        home.once()
        assert office.reviews == 9 + 1, "the request under way is the only one that is sent twice"
        assert home.row(1)["outcome"] == "finished"
        assert "**Reviewers**: approved: 3 of 3 approve it." in home.pulls()[0]
        lines = [one for one in home.lines(1, "deliberations.jsonl") if one["kind"] == "statement"]
        assert len(lines) == 9
        statuses = [one["status"] for one in home.lines(1, "requests.jsonl") if one["purpose"] == "vote"]
        assert sorted(statuses) == ["interrupted", *["ok"] * 9]
    finally:
        office.free.set()
        home.close()
