"""Whatever happens to a conversation, what leaves is legal for its wire, fits, and has what matters in it.

Random histories, tools, windows, strategies, summarisers, reports and restarts through the real stores and the real
encoders.  Requests are judged by others: the vendors' schemas (tests/specs), the rules in strict_server.py, tiktoken.
"""

import functools
import json
import os
import random
import re
import tempfile
from itertools import pairwise
from pathlib import Path

import installed_texts
import strict_server
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from llm_servers import Reply, Script
from summaries import honest

from agent.config import settings_of
from agent.context import MessageStore, projection
from agent.llm import make_client
from agent.tokens import MemoryRatios, counter_for
from agent.values import Answer, Usage
from agent.window import DoesNotFit, make_window
from agent.window.budgets import Shares
from agent.window.comments import ABOUT

LONG = os.environ.get("MAKIMONO_LONG") == "1"
SPECS = Path(__file__).parents[2] / "specs"
TASK = "Fix the total. 合計を直してください。 RULE 7: never touch setup.py, “ever”.\n\tKeep \\n as it is."
SYSTEM = "You are a careful coding agent. ルールを守る。"
WIRES = ("openai", "ollama", "lmstudio", "anthropic")
MODELS = {"exact": "gpt-4o", "estimate": "phi4"}
ENDS = ("turn_too_large", "system_prompt_too_large")
SMALL = 4096
TRIMMED = "bytes left out here to make room"
SUMMARIES = ("honest", "forgetful", "", "Error: 500", "again {text}")


@functools.cache
def validator(wire):
    """The vendor's schema of a request, None where there is none."""
    if wire in ("openai", "lmstudio"):
        document, name = json.loads((SPECS / "openai-chat.json").read_text()), "CreateChatCompletionRequest"
    elif wire == "ollama":
        document, name = yaml.safe_load((SPECS / "ollama-openapi.yaml").read_text()), "ChatRequest"
    else:
        return None
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})


@functools.cache
def nobody():
    """A server that knows nothing of windows."""
    return Script(Reply({"error": "not found"}, 404))


@functools.cache
def pool():
    """Real texts, so that an estimate is fair: (class, text) without the letters that only fill."""
    return [text for texts in installed_texts.classes(3).values() for text in texts if text.strip()]


def words(seed, tokens):
    """About `tokens` tokens of real text."""
    rng = random.Random(seed)
    text = rng.choice(pool())
    wanted = max(4, tokens * 3)
    return (text * (wanted // len(text) + 1))[:wanted].strip() or "x"


def tool(seed):
    name = f"tool_{seed}"
    parameters = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": words(seed + n, 12)} for n in range(3)},
    }
    return {"type": "function", "function": {"name": name, "description": words(seed, 30), "parameters": parameters}}  # fmt: skip


class Summariser:
    provider, model = "openai", "phi4"

    def __init__(self, said):
        self.said = said

    def loaded_window(self):
        return None

    def get_summary(self, path):
        text = path.read_text()
        if self.said in ("honest", "forgetful"):
            return honest(text, 1.0 if self.said == "honest" else 0.5)
        return self.said.replace("{text}", text * 2)


class Run:
    """One task in a folder; the worker's parts are made anew at a restart."""

    def __init__(self, folder, *, wire, kind, window, strategy, tools, said, keep):
        self.folder, self.wire = folder, wire
        self.tools = [tool(n) for n in range(tools)]
        storage = {"durability": "none", "strategy": strategy, "keep_recent_messages": keep}
        provider = {
            "model": MODELS[kind],
            "context_length": window,
            "base_url": f"{nobody().url}/v1",
            "api_key": "k",
        }
        self.settings = settings_of({"context_storage": storage, "llm": {"provider": wire, wire: provider}})
        self.ratios = MemoryRatios()
        self.said = said
        self.newest, self.newest_seq = TASK, 2
        self.calls = 0
        self.requests = 0
        self.open()
        self.store.add_message("system", SYSTEM)
        self.store.add_message("user", TASK)

    def close(self):
        self.client.close()
        self.store.close()

    def open(self):
        model = self.settings.provider().model
        self.store = MessageStore(self.folder, self.settings, counter=counter_for(model, self.ratios))
        self.client = make_client(self.settings, self.store, self.folder, tools=self.tools)
        self.window = make_window(
            self.settings, self, self.client, ratios=self.ratios, summariser=Summariser(self.said)
        )

    def get_message_store(self):
        return self.store

    def get_summary_store(self):
        return self.store.summaries

    def step(self, kind, calls, size, seed):
        if kind == "comment":
            self.newest = f"[{seed}] " + words(seed, min(size, 200))
            self.newest_seq = self.store.add_message("user", self.newest, kind="comment")
        elif kind == "restart":
            self.close()
            self.open()
        else:
            made = []
            for number in range(calls):
                self.calls += 1
                arguments = {"path": f"f{self.calls}.py", "note": words(seed + number, size // 8)}
                made.append({"id": f"call_{self.calls}", "name": "read_file", "arguments": arguments})
            usage = None
            if kind == "reported" and self.requests:
                if self.store.last()["role"] != "assistant":
                    self.request()  # a report is of the request that was sent, also right behind a compaction
                prompt = round(self.window.planned * (1.0 if seed % 2 else 1.1))
                said = {"role": "assistant", "content": words(seed, 20), "tool_calls": _sent(made)}
                usage = Usage(prompt, strict_server.cost({"messages": [said]}))
                self.client.last = Answer("x", usage=usage)
            self.store.add_message("assistant", words(seed, 20), tool_calls=made, usage=usage)
            for number, one in enumerate(made):
                self.store.add_message(
                    "tool", words(seed + 7 * number, size), tool_call_id=one["id"], tool_seq=self.calls
                )

    def request(self):
        """What would go over the wire now, judged."""
        before = self.store.compactions.count()
        plan = self.window.plan()
        assert self.store.compactions.count() - before <= 6, "no request compacts for ever"
        limits = self.window.limits
        assert plan.tokens <= plan.limit
        if plan.tokens > limits.most:  # only an estimate says that it is too much: the server decides
            assert not self.window.assembler.is_measured
            assert plan.tokens <= 2 * limits.window
            return None
        assert plan.tokens <= plan.limit <= limits.most
        assert plan.limit == limits.input_limit or plan.tokens > limits.input_limit
        assert limits.least <= plan.output <= limits.window - plan.tokens
        path = self.folder / "request.json"
        with path.open("wb") as out:
            self.client.encode(
                out, plan.spans, self.client.lines.check(plan.spans), self.client.output_limit(plan.output)
            )
        body = json.loads(path.read_bytes())
        self.requests += 1
        derived = b"".join(data for data, _ in projection.lines(self.folder))
        view = (self.folder / "current.jsonl").read_bytes()
        assert derived == view
        messages = [json.loads(line) for line in view.splitlines()]
        assert strict_server.fault({"messages": messages}) == ""
        JUDGES[self.wire](self, body)
        # Independent: tiktoken and OpenAI's overheads.  The margin is for what an estimate misses.
        room = limits.window - plan.output
        assert strict_server.cost({"messages": messages, "tools": self.tools}) <= room
        return body, messages

    def has_newest(self, texts):
        """The newest comment is there; over its share of a small window as head, tail and a pointer."""
        if any(self.newest in text or (self.newest[:40] in text and TRIMMED in text) for text in texts):
            return True
        cut, seq = self.store.index.cut, self.newest_seq
        named = any(re.search(rf"no room for messages [^\]]*\b{seq}\b", text) for text in texts)
        if named and cut.carried == {"comments": []}:  # nothing else made the request fit
            return True
        if self.window.limits.window < SMALL:  # below what a task of the program needs: legal, and within the window
            return True
        shares = Shares.for_window(
            self.window.assembler.stated, self.window.assembler.scaled(self.window.compressor.room.head())
        )
        tokens = self.window.assembler.scaled(self.store.plain.count(self.newest) + ABOUT)
        pointer = f'read_output("messages:{self.store.index.comments[-1].seq}")'
        parts = [text for text in texts if self.newest[:20] in text and pointer in text and self.newest[-10:] in text]
        # A reset after which the request must fit has a third of each budget (`Shares.lean`).  What is carried gives
        # way to the newest turn, too, which was trimmed then.
        share = (shares.lean() if cut.strategy == "reset" else shares).comments_now
        large = tokens > share or any(TRIMMED in text for text in texts)
        return large and len(parts) == 1

    def check_compactions(self):
        for one in self.store.compactions.all():
            freed = one["tokens_before"] - one["tokens_after"]
            assert freed > 0
            assert freed >= 0.1 * one["tokens_before"] or one["strategy"] in ("reset", "trim"), "or another means"

    def check_end(self, error):
        """A task ends only when the least of its next request does not fit: judged by another counter."""
        view = [json.loads(line) for line in (self.folder / "current.jsonl").read_text().splitlines()]
        newest = max((n for n, one in enumerate(view) if one["role"] == "assistant"), default=len(view))
        least = view[:2] + view[newest:]
        cut = [
            one if one["role"] in ("system", "assistant") else {**one, "content": one["content"][:60]} for one in least
        ]
        cut[1] = view[1]
        taken = strict_server.cost({"messages": cut, "tools": self.tools}) * 1.1 + 40 * len(cut)
        limits = self.window.limits
        assert error.tokens > error.limit == limits.most
        assert limits.window < SMALL or taken > limits.window - limits.least - limits.window // 10
        assert error.needed > limits.window

    def check_groups(self, messages):
        """The results of a call are all there or none: those of the view are those of the record."""
        recorded = {}
        for line in (self.folder / "messages.jsonl").read_text().splitlines():
            record = json.loads(line)
            for one in record.get("tool_calls") or ():
                recorded[one["id"]] = record["seq"]
        shown = [one["id"] for message in messages for one in message.get("tool_calls") or ()]
        groups = {recorded[identifier] for identifier in shown}
        assert sorted(shown) == sorted(identifier for identifier, seq in recorded.items() if seq in groups)
        assert groups == {seq for seq in recorded.values() if seq >= min(groups, default=0)}, (
            "the newest, without a gap"
        )


def _sent(calls):
    return [
        {
            "id": one["id"],
            "type": "function",
            "function": {"name": one["name"], "arguments": json.dumps(one["arguments"])},
        }
        for one in calls
    ]


def judge_openai(run, body):
    if run.requests % 4 == 1:  # the schema is large
        assert not list(validator(run.wire).iter_errors(body))
    assert strict_server.fault(body) == ""
    contents = [one["content"] or "" for one in body["messages"]]
    assert contents[0] == SYSTEM
    assert any(text == TASK or text.startswith(TASK + "\n\n") for text in contents[1:2])
    assert run.has_newest(contents)


def judge_ollama(run, body):
    assert not list(validator("ollama").iter_errors(body))
    assert body["truncate"] is False
    messages = body["messages"]
    assert messages[0] == {"role": "system", "content": SYSTEM}
    assert TASK in messages[1]["content"]
    assert run.has_newest([one["content"] for one in messages])
    assert all(
        isinstance(call["function"]["arguments"], dict) for one in messages for call in one.get("tool_calls", ())
    )
    assert all(one["tool_name"] for one in messages if one["role"] == "tool")


def judge_anthropic(run, body):
    assert body["system"][0]["text"] == SYSTEM
    roles = [one["role"] for one in body["messages"]]
    assert roles[0] == roles[-1] == "user"
    assert all(a != b for a, b in pairwise(roles))
    waiting = []
    texts = []
    for one in body["messages"]:
        kinds = [block["type"] for block in one["content"]]
        results = [block["tool_use_id"] for block in one["content"] if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting), "every tool_use is answered in the next turn"
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result") or one["role"] == "assistant"
        waiting = [block["id"] for block in one["content"] if block["type"] == "tool_use"]
        texts += [block.get("text") or "" for block in one["content"]]
        assert all(block.get("text", "x").strip() for block in one["content"])
    assert not waiting
    assert texts[0] == TASK
    assert run.has_newest(texts)


JUDGES = {"openai": judge_openai, "lmstudio": judge_openai, "ollama": judge_ollama, "anthropic": judge_anthropic}

steps = st.lists(
    st.tuples(
        st.sampled_from(["group", "group", "group", "reported", "comment", "restart"]),
        st.sampled_from([1, 1, 2, 3, 4, 8]),
        st.sampled_from([5, 40, 150, 400, 900, 3000]),
        st.integers(0, 500),
    ),
    min_size=3,
    max_size=22,
)


@settings(
    max_examples=400 if LONG else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@example(
    wire="openai",
    kind="estimate",
    window=4096,
    strategy="hybrid",
    tools=4,
    said="honest",
    keep=1,
    steps=[("group", 1, 5, 0), ("group", 1, 5, 0), ("comment", 1, 150, 0), ("group", 2, 400, 0)],
)
@given(
    wire=st.sampled_from(WIRES),
    kind=st.sampled_from(["exact", "estimate"]),
    window=st.sampled_from([2048, 4096, 8192, 16_384, 65_536]),
    strategy=st.sampled_from(["hybrid", "summary", "sliding_window", "mask"]),
    tools=st.integers(0, 5),
    said=st.sampled_from(SUMMARIES),
    keep=st.integers(1, 9),
    steps=steps,
)
def test_every_request_that_leaves_is_legal_fits_and_has_what_matters(steps, **how):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), **how)
        try:
            for step in steps:
                try:
                    run.step(*step)
                    if run.store.last()["role"] != "assistant":
                        sent = run.request()
                        if sent is None:
                            return
                        run.check_groups(sent[1])
                    if run.window.needs_compaction():
                        run.window.compact()
                except DoesNotFit as error:
                    assert error.code in ENDS  # noqa: PT017 - either is a clear end
                    run.check_end(error)
                    return
                finally:
                    run.check_compactions()
        finally:
            run.close()


def test_the_judges_know_what_is_not_legal():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    fault = strict_server.fault
    assert fault({"messages": [system, user, asks, result]}) == ""
    assert "followed by tool messages" in fault({"messages": [system, user, asks]})
    assert "must be a response" in fault({"messages": [system, user, result]})
    assert "must be a response" in fault({"messages": [system, user, asks, result, result]})
    assert "last message" in fault({"messages": [system, user, {"role": "assistant", "content": "a"}]})
    assert "too short" in fault({"messages": []})
    assert "unexpected" in fault({"messages": [system, {**user, "seq": 2}]})
    assert "null" in fault({"messages": [system, {**user, "content": None}]})
