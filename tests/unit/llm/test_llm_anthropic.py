"""Anthropic's wire: system apart, blocks, turns, cache marks, its stream."""

import json
import re
from functools import partial

import pytest
from llm_servers import TOOL, Reply, anthropic_events, call, conversations, says, sse

from agent import clock
from agent.errors import ContextOverflow, ModelStalled, QuotaExhausted
from agent.llm.call_ids import ANTHROPIC, translate_id
from agent.values import Plan, Span


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path) as start:
        yield partial(start, "anthropic")


def test_results_and_what_a_person_says_are_blocks_of_one_user_turn(talk):
    calls = (call("read_file", {"path": "a"}, "toolu_1"), call("read_file", {"path": "b"}, "toolu_2"))
    client, store, server = talk(says("anthropic", "I look", calls), says("anthropic", "done"), tools=[TOOL])
    client.send_system_prompt("Be careful.")
    client.send_user_message("Fix it")
    client.get_response()
    store.add_message("tool", "A", tool_call_id="toolu_1")
    store.add_message("tool", "B", tool_call_id="toolu_2")
    store.add_message("user", "hurry")
    client.get_response()
    body = server.asked[-1].json
    assert body["system"] == [{"type": "text", "text": "Be careful.", "cache_control": {"type": "ephemeral"}}]
    assert body["tools"] == [
        {"name": "read_file", "description": "Read a file.", "input_schema": TOOL["function"]["parameters"]}
    ]
    assert body["max_tokens"] > 0
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a"}},
        {"type": "tool_use", "id": "toolu_2", "name": "read_file", "input": {"path": "b"}},
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "A"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "B"},
        {"type": "text", "text": "hurry", "cache_control": {"type": "ephemeral"}},
    ]


def test_the_headers_and_the_path_are_anthropics(talk):
    client, store, server = talk(says("anthropic", "x"), api_key="sk-ant-test", path="/v1/")
    store.add_message("user", "u")
    client.get_response()
    request = server.asked[0]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "sk-ant-test"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers


def test_ids_of_another_wire_are_made_legal_on_both_sides(talk):
    client, store, server = talk(says("anthropic", "x"), tools=[TOOL])
    store.add_message("user", "u")
    store.add_message(
        "assistant", "", tool_calls=[{"id": "functions.read_file:0", "name": "read_file", "arguments": {}}]
    )
    store.add_message("tool", "A", tool_call_id="functions.read_file:0")
    client.get_response()
    turns = server.asked[0].json["messages"]
    sent = turns[1]["content"][0]["id"]
    assert sent == turns[2]["content"][0]["tool_use_id"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", sent)
    assert sent != translate_id("functions_read_file:0", ANTHROPIC)


def test_usage_counts_what_was_read_from_the_cache(talk):
    usage = {"input_tokens": 10, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 90, "output_tokens": 1}
    pieces = anthropic_events("hello")
    pieces[0] = sse({"type": "message_start", "message": {"model": "claude", "usage": usage}}, "message_start")
    client, store, _ = talk(Reply(pieces))
    store.add_message("user", "u")
    client.get_response()
    assert (client.last.usage.prompt, client.last.usage.completion, client.last.usage.cached) == (600, 20, 500)
    assert client.last.model == "claude"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
    ],
)
def test_reasons_are_translated(talk, reason, finish):
    client, store, _ = talk(Reply(anthropic_events("x", finish=reason)))
    store.add_message("user", "u")
    client.get_response()
    assert client.last.finish_reason == finish


def test_thinking_is_kept_apart(talk):
    thinking = [
        sse(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            "content_block_start",
        ),
        sse(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
            "content_block_delta",
        ),
        sse(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x"}},
            "content_block_delta",
        ),
        sse({"type": "content_block_stop", "index": 0}, "content_block_stop"),
    ]
    start, ping, *rest = anthropic_events("yes")
    client, store, _ = talk(Reply([start, ping, *thinking, *rest]))
    store.add_message("user", "u")
    assert client.get_response()[0] == "yes"
    assert client.last.reasoning == "hm"


def test_a_whole_message_is_read_too(talk):
    message = {
        "type": "message",
        "model": "c",
        "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    client, store, _ = talk(Reply(message))
    store.add_message("user", "u")
    assert client.get_response() == ("a", [{"id": "t", "name": "f", "arguments": {"x": 1}}])


def test_a_call_without_arguments_has_an_empty_object(talk):
    client, store, _ = talk(Reply(anthropic_events("", (call("now", ""),))))
    store.add_message("user", "u")
    assert client.get_response()[1][0]["arguments"] == {}


def test_overload_inside_the_stream_is_tried_again(talk):
    start = anthropic_events("x")[0]
    overloaded = sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error")
    client, store, server = talk(Reply([start, overloaded]), says("anthropic", "x"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "x"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", ContextOverflow),
        ("Your credit balance is too low to access the Anthropic API.", QuotaExhausted),
    ],
)
def test_its_errors_are_typed(talk, message, kind):
    client, store, _ = talk(
        Reply({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, 400)
    )
    store.add_message("user", "u")
    with pytest.raises(kind):
        client.get_response()


def test_a_stream_without_its_end_is_no_answer(talk):
    client, store, _ = talk(Reply(anthropic_events("x")[:-1]))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()), pytest.raises(ModelStalled):
        client.get_response()
    assert store.count_messages() == 1


def test_a_turn_that_begins_with_an_assistant_gets_a_user_first(talk):
    client, store, server = talk(says("anthropic", "x"))
    path = store.context_dir / "odd.jsonl"
    path.write_text('{"role":"assistant","content":"so far"}\n{"role":"user","content":"b"}\n')
    client.get_response(Plan((Span(path),)))
    assert [turn["role"] for turn in server.asked[0].json["messages"]] == ["user", "assistant", "user"]
    assert "system" not in server.asked[0].json


def test_a_blank_result_is_a_block_without_content(talk):
    client, store, server = talk(says("anthropic", "x"))
    path = store.context_dir / "odd.jsonl"
    lines = [
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": " "},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    client.get_response(Plan((Span(path),)))
    assert server.asked[0].json["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "cache_control": {"type": "ephemeral"}}
    ]
