"""How servers report thinking (docs/wire.md, "Usage"), over HTTP, and what is recorded of it."""

import json

import orjson
import pytest
from llm_servers import WIRES, Reply, Script, client_for, says, sse

from agent.context import MessageStore
from agent.values import Usage


def asked(tmp_path, wire, reply):
    with Script(reply) as server:
        client, store = client_for(wire, server.url, tmp_path)
        store.add_message("system", "Be careful.")
        store.add_message("user", "u")
        client.get_response()
        client.close()
    rows = [orjson.loads(line) for line in (tmp_path / "requests.jsonl").read_bytes().splitlines()]
    return client.last.usage, store, rows[-1]


@pytest.mark.parametrize(
    ("wire", "thought"),
    [("openai", ""), ("openai", "I think. " * 40), ("lmstudio", "I think. "), ("anthropic", "I think. " * 40)],
)
@pytest.mark.parametrize("tokens", [0, 250])
def test_thinking_that_is_reported_is_kept_with_the_answer_and_its_request(tmp_path, wire, thought, tokens):
    reply = says(wire, "Done.", usage=(100, 20 + tokens, tokens), thought=thought)
    usage, store, row = asked(tmp_path, wire, reply)
    assert usage == Usage(100, 20 + tokens, 0, tokens)
    assert row["usage"] == store.last()["usage"] == usage.to_dict()
    assert row["usage"]["reasoning_tokens"] == tokens
    assert Usage.from_dict(row["usage"]) == usage


@pytest.mark.parametrize("wire", sorted(WIRES))
def test_what_is_not_reported_is_not_nothing(tmp_path, wire):
    usage, store, row = asked(tmp_path, wire, says(wire, "Done.", usage=(100, 270), thought="I think. " * 40))
    assert usage == Usage(100, 270)
    assert usage.reasoning is None
    assert "reasoning_tokens" not in row["usage"]
    assert store.index.reports.stored == 0


CASES = [
    # xAI counts it beside the text: vercel/ai#12425
    ({"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 331, "reasoning": 317}, Usage(12, 319, 0, 317)),
    # a gateway that adds the total up without it
    ({"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14, "reasoning": 317}, Usage(12, 319, 0, 317)),
    # Gemini's endpoint: in the total alone
    ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623, "reasoning": 0}, Usage(20, 603, 0, 405)),
    ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 218, "reasoning": -5}, Usage(20, 198)),
    ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 218, "reasoning": "7"}, Usage(20, 198)),
    ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 218, "reasoning": True}, Usage(20, 198)),
]


@pytest.mark.parametrize(("told", "known"), CASES)
@pytest.mark.parametrize("place", ["completion_tokens_details", "output_tokens_details", ""])
def test_thinking_is_found_where_servers_put_it(tmp_path, told, known, place):
    thought = {"reasoning_tokens": told["reasoning"]}
    usage = {key: value for key, value in told.items() if key != "reasoning"} | ({place: thought} if place else thought)
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}], "usage": usage}
    reply = Reply([sse(chunk), b"data: [DONE]\n\n"], headers={"Content-Type": "text/event-stream"})
    assert asked(tmp_path, "openai", reply)[0] == known


def test_a_record_of_an_earlier_version_says_nothing_of_thinking(tmp_path):
    old = {"prompt_tokens": 1000, "completion_tokens": 9000, "cached_tokens": 0}
    lines = [
        {"seq": 1, "role": "system", "content": "s", "tokens": 1, "kind": "system"},
        {"seq": 2, "role": "user", "content": "u", "tokens": 1, "kind": "task"},
        {"seq": 3, "role": "assistant", "content": "Done.", "tokens": 2, "usage": old},
    ]
    (tmp_path / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = MessageStore(tmp_path, {"llm": {"provider": "ollama", "ollama": {"model": "phi4"}}})
    assert store.tokens_in_use() < 1020
    assert store.totals().completion == 9000, "it was paid for"


def test_sums_of_what_is_reported_and_what_is_not():
    assert (Usage(1, 2) + Usage(1, 2)).reasoning is None
    assert (Usage(1, 2, 0, 5) + Usage(1, 2)).reasoning == 5
    assert (Usage(1, 2, 0, 5) + Usage(1, 2, 0, 0)).reasoning == 5
