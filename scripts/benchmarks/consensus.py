"""Reviewers on thirty changes: false approvals, tokens and time of one reviewer, of blind votes, and of a debate.

The models are scripts with the weaknesses that are known of real ones: a reviewer overlooks a fault by chance, more
often if a story says that the change is safe; it sometimes repeats an object like a vote that the change contains; and
in a debate it mostly joins the majority.  So the figures are of the engine's rules and not of any model.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.consensus_cases import PLANTED, STORIES, Case, cases
from benchmarks.figures import at_most, share
from benchmarks.settings import settings

SEEN = {"correctness": 0.75, "safety": 0.7, "upkeep": 0.55}
"""The chance that a persona sees a fault."""
TOLD = 0.3
"""… times this, if a story about the change is in its request."""
ALARM = 0.1
"""The chance of a denial of a good change."""
REPEATS = 0.5
"""The chance that a model repeats the planted object instead of voting."""
JOINS = 0.85
"""The chance that a model joins the majority in its final vote."""
MARKS = {"does it do what was asked": "correctness", "can it do harm": "safety", "live with it": "upkeep"}
SEED = 7
APPROVED = 0.8
"""The least share of good changes that is approved."""
WAIT = 0.02
"""Seconds before each answer."""


class Reviewers(ThreadingHTTPServer):
    """A model server with scripted reviewers of one case at a time."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.case: Case | None = None
        self.tries: Counter[tuple[str, str]] = Counter()
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def begin(self, case: Case) -> None:
        self.case = case
        self.tries.clear()

    def answer(self, body: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """(text, arguments of the call or None)."""
        assert self.case is not None
        system, text = (message["content"] for message in body["messages"])
        persona = next(name for mark, name in MARKS.items() if mark in system)
        phase = "debate" if "Criticise what" in text else "voting" if "final vote" in text else "thinking"
        with self.lock:
            number = self.tries[persona, phase]
            self.tries[persona, phase] += 1
        chance = random.Random(f"{SEED}:{self.case.name}:{persona}:{phase}:{number}")
        if self.case.planted and number == 0 and chance.random() < REPEATS:
            return f"The change says: {PLANTED.partition(': ')[2]}", None
        own = self.own(persona, text)
        if phase == "debate":
            return "", {"reason": own["reason"], "findings": own["findings"]}
        if phase == "voting" and chance.random() < JOINS:
            seen = Counter(word for word in ("APPROVE", "DENY") for _ in range(text.count(f": {word}\n")))
            if seen and (most := seen.most_common(1)[0][0]) != own["vote"]:
                return "", {"reason": "The others are right.", "findings": [], "conditions": [], "vote": most}
        return "", own

    def own(self, persona: str, text: str) -> dict[str, Any]:
        """The vote of a persona by itself, the same in every phase."""
        case = self.case
        assert case is not None
        chance = random.Random(f"{SEED}:{case.name}:{persona}")
        told = any(story in text for story in STORIES)
        limit = SEEN[persona] * (TOLD if told else 1.0) if case.kind != "good" else ALARM
        if chance.random() >= limit:
            return {"reason": "I see nothing.", "findings": [], "conditions": [], "vote": "APPROVE"}
        line = case.new.count("\n")
        finding = {"file": "code.py", "line": line, "problem": "This is wrong."}
        return {"reason": "It is wrong.", "findings": [finding], "conditions": [], "vote": "DENY"}


class Handler(BaseHTTPRequestHandler):
    """OpenAI's wire, not streamed."""

    protocol_version = "HTTP/1.1"
    server: Reviewers

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self.send(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text, arguments = self.server.answer(body)
        time.sleep(WAIT)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if arguments is not None:
            function = {"name": body["tools"][0]["function"]["name"], "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        counts = {"prompt_tokens": len(json.dumps(body)) // 4, "completion_tokens": len(json.dumps(message)) // 4}
        finish = "stop" if arguments is None else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        self.send(200, {"id": "c", "model": body["model"], "choices": [choice], "usage": counts})

    def send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def measure() -> dict[str, Any]:
    found = list(cases())
    wrong = [case.name for case in found if case.passes() is not (case.kind == "good")]
    assert not wrong, f"the hidden tests do not match: {wrong}"
    server = Reviewers()
    try:
        runs = {name: run(server, found, rounds) for name, rounds in (("vote", 0), ("debate", 1))}
    finally:
        server.shutdown()
        server.server_close()
    single, vote, debate = runs["vote"]["single"], runs["vote"]["panel"], runs["debate"]["panel"]
    naive = runs["debate"]["naive"]
    for name, one in (("single", single), ("vote", vote), ("debate", debate), ("debate without rules", naive)):
        machine.say(f"{name}: {one}")
    faulty = sum(case.kind != "good" for case in found)
    return {
        "consensus.vote": at_most(
            vote["false"], max(1, single["false"]), 0.5, "changes", "blind votes: false approvals, against one reviewer"
        ),
        "consensus.debate": at_most(
            debate["false"],
            max(1, naive["false"]),
            0.5,
            "changes",
            "a debate: … against its majority without the rules",
        ),
        "consensus.good": share(debate["good"], 10, APPROVED, "changes", "good changes that are approved"),
        "consensus.tokens": at_most(debate["tokens"], vote["tokens"], 5, "tokens", "a debate against blind votes"),
        "consensus.time": at_most(debate["seconds"], vote["seconds"], 4, "s", f"… wall time of {faulty + 10} changes"),
    }


def run(server: Reviewers, found: list[Case], rounds: int) -> dict[str, dict[str, float]]:
    """What one reviewer, the panel, and a panel without rules come to."""
    from agent import prompts
    from agent.consensus import ConsensusEngine, ConsensusRequest
    from agent.consensus.material import Material
    from agent.consensus.record import DeliberationRecord
    from agent.consensus.reviewers import open_reviewers
    from agent.context import RequestStore
    from agent.context.deliberations import DeliberationStore

    totals: dict[str, Counter[str]] = {"single": Counter(), "panel": Counter(), "naive": Counter()}
    seconds = 0.0
    with tempfile.TemporaryDirectory(prefix="makimono-bench-") as top:
        for case in found:
            server.begin(case)
            folder = Path(top) / f"{case.name}-{rounds}"
            folder.mkdir()
            config = settings(Path(top), url=server.url, window=32_000, consensus={"rounds": rounds})
            with closing(RequestStore(folder)) as requests, closing(DeliberationStore(folder)) as store:
                started = time.monotonic()
                with open_reviewers(config, requests, templates=prompts.program_templates()) as reviewers:
                    record = DeliberationRecord.open(store, case.name)
                    engine = ConsensusEngine(config, reviewers, record=record)
                    material = Material(issue=case.issue, diff=case.diff)
                    decision = engine.execute(ConsensusRequest("Is this change ready?", material=material))
                seconds += time.monotonic() - started
                lines = [line for line in store.records() if line["kind"] == "statement"]
                tokens = requests.sums().prompt + requests.sums().completion
            votes = {
                (line["phase"], line["persona"]): line["payload"]["vote"] for line in lines if "vote" in line["payload"]
            }
            last = [vote for (phase, _), vote in votes.items() if phase == ("voting" if rounds else "thinking")]
            results = {
                "single": votes.get(("thinking", "correctness")) == "APPROVE",
                "panel": decision.decision.value == "APPROVED",
                "naive": last.count("APPROVE") * 2 > len(last),
            }
            for name, approved in results.items():
                totals[name]["good" if case.kind == "good" else "false"] += approved
            totals["panel"]["tokens"] += tokens
    return {
        name: {"good": one["good"], "false": one["false"], "tokens": one["tokens"], "seconds": round(seconds, 2)}
        for name, one in totals.items()
    }
