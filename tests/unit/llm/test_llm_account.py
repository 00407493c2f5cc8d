"""Every request that a server saw has a line in requests.jsonl, and what it does not report is estimated."""

import json
import threading

import orjson
import pytest
from llm_servers import TOOL, WIRES, Heard, Reply, Script, Stop, client_for, says, sse

from agent import clock
from agent.context import MessageStore
from agent.errors import ContextOverflow, ModelError, ModelUnreachable
from agent.llm.base import Interrupted
from agent.observe.events import Events
from agent.values import End, Outcome, Plan, Span, Usage

ALL = pytest.mark.parametrize("wire", sorted(WIRES))
LONG = "The quick brown fox jumps over the lazy dog. " * 20  # about 200 tokens
PRICE = {"input": 2.0, "output": 10.0}


def rows(folder):
    path = folder / "requests.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def plan(store, tokens=700):
    return Plan((Span(store.get_current_context_file()),), tokens=tokens)


def begun(wire, server, folder, **more):
    folder.mkdir(exist_ok=True)
    client, store = client_for(wire, server.url, folder, price=PRICE, **more)
    store.add_message("system", "Be careful.")
    store.add_message("user", "u")
    return client, store


@ALL
def test_what_is_reported_counts_and_has_its_price(tmp_path, wire):
    with Script(says(wire, "hello")) as server:
        client, store = begun(wire, server, tmp_path)
        client.get_response(plan(store))
        client.close()
    (row,) = rows(tmp_path)
    assert row["usage"] == Usage(100, 20).to_dict()
    assert (row["status"], row["estimated"], row["cost"], row["provider"]) == ("ok", False, 400 / 1e6, wire)
    assert 0 <= row["first_token_ms"] <= row["duration_ms"]
    assert store.last()["request"] == 1
    assert store.totals().cost == 400 / 1e6


@ALL
def test_where_nothing_is_reported_the_estimate_counts_and_says_so(tmp_path, wire):
    with Script(says(wire, LONG, usage=None)) as server:
        client, store = begun(wire, server, tmp_path)
        client.get_response(plan(store))
        client.close()
    (row,) = rows(tmp_path)
    assert row["estimated"] is True
    assert row["usage"]["prompt_tokens"] == 700
    assert 150 < row["usage"]["completion_tokens"] < 300
    totals = store.totals()
    assert (totals.prompt, totals.estimated) == (700, totals.tokens)
    assert totals.cost == pytest.approx((700 * 2 + totals.completion * 10) / 1e6)
    assert "usage" not in store.last(), "an estimate is not the provider's number"


@ALL
def test_a_count_of_the_prompt_alone_is_completed(tmp_path, wire):
    with Script(says(wire, LONG, usage=(640, 0))) as server:
        client, store = begun(wire, server, tmp_path)
        client.get_response(plan(store))
        client.close()
    (row,) = rows(tmp_path)
    assert row["usage"]["prompt_tokens"] == 640
    assert 150 < row["usage"]["completion_tokens"] < 300
    assert row["estimated"] is True
    assert row["estimated_tokens"] == row["usage"]["completion_tokens"]
    assert store.last()["usage"] == row["usage"]


@ALL
def test_a_place_holder_is_no_count_of_the_prompt(tmp_path, wire):
    with Script(says(wire, "hello", usage=(1, 20))) as server:
        client, store = begun(wire, server, tmp_path)
        client.get_response(plan(store))
        client.close()
    (row,) = rows(tmp_path)
    assert row["usage"] == Usage(700, 20).to_dict()
    assert (row["estimated"], row["estimated_tokens"]) == (True, 700)
    assert "usage" not in store.last(), "an estimate is not the provider's number"


def test_a_later_0_never_overwrites_a_number(tmp_path):
    """envoyproxy/ai-gateway PR#1631 (Anthropic: zeros in message_delta), and the same in OpenAI's chunks."""
    start = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 600, "output_tokens": 20}}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}}
    zero = {"input_tokens": 0, "output_tokens": 0}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": zero}
    events = [sse(one, one["type"]) for one in (start, block, text, end, {"type": "message_stop"})]
    said = Reply(events, headers={"Content-Type": "text/event-stream"})
    with Script(said) as server:
        client, store = begun("anthropic", server, tmp_path / "a")
        client.get_response(plan(store))
    assert rows(tmp_path / "a")[0]["usage"] == Usage(600, 20).to_dict()
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}
    counts = [{"prompt_tokens": 600, "completion_tokens": 20}, {"prompt_tokens": 600, "completion_tokens": 0}]
    events = [sse(chunk), *(sse({"choices": [], "usage": one}) for one in counts), b"data: [DONE]\n\n"]
    with Script(Reply(events, headers={"Content-Type": "text/event-stream"})) as server:
        client, store = begun("openai", server, tmp_path / "o")
        client.get_response(plan(store))
    assert rows(tmp_path / "o")[0]["usage"] == Usage(600, 20).to_dict()


def test_the_place_holder_of_message_start_is_not_the_count_of_a_long_answer(tmp_path):
    """message_start says output_tokens 1, and message_delta tells nothing."""
    reply = says("anthropic", LONG)
    reply.body = [piece.replace(b'"usage": {"output_tokens": 20}', b'"usage": {}') for piece in reply.body]
    with Script(reply) as server:
        client, store = begun("anthropic", server, tmp_path)
        client.get_response(plan(store))
    assert 150 < rows(tmp_path)[0]["usage"]["completion_tokens"] < 300


@pytest.mark.parametrize(
    ("usage", "place", "known"),
    [
        # thinking is in the total only: mozilla-ai/any-llm#1290, router-for-me/CLIProxyAPI#5733
        ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}, "chunk", Usage(20, 603, 0, 405)),
        ({"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81}, "chunk", Usage(21, 60, 0, 60)),
        # in the choice: earendil-works/pi#2017
        ({"prompt_tokens": 20, "completion_tokens": 9, "cached_tokens": 12}, "choice", Usage(20, 9, 12)),
        ({"prompt_tokens": 20, "completion_tokens": 9}, "x_groq", Usage(20, 9)),
    ],
)
def test_servers_report_in_other_places(tmp_path, usage, place, known):
    choice = {"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}
    chunk = {"choices": [choice | ({"usage": usage} if place == "choice" else {})]}
    chunk |= {"usage": usage} if place == "chunk" else {"x_groq": {"usage": usage}} if place == "x_groq" else {}
    with Script(Reply([sse(chunk), b"data: [DONE]\n\n"], headers={"Content-Type": "text/event-stream"})) as server:
        client, store = begun("openai", server, tmp_path)
        client.get_response(plan(store, tokens=25))
    assert (rows(tmp_path)[0]["usage"], rows(tmp_path)[0]["estimated"]) == (known.to_dict(), False)


@ALL
def test_every_try_has_its_line_whatever_became_of_it(tmp_path, wire):
    """Refused, cut after half of it, silent, and at last answered: four requests seen, four counted."""
    busy = Reply({"error": {"message": "overloaded", "type": "overloaded_error"}}, 503)
    half = says(wire, LONG, done=False, cut=True)
    silent = Reply([], headers={"Content-Type": WIRES[wire][1]}, hold=5)
    failed = []
    with Script(busy, half, silent, says(wire, "hello")) as server, clock.use(clock.FakeClock()):
        client, store = begun(wire, server, tmp_path, idle_timeout=0.3)
        store.requests.events = Events([lambda name, fields: failed.append((name, fields["status"]))])
        assert client.get_response(plan(store))[0] == "hello"
        server.released.set()
        client.close()
    assert len(server.asked) == 4
    assert [row["status"] for row in rows(tmp_path)] == ["refused", "cut", "stalled", "ok"]
    refused, cut, stalled, _ = rows(tmp_path)
    assert (refused["usage"], refused["cost"]) == (Usage().to_dict(), 0)
    assert "503" in refused["error"]
    assert 150 < cut["usage"]["completion_tokens"] < 300
    assert (stalled["usage"]["prompt_tokens"], stalled["usage"]["completion_tokens"]) == (700, 0)
    assert cut["estimated"]
    assert stalled["estimated"]
    assert failed == [("request_failed", status) for status in ("refused", "cut", "stalled")]
    totals = store.totals()
    assert (totals.llm_calls, totals.turns) == (4, 1)
    assert totals.tokens == sum(sum(list(row["usage"].values())[:2]) for row in rows(tmp_path))


def test_who_is_not_reached_was_sent_nothing_and_who_stops_is_told(tmp_path):
    with Script(says("openai", LONG, done=False, hold=5)) as server:
        stop = Stop(Outcome(End.STOPPED), looks=1)
        client, store = begun("openai", server, tmp_path, control=stop)
        with pytest.raises(Interrupted):
            client.get_response(plan(store))
        server.released.set()
        (row,) = rows(tmp_path)
        assert (row["status"], row["usage"]["prompt_tokens"], row["error"]) == ("cancelled", 100, "Interrupted")
        assert row["usage"]["completion_tokens"] > 150, "what had come of the answer is paid"
        client.close()
    with clock.use(clock.FakeClock()), pytest.raises(ModelUnreachable):
        client_for("openai", server.url, tmp_path, store)[0].get_response(plan(store))
    assert len(rows(tmp_path)) == 1
    assert (tmp_path / ".requests.begun").stat().st_size == 0


@ALL
def test_a_prompt_that_is_too_long_and_a_refusal_that_teaches_are_requests_too(tmp_path, wire):
    long = Reply(
        {"error": {"message": "maximum context length is 4096 tokens", "code": "context_length_exceeded"}}, 400
    )
    most = Reply({"error": {"message": "max_tokens: 9000 > 1000, the maximum"}}, 400)
    with Script(long, most, says(wire, "hello")) as server:
        client, store = begun(wire, server, tmp_path, max_output_tokens=9000)
        with pytest.raises(ContextOverflow):
            client.get_response(plan(store))
        client.get_response(plan(store))
        client.close()
    assert [row["status"] for row in rows(tmp_path)] == ["refused", "refused", "ok"]


def test_a_gate_is_asked_before_every_request_but_the_first_of_a_turn(tmp_path):
    busy = Reply({"error": {"message": "overloaded"}}, 503)
    over = Outcome(End.LIMIT, code="limit_tokens")
    with Script(says("openai", "one"), busy, says("openai", "two")) as server, clock.use(clock.FakeClock()):
        client, store = begun("openai", server, tmp_path)
        client.gate = lambda: over
        client.get_response(plan(store))
        (tmp_path / "x.txt").write_text("x")
        with pytest.raises(Interrupted, match="limit"):
            client.get_summary(tmp_path / "x.txt")
        store.add_message("user", "u")
        with pytest.raises(Interrupted, match="limit"):
            client.get_response(plan(store))
        client.close()
    assert len(server.asked) == 2


# --- outside the conversation ----------------------------------------------------------------------------------


def chosen(wire, body):
    """(names of the tools, what says that one must be called) as sent."""
    names = [tool.get("name") or tool["function"]["name"] for tool in body.get("tools", ())]
    return names, body.get("tool_choice")


VOTE = {
    "type": "function",
    "function": {"name": "vote", "description": "Vote.", "parameters": {"type": "object", "properties": {}}},
}
NAMED = {
    "openai": (["read_file", "vote"], {"type": "function", "function": {"name": "vote"}}),
    "lmstudio": (["vote"], "required"),  # lmstudio-ai/lmstudio-bug-tracker#670
    "ollama": (["vote"], None),
    "anthropic": (["read_file", "vote"], {"type": "tool", "name": "vote"}),
}
REQUIRED = {"openai": "required", "lmstudio": "required", "ollama": None, "anthropic": {"type": "any"}}


@ALL
def test_a_request_outside_the_conversation_has_its_own_system_text_tools_and_choice(tmp_path, wire):
    call = {"id": "call_1", "name": "vote", "arguments": {"vote": "APPROVE"}}
    folder = tmp_path / "votes"
    folder.mkdir()
    seen = []

    def judge(request):
        seen.append(sorted(path.name for path in folder.iterdir()))
        return says(wire, "", [call])

    with Script(judge) as server:
        client, store = begun(wire, server, tmp_path, tools=[TOOL])
        before = (tmp_path / "messages.jsonl").read_bytes()
        more = {"purpose": "vote", "system": "You are a judge.", "tools": [TOOL, VOTE], "folder": folder}
        asked = [
            {"role": "user", "content": "Look at it."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "A"},
            {"role": "user", "content": "Now vote. \ud83d"},
        ]
        answer = client.ask_aside(asked, tool_choice="vote", **more)
        client.ask_aside(asked, tool_choice={"type": "function", "function": {"name": "vote"}}, **more)
        client.ask_aside(asked[:1], tool_choice="required", **more)
        client.ask_aside(asked[:1], tool_choice="none", **{**more, "tools": []})
        client.close()
    assert answer.calls == ({"id": "call_1", "name": "vote", "arguments": {"vote": "APPROVE"}},)
    first, second, third, fourth = (request.json for request in server.asked)
    assert first == second
    assert chosen(wire, first) == NAMED[wire]
    assert chosen(wire, third)[1] == REQUIRED[wire]
    assert chosen(wire, fourth) == ([], None)
    roles = [message["role"] for message in first["messages"]]
    assert roles == (
        ["user", "assistant", "user"] if wire == "anthropic" else ["system", "user", "assistant", "tool", "user"]
    )
    assert "You are a judge." in json.dumps(first)
    assert b"cache_control" not in server.asked[0].body
    assert (tmp_path / "messages.jsonl").read_bytes() == before
    assert (client.last, list(folder.iterdir())) == (None, [])
    assert all(len(names) == 2 and names[0].startswith("request-") for names in seen)
    assert [(row["purpose"], row["status"]) for row in rows(tmp_path)] == [("vote", "ok")] * 4
    assert (store.totals().llm_calls, store.totals().turns) == (4, 0)


@ALL
def test_several_may_be_asked_at_once_beside_the_conversation(tmp_path, wire):
    """Three judges at once: the server answers none before it has all of them."""
    met = threading.Barrier(3, timeout=20)

    def judge(request):
        met.wait()
        word = next(word for word in ("one", "two", "three") if word in request.body.decode())
        return says(wire, word)

    with Script(judge) as server:
        client, store = begun(wire, server, tmp_path)
        got = {}

        def ask(word):
            asked = [{"role": "user", "content": word}]
            got[word] = client.ask_aside(asked, purpose="vote").text

        threads = [threading.Thread(target=ask, args=(word,)) for word in ("one", "two", "three")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.replies = [says(wire, "hello")]
        assert client.get_response(plan(store))[0] == "hello"
        client.close()
    assert got == {"one": "one", "two": "two", "three": "three"}
    assert [row["seq"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("request")) == ["requests.jsonl"]


def test_a_refusal_outside_the_conversation_leaves_nothing_behind(tmp_path):
    heard = Heard()
    with Script(Reply({"error": {"message": "no"}}, 400)) as server:
        client, _ = begun("openai", server, tmp_path, events=heard)
        with pytest.raises(ModelError, match="no"):
            client.ask_aside([{"role": "user", "content": "x"}], purpose="memory")
        client.close()
    assert heard.named("request_sent")[0]["purpose"] == "memory"
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("request-")]
    assert MessageStore(tmp_path, {}).totals().llm_calls == 1
