"""How an answer ends, and what stands between its events: all that SSE allows, and every word for an end.

Sources: netease-lcap/wave-agent PR#1326, QuantumNous/new-api PR#1276 (heartbeats), earendil-works/pi#6226 (no reason),
pydantic/pydantic-ai#5221, microsoft/agent-framework#8475 (reasons).
"""

import json

import pytest
from llm_servers import TOOL, WIRES, Reply, anthropic_events, call, conversations, ollama_lines, openai_events, sse

from agent import clock
from agent.errors import AnswerUnreadable, ModelStalled

KIND = {"Content-Type": "text/event-stream"}
CALLS = [call("read_file", {"path": "a.py"})]


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path, ("system", "You help."), ("user", "Go.")) as start:
        yield start


NOISE = [
    b"data:\n\n",
    b"data: \n\n",
    b"data\n\n",
    b": keep-alive\n\n",
    b":\n",
    b"event: ping\ndata:\n\n",
    b"event: ping\ndata: 1767225600\n\n",
    b"event: heartbeat\ndata: alive and well\n\n",
    b"data: ping\n\n",
    b"data: null\n\n",
    b"data: {}\n\n",
    b"data: []\n\n",
    b"retry: 3000\n\n",
    b"id: 7\n",
    b"event: \n",
    b"\n\n\n",
    b"unknown: field\n",
]


def with_noise(pieces, noise):
    return [noise, *(part for piece in pieces for part in (piece, noise))]


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("make", [openai_events, anthropic_events])
def test_what_is_no_part_of_the_answer_is_skipped(make, noise, talk):
    wire = "openai" if make is openai_events else "anthropic"
    client, _, _ = talk(wire, Reply(with_noise(make("I look.", CALLS), noise), headers=KIND), tools=[TOOL])
    text, calls = client.get_response()
    assert (text, calls[0]["arguments"]) == ("I look.", {"path": "a.py"})


@pytest.mark.parametrize("how", ["one data line each", "pretty", "CR", "CRLF", "mark", "no empty lines"])
@pytest.mark.parametrize("make", [openai_events, anthropic_events])
def test_every_form_of_an_event_is_read(make, how, talk):
    wire = "openai" if make is openai_events else "anthropic"
    body = b"".join(make("I look.", CALLS))
    if how == "pretty":
        values = [piece.rpartition(b"data: ")[2].strip() for piece in make("I look.", CALLS)]
        texts = [value if value == b"[DONE]" else json.dumps(json.loads(value), indent=1).encode() for value in values]
        body = b"".join(b"data: " + text.replace(b"\n", b"\ndata: ") + b"\n\n" for text in texts)
    elif how in ("CR", "CRLF"):
        body = body.replace(b"\n", b"\r" if how == "CR" else b"\r\n")
    elif how == "mark":
        body = b"\xef\xbb\xbf" + body
    elif how == "no empty lines":
        body = body.replace(b"\n\n", b"\n")
    client, _, _ = talk(wire, Reply(body, headers=KIND), tools=[TOOL])
    text, calls = client.get_response()
    assert (text, calls[0]["arguments"]) == ("I look.", {"path": "a.py"})


def without_reason(pieces):
    """The same without a word about why it ended."""
    for piece in pieces:
        head, _, data = piece.partition(b"data: ")
        value = json.loads(data) if data.strip() != b"[DONE]" else None
        for choice in (value or {}).get("choices", ()):
            choice["finish_reason"] = None
        if (value or {}).get("type") == "message_delta":
            value["delta"] = {}
        yield piece if value is None else head + b"data: " + json.dumps(value).encode() + b"\n\n"


@pytest.mark.parametrize("make", [openai_events, anthropic_events])
@pytest.mark.parametrize(("text", "calls", "reason"), [("", CALLS, "tool_calls"), ("Done.", (), "stop")])
def test_a_server_that_says_that_this_is_all_need_not_say_why(make, text, calls, reason, talk):
    wire = "openai" if make is openai_events else "anthropic"
    client, _, server = talk(wire, Reply(list(without_reason(make(text, calls))), headers=KIND), tools=[TOOL])
    said, made = client.get_response()
    assert (said, len(made), client.last.finish_reason) == (text, len(calls), reason)
    assert len(server.asked) == 1


@pytest.mark.parametrize("make", [openai_events, anthropic_events])
@pytest.mark.parametrize("what", ["cut connection", "half a call", "nothing"])
def test_what_is_not_whole_is_no_answer(make, what, talk, frozen):
    wire = "openai" if make is openai_events else "anthropic"
    calls = [call("read_file", '{"path": "a.p')] if what == "half a call" else ()
    pieces = list(without_reason(make("" if what != "cut connection" else "Half of", calls)))
    if what == "cut connection":
        pieces = pieces[:-1]  # without [DONE], message_stop
    client, store, _ = talk(wire, Reply(pieces, headers=KIND, cut=what == "cut connection"), tools=[TOOL])
    with pytest.raises(ModelStalled):
        client.get_response()
    assert store.last_seq == 2


@pytest.fixture
def frozen():
    with clock.use(clock.FakeClock()):
        yield


REASONS = {
    "eos": "stop",
    "COMPLETE": "stop",
    "function_call": "tool_calls",
    "model_length": "length",
    "MAX_TOKENS": "length",
    "FINISH_REASON_MAX_TOKENS": "length",
    "content_filter": "content_filter",
    "content_filter: RECITATION": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
    "sensitive": "content_filter",
    "pause_turn": "pause_turn",
    "a reason of next year": "a reason of next year",
}


@pytest.mark.parametrize("wire", ["openai", "anthropic", "ollama"])
@pytest.mark.parametrize(("reason", "ours"), REASONS.items())
def test_every_word_for_an_end_is_one_of_ours_or_stays_itself(wire, reason, ours, talk):
    if wire == "ollama":
        pieces = ollama_lines("I think that")
        last = json.loads(pieces[-1]) | {"done_reason": reason}
        reply = Reply([*pieces[:-1], json.dumps(last).encode()])
    else:
        make = openai_events if wire == "openai" else anthropic_events
        reply = Reply(make("I think that", finish=reason), headers={"Content-Type": WIRES[wire][1]})
    client, store, _ = talk(wire, reply)
    client.get_response()
    assert client.last.finish_reason == ours
    assert store.last()["finish_reason"] == ours


@pytest.mark.parametrize("reason", ["insufficient_system_resource", "abort", "network_error", "ERROR"])
def test_an_answer_that_its_server_broke_off_is_asked_for_again_and_told_with_its_word(reason, talk, frozen):
    half = Reply(openai_events("Half of", finish=reason), headers=KIND)
    client, store, server = talk("openai", half)
    with pytest.raises(ModelStalled, match=reason):
        client.get_response()
    assert (len(server.asked), store.last_seq) == (3, 2)


def test_a_call_that_the_server_could_not_read_is_asked_for_again(talk, frozen):
    broken = Reply(openai_events("", finish="function_call_filter: MALFORMED_FUNCTION_CALL"), headers=KIND)
    client, _, server = talk("openai", broken, Reply(openai_events("Done."), headers=KIND))
    assert client.get_response()[0] == "Done."
    assert len(server.asked) == 2


def test_the_word_null_is_no_reason(talk):
    pieces = [
        sse({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": "null"}]}) for word in ("a", "b")
    ]
    done = sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    client, _, _ = talk("openai", Reply([*pieces, done, b"data: [DONE]\n\n"], headers=KIND))
    assert client.get_response()[0] == "ab"
    assert client.last.finish_reason == "stop"


def test_a_summary_that_a_filter_cut_is_not_used(talk, tmp_path):
    (tmp_path / "prompt.txt").write_text("Sum up.")
    client, _, _ = talk("openai", Reply(openai_events("The task was", finish="content_filter"), headers=KIND))
    with pytest.raises(AnswerUnreadable, match="content_filter"):
        client.get_summary(tmp_path / "prompt.txt")
