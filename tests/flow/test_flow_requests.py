"""A whole run with refusals, retries, broken and odd answers, summaries that are not used and a kill: N requests seen
are N requests counted."""

import json
import os
import re
import signal
from dataclasses import replace

import pytest
from flow_home import FlowHome, Held, Parts, finish, until, write
from llm_servers import Reply, Script, call, says
from reviewing import Panel, is_review
from summaries import honest

LINES = "".join(f"line {number}: the quick brown fox jumps over the lazy dog\n" for number in range(60))
CUT = says("openai", "The quick brown fox jumps over the lazy dog. " * 20, done=False, cut=True)
ODD = Reply({"object": "list", "data": []})  # 200, and no answer
UNREPORTED = says("openai", *write("unreported.txt", "x\n"), usage=None)
BUSY = Reply({"error": {"message": "The server is overloaded", "type": "overloaded_error"}}, 503)
SUMMARIES = [
    says("openai", ""),  # answered, paid, not used
    lambda request: says("openai", honest(request.json["messages"][0]["content"]), usage=None),
]


class Model:
    """The parts, and summaries, whose requests have no tools; `seen` are (body, what was answered)."""

    def __init__(self, parts, summaries):
        self.parts = parts
        self.summaries = list(summaries)
        self.seen = []

    def __call__(self, request):
        if "tools" in request.json:
            reply = self.parts(request)
        else:
            reply = self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]
            reply = reply(request) if callable(reply) else reply
        self.seen.append((request.json, reply))
        return reply


def home_of(folder, steps, config, summaries=SUMMARIES):
    """A home whose conversation has more turns than the model's own part can count: it counts by itself."""
    count = iter(range(10_000))
    taken = {}

    def part(request):
        number = taken.setdefault(json.dumps(request.json["messages"][-1]), None)
        if number is None:
            number = taken[json.dumps(request.json["messages"][-1])] = next(count)
        step = steps[min(number, len(steps) - 1)]
        step = step(request) if callable(step) else step
        return step if isinstance(step, Reply) else says("openai", *step)

    model = Model(part, summaries)
    home = FlowHome(folder, {}, server=Script(model), config=config)
    home.model = model
    text = home.config.read_text().replace(
        "context_length: 32000", "context_length: 12000, price: {input: 2, output: 10}"
    )
    home.config.write_text(text)
    return home


def tokens(line):
    return line["usage"]["prompt_tokens"] + line["usage"]["completion_tokens"]


def test_every_request_is_counted_everywhere(tmp_path):
    failing = iter([BUSY, CUT, UNREPORTED])
    held = Held(write("calc.py", "x = 1\n"))
    reads = [write(f"f{number}.txt", LINES) for number in range(14)]

    def at_last(_request):
        """What the same turn is answered, one after the other."""
        return next(failing)

    steps = [*reads, at_last, held, finish("Round late", "Done.")]
    home = home_of(tmp_path, steps, "", [ODD, *SUMMARIES])
    try:
        home.issue(1, "Round late", "Please read all of it.")
        daemon = home.start("run")
        held.arrived()
        folder = home.kept(1)
        assert (folder / ".requests.begun").stat().st_size > 0
        os.kill(until(lambda: home.worker(1)), signal.SIGKILL)
        held.go()
        until(lambda: home.row(1)["status"] == "completed", "the end")
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
        seen, lines, row = home.model.seen, home.lines(1, "requests.jsonl"), home.row(1)
        assert len(lines) == len(seen) == row["llm_call_count"]
        assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
        states = {line["status"] for line in lines}
        assert states == {"ok", "refused", "cut", "unreadable", "interrupted"}
        assert next(failing, None) is None, "each was sent"
        [unreported] = [one for one in lines if one["purpose"] == "turn" and one["status"] == "ok" and one["estimated"]]
        assert unreported["usage"]["prompt_tokens"] > 500
        assert unreported["cost"] > 0
        summaries = [line for line in lines if line["purpose"] == "summary"]
        assert len(summaries) == sum("tools" not in body for body, _ in seen) >= 2
        used = [one for one in home.lines(1, "messages.jsonl") if one.get("kind") == "summary"]
        assert len(used) < len(summaries), "some were asked for and not used"
        turns = sum(1 for one in home.lines(1, "messages.jsonl") if one["role"] == "assistant") - len(used)
        assert row["llm_call_count"] - row["other_call_count"] == turns
        assert row["total_tokens"] == sum(map(tokens, lines))
        assert row["cost"] == pytest.approx(sum(line["cost"] for line in lines))
        assert row["estimated_tokens"] == sum(line["estimated_tokens"] for line in lines) > 0
        [cut_off] = [line for line in lines if line["status"] == "interrupted"]
        assert cut_off["estimated"]
        assert cut_off["usage"]["prompt_tokens"] > 500
        (final,) = home.said(1)
        assert f"{turns} turns ({len(lines)} requests)" in final
        assert f"{row['estimated_tokens']:,} tokens estimated, not reported" in final
        assert f"({len(lines)} requests)" in home.pulls()[0]
        shown = home.run("show", row["uuid"], code=0)[1]
        assert re.search(rf"requests\s+{len(lines)}\b", shown)
        assert "of them estimated" in shown
    finally:
        home.close()


@pytest.mark.parametrize(("limit", "value"), [("tokens", 30_000), ("cost", 0.06)])
def test_limits_hold_where_no_usage_is_reported(tmp_path, limit, value):
    """Also between two pieces of a summary: no request is sent once a limit is reached."""

    def silent(step):
        return lambda request: says("openai", *step, usage=None)

    steps = [silent(write(f"f{number}.txt", LINES)) for number in range(200)]
    home = home_of(
        tmp_path, steps, f"limits: {{{limit}: {value}}}\n", [says("openai", "All went well so far.", usage=None)]
    )
    try:
        home.issue(1, "Round late", "Please.")
        home.once(code=1)
        row, lines = home.row(1), home.lines(1, "requests.jsonl")
        assert (row["status"], row["error_code"]) == ("failed", f"limit_{limit}")
        assert all(line["estimated"] for line in lines)
        assert len(lines) == len(home.model.seen)
        used = row["total_tokens"] if limit == "tokens" else row["cost"]
        last = tokens(lines[-1]) if limit == "tokens" else lines[-1]["cost"]
        assert value <= used < value + last + 1e-9, "the request that reached it was the last"
        (final,) = home.said(1)
        assert "tokens estimated, none reported" in final
        assert f"`limits.{limit}`" in final
    finally:
        home.close()


class Everybody:
    """A server for the model that works, for three reviewers and for what is remembered, none of which reports usage;
    the first request of a reviewer and the first one of memory fail."""

    def __init__(self, steps):
        self.parts = Parts({"Round": steps})
        self.panel = Panel()
        self.seen = []
        self.failing = {"memory": says("openai", "I remember that " * 20, done=False, cut=True), "review": BUSY}

    def __call__(self, request):
        self.seen.append(request.json)
        kind = "review" if is_review(request.json) else "memory" if "remember" in str(request.json["tools"]) else "turn"
        if (failing := self.failing.pop(kind, None)) is not None:
            return failing
        if kind == "memory":
            nothing = {"facts": [], "preferences": [], "reflections": []}
            return says("openai", "", [call("remember", nothing)], usage=None)
        reply = self.panel(request) if kind == "review" else self.parts(request)
        return replace(reply, body=[part for part in reply.body if b"prompt_tokens" not in part])


def test_votes_and_memories_are_counted_and_limit_the_money_of_a_day(tmp_path):
    """Requests outside the conversation, estimated, in the file, the row, the comment and `limits.repository_cost`."""
    steps = [write("calc.py", "x = 1\n"), finish("Round late", "Done.")]
    model = Everybody(steps)
    config = "consensus: {enabled: true, rounds: 0}\nmemory: {extraction: {enabled: true}}\n"
    home = FlowHome(tmp_path, {}, server=Script(model), config=config)
    text = home.config.read_text().replace(
        "context_length: 32000", "context_length: 32000, price: {input: 2, output: 9}"
    )
    home.config.write_text(text)
    try:
        home.issue(1, "Round late", "Please.")
        home.once()
        until(lambda: home.row(1)["remember_at"] is None, "what is remembered")
        lines, row = home.lines(1, "requests.jsonl"), home.row(1)
        assert len(lines) == len(model.seen) == row["llm_call_count"] == 2 + 4 + 2
        purposes = [line["purpose"] for line in lines]
        assert {name: purposes.count(name) for name in purposes} == {"turn": 2, "vote": 4, "memory": 2}
        assert row["other_call_count"] == 6
        assert all(line["estimated"] for line in lines if line["status"] != "refused")
        assert row["total_tokens"] == sum(map(tokens, lines))
        assert row["estimated_tokens"] == sum(line["estimated_tokens"] for line in lines) > 0.9 * row["total_tokens"]
        assert row["cost"] == pytest.approx(sum(line["cost"] for line in lines))
        shown = home.run("show", row["uuid"], code=0)[1]
        assert re.search(rf"requests\s+{len(lines)}\b", shown)
        spent = row["cost"]
        home.config.write_text(f"{text}limits: {{repository_cost: {spent * 0.99}}}\n")
        home.issue(2, "Round again", "Please.")
        home.once()
        assert home.row(2) == {} or home.row(2)["status"] == "queued"
        assert len(model.seen) == 8, "the estimates have used up the money of the day"
        home.config.write_text(f"{text}limits: {{repository_cost: {spent * 1.01}}}\n")
        home.once()
        assert home.row(2)["status"] == "completed"
    finally:
        home.close()
