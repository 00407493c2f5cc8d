"""Scripted reviewers: which persona and phase a request is of, and an engine on a loopback server.

A script maps `persona`, or `persona.phase`, to an answer: a letter (A, C, D), a payload, a Reply, a list of these for
one try after another, or a callable of the request that gives one.
"""

import json
import threading
from contextlib import contextmanager

from llm_servers import Heard, Reply, call, says

from agent import prompts
from agent.config import settings_of
from agent.consensus import ConsensusEngine, StreamingEmitter
from agent.consensus.record import DeliberationRecord
from agent.consensus.reviewers import open_reviewers
from agent.context import RequestStore
from agent.context.deliberations import DeliberationStore
from agent.security.redact import masker_of

MARKS = {
    "correctness": "does it do what was asked",
    "safety": "can it do harm",
    "upkeep": "can the people of this repository live with it",
}
VOTES = {"A": "APPROVE", "C": "CONDITIONAL", "D": "DENY"}
DIFF = """\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,3 @@
 def total(prices):
-    return sum(round(p) for p in prices)
+    whole = sum(prices)
+    return round(whole)
"""


def vote(letter, reason="So it is.", findings=(), conditions=None):
    """The payload of a vote; findings are (file, line, problem)."""
    made = [{"file": file, "line": line, "problem": problem} for file, line, problem in findings]
    if conditions is None:
        conditions = ["Add a test."] if letter == "C" else []
    return {"reason": reason, "findings": made, "conditions": list(conditions), "vote": VOTES[letter]}


def critique(reason="I see nothing else.", findings=()):
    return {"reason": reason, "findings": vote("A", findings=findings)["findings"]}


def texts_of(body):
    """(system text, user text) of a request on any wire."""
    system = body.get("system") or ""
    if isinstance(system, list):
        system = "".join(one["text"] for one in system)
    parts = {"system": system, "user": ""}
    for message in body["messages"]:
        content = message["content"]
        if message["role"] not in ("system", "developer", "user"):
            continue
        if isinstance(content, list):
            content = "".join(one.get("text", "") for one in content)
        parts[message["role"] if message["role"] != "developer" else "system"] += content
    return parts["system"], parts["user"]


def is_review(body):
    """Whether a request is one to a reviewer."""
    return "one of three reviewers" in texts_of(body)[0]


def about(body):
    """(persona, phase) of a request to a reviewer."""
    system, user = texts_of(body)
    persona = next(name for name, mark in MARKS.items() if mark in system)
    phase = (
        "debate" if "Criticise what the reviewers said" in user else "voting" if "final vote" in user else "thinking"
    )
    return persona, phase


class Panel:
    """`play(request)` answers requests of reviewers by a script; `asked` has (persona, phase) of each, in order."""

    def __init__(self, script=None, *, wire="openai", **personas):
        self.script = {**(script or {}), **personas}
        self.wire = wire
        self.asked = []
        self.bodies = []
        self.lock = threading.Lock()
        self.tries = {}

    def answer(self, body):
        """The scripted answer to the body of a request: a payload, a text, or a Reply."""
        persona, phase = about(body)
        with self.lock:
            self.asked.append((persona, phase))
            self.bodies.append(body)
            number = self.tries[persona, phase] = self.tries.get((persona, phase), -1) + 1
        found = self.script.get(f"{persona}.{phase}", self.script.get(persona, "A"))
        if isinstance(found, list):
            found = found[min(number, len(found) - 1)]
        if callable(found):
            found = found(body)
        if isinstance(found, str) and found in VOTES:
            found = vote(found)
        if phase == "debate" and isinstance(found, dict) and "vote" in found:
            found = {name: found[name] for name in ("reason", "findings")}
        return found

    def __call__(self, request):
        found = self.answer(request.json)
        if isinstance(found, Reply):
            return found
        if isinstance(found, str):
            return says(self.wire, found)
        tool = "criticise" if "vote" not in found else "cast_vote"
        return says(self.wire, "", [call(tool, found)])

    def of(self, persona, phase="thinking"):
        """The bodies of the requests to one persona in one phase."""
        return [body for body, asked in zip(self.bodies, self.asked, strict=True) if asked == (persona, phase)]


def settings_for(url, *, wire="openai", provider=None, consensus=None):
    """Settings with one provider on a loopback server."""
    keys = {"model": "m", "context_length": 32000, "base_url": url, **(provider or {})}
    return settings_of({"llm": {"provider": wire, wire: keys}, "consensus": consensus or {}})


@contextmanager
def panel_engine(folder, settings, *, subject="", control=None, gate=None, consumer=None):
    """(engine, requests store, deliberations store, events) with real stores in `folder`."""
    folder.mkdir(exist_ok=True)
    requests, deliberations, events = (
        RequestStore(folder),
        DeliberationStore(folder, redact=masker_of(settings)),
        Heard(),
    )
    emitter = StreamingEmitter(consumer, session="s")
    try:
        with open_reviewers(
            settings, requests, control=control, events=events, gate=gate, templates=prompts.program_templates()
        ) as reviewers:
            record = DeliberationRecord.open(deliberations, subject)
            engine = ConsensusEngine(settings, reviewers, emitter=emitter, record=record, events=events)
            yield engine, requests, deliberations, events
    finally:
        emitter.close()
        requests.close()
        deliberations.close()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
