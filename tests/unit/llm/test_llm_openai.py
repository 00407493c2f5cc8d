"""OpenAI's wire: what is sent, what is swapped, and what a real llama.cpp server answers unlike OpenAI."""

import json
from pathlib import Path

import jsonschema
import pytest
from llm_servers import TOOL, Reply, call, conversations, openai_events, says, sse

from agent import clock
from agent.errors import (
    AnswerUnreadable,
    ConfigError,
    ContextOverflow,
    HistoryRefused,
    ModelStalled,
    ModelUnreachable,
    RateLimited,
    RequestRefused,
)
from agent.values import Plan, Span

DOCUMENT = json.loads((Path(__file__).parents[2] / "specs" / "openai-chat.json").read_text())
REQUEST = {"$ref": "#/components/schemas/CreateChatCompletionRequest", "components": DOCUMENT["components"]}
CHUNK = {"$ref": "#/components/schemas/CreateChatCompletionStreamResponse", "components": DOCUMENT["components"]}


@pytest.fixture
def talk(tmp_path):
    """talk(reply, …) → (client, store, server); `url` and other keys go to the provider's configuration."""
    with conversations(tmp_path) as start:
        yield lambda *replies, wire="openai", **more: start(wire, *replies, **more)


def plan_of(store, **numbers):
    return Plan((Span(store.get_current_context_file()),), **numbers)


def refusal(message, code=None, status=400, param=None):
    return Reply({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}, status)


def test_every_request_of_a_tool_loop_is_valid_by_openais_document(talk):
    client, store, server = talk(
        says("openai", "I look", (call("read_file", {"path": "x"}, "a"), call("read_file", "{bad", "b"))),
        says("openai", "done"),
        tools=[TOOL],
    )
    client.send_system_prompt("s")
    client.send_user_message("u \u2028 \U0001f600")
    _, calls = client.get_response(plan_of(store, output=500))
    for one in calls:
        store.add_message("tool", None, tool_call_id=one["id"])
    client.get_response(plan_of(store, output=500))
    validator = jsonschema.Draft202012Validator(REQUEST)
    for request in server.asked:
        assert [error.message for error in validator.iter_errors(request.json)] == []
        assert request.json["stream"] is True
        assert request.json["stream_options"] == {"include_usage": True}
        assert request.json["tools"] == [TOOL]


def test_the_official_types_accept_every_message(talk):
    openai_types = pytest.importorskip("openai.types.chat")
    from pydantic import TypeAdapter

    client, _store, server = talk(
        says("openai", "", (call("read_file", {"path": "x"}),)), says("openai", "done"), tools=[TOOL]
    )
    client.send_system_prompt("s")
    client.send_user_message("u")
    client.get_response()
    client.send_function_result("read_file", "text")
    client.get_response()
    adapter = TypeAdapter(list[openai_types.ChatCompletionMessageParam])
    adapter.validate_python(server.asked[-1].json["messages"])


def test_the_scripted_stream_is_valid_by_openais_document():
    validator = jsonschema.Draft202012Validator(CHUNK)
    for piece in openai_events("hello", (call("f", {"a": 1}),))[:-1]:
        assert [error.message for error in validator.iter_errors(json.loads(piece.removeprefix(b"data: ")))] == []


def test_without_tools_there_is_no_key_for_them(talk):
    client, store, server = talk(says("openai", "x"))
    store.add_message("user", "u")
    client.get_response()
    assert "tools" not in server.asked[0].json
    assert server.asked[0].json["max_tokens"] == 2048, "a quarter of the window, where nobody says more"


def test_system_is_the_role_of_the_system_prompt_everywhere(talk):
    client, _store, server = talk(says("openai", "x"))
    client.send_system_prompt("s")
    client.send_user_message("u")
    client.get_response()
    assert server.asked[0].json["messages"][0]["role"] == "system"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_base_url_is_taken_with_and_without_version(talk, path):
    client, store, server = talk(says("openai", "x"), path=path)
    store.add_message("user", "u")
    client.get_response()
    assert server.asked[0].path == "/v1/chat/completions"


def test_a_limit_that_is_not_supported_is_swapped_once_and_remembered(talk):
    client, store, server = talk(
        refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "unsupported_parameter",
            param="max_tokens",
        ),
        says("openai", "a"),
        says("openai", "b"),
    )
    store.add_message("user", "u")
    client.get_response(plan_of(store, output=100))
    store.add_message("user", "v")
    client.get_response(plan_of(store, output=100))
    limits = [{key for key in request.json if key.startswith("max_")} for request in server.asked]
    assert limits == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]


def test_a_limit_that_is_refused_under_both_names_is_left_out_and_then_it_is_an_error(talk):
    words = "Unsupported parameter: max_tokens max_completion_tokens"
    client, store, server = talk(refusal(words, "unsupported_parameter"))
    store.add_message("user", "u")
    with pytest.raises(RequestRefused):
        client.get_response(plan_of(store, output=100))
    names = [{"max_tokens", "max_completion_tokens"} & set(request.json) for request in server.asked]
    assert names == [{"max_tokens"}, {"max_completion_tokens"}, set()]
    assert json.loads(server.asked[-1].body)["messages"]


def test_a_limit_that_is_refused_in_unknown_words_is_lowered_to_the_number_in_them(talk):
    client, store, server = talk(refusal("max_tokens: 1024 is our ceiling, you sent 2048", "E7"), says("openai", "x"))
    store.add_message("user", "u")
    assert client.get_response()[0] == "x"
    assert [request.json["max_tokens"] for request in server.asked] == [2048, 1024]


def test_a_limit_over_what_the_model_writes_is_lowered_and_remembered(talk):
    client, store, server = talk(
        refusal(
            "max_tokens is too large: 339835. This model supports at most 65537 completion tokens, whereas you provided 339835."
        ),
        says("openai", "a"),
    )
    store.add_message("user", "u")
    client.get_response(plan_of(store, output=339_835))
    assert server.asked[-1].json["max_tokens"] == 65_537


def test_the_configured_limit_holds_over_the_plans(talk):
    client, store, server = talk(says("openai", "a"), max_output_tokens=50)
    store.add_message("user", "u")
    client.get_response(plan_of(store, output=100))
    assert server.asked[0].json["max_tokens"] == 50


def test_a_server_that_knows_no_stream_options_is_not_asked_for_usage_again(talk):
    client, store, server = talk(refusal("Extra inputs are not permitted: stream_options"), says("openai", "a"))
    store.add_message("user", "u")
    client.get_response()
    store.add_message("user", "v")
    client.get_response()
    assert ["stream_options" in request.json for request in server.asked] == [True, False, False]


def test_more_than_128_tools_are_a_configuration_error(talk):
    client, store, server = talk(says("openai", "x"))
    client.tools = [{**TOOL, "function": {**TOOL["function"], "name": f"t{n}"}} for n in range(129)]
    store.add_message("user", "u")
    with pytest.raises(ConfigError, match="128"):
        client.get_response()
    assert server.asked == []


def test_neighbours_of_one_side_are_merged_for_local_templates(talk):
    client, _store, server = talk(says("openai", "a"))
    client.send_system_prompt("s")
    client.send_user_message("first")
    client.send_user_message("second")
    client.get_response()
    assert server.asked[0].json["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "first\n\nsecond"},
    ]


def test_a_template_that_counts_turns_gets_a_word_between_result_and_nudge(talk):
    client, store, server = talk(
        says("openai", "", (call("read_file", {}),)),
        refusal(
            "Error rendering prompt with jinja template: conversation roles must alternate user/assistant/user/assistant/..."
        ),
        says("openai", "done"),
        tools=[TOOL],
    )
    store.add_message("user", "u")
    client.get_response()
    client.send_function_result("read_file", "text")
    client.send_user_message("go on")
    assert client.get_response()[0] == "done"
    assert [message["role"] for message in server.asked[-1].json["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    store.add_message("user", "more")
    client.get_response()
    assert len(server.asked) == 4


def test_a_history_that_is_refused_for_another_reason_is_raised_at_once(talk):
    client, store, server = talk(
        refusal(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        )
    )
    store.add_message("user", "u")
    with pytest.raises(HistoryRefused):
        client.get_response()
    assert len(server.asked) == 1


def test_only_reasoning_is_an_answer_without_text_and_is_not_replayed(talk):
    pieces = [
        sse({"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "let me "}}]}),
        sse({"choices": [{"index": 0, "delta": {"reasoning": "think"}}]}),
        sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}),
        b"data: [DONE]\n\n",
    ]
    client, store, server = talk(Reply(pieces), says("openai", "x"))
    store.add_message("user", "u")
    assert client.get_response() == ("", [])
    assert client.last.reasoning == "let me think"
    store.add_message("user", "v")
    client.get_response()
    assert b"let me think" not in server.asked[-1].body


def test_think_tags_in_the_text_are_told_apart_from_the_answer(talk):
    """Aider-AI/aider#3613."""
    client, store, server = talk(says("openai", "<think>\nhm\n</think>\n\nyes"), says("openai", "x"))
    store.add_message("user", "u")
    assert client.get_response()[0] == "yes"
    assert client.last.reasoning == "hm"
    record = json.loads((store.context_dir / "messages.jsonl").read_text().splitlines()[-1])
    assert (record["content"], record["provider_fields"]["kept"]) == ("yes", {"reasoning": "hm"})
    store.add_message("user", "v")
    client.get_response()
    assert b"hm" not in server.asked[-1].body


def test_cached_tokens_are_taken_from_the_details(talk):
    pieces = openai_events("x", usage=None)[:-1]
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 32}}
    client, store, _ = talk(Reply([*pieces, sse({"choices": [], "usage": usage}), b"data: [DONE]\n\n"]))
    store.add_message("user", "u")
    client.get_response()
    assert (client.last.usage.prompt, client.last.usage.completion, client.last.usage.cached) == (50, 5, 32)


def test_a_count_of_zero_tokens_is_no_report(talk):
    client, store, _ = talk(says("openai", "x", usage=(0, 0)))
    store.add_message("user", "u")
    client.get_response()
    assert client.last.usage is None


def test_an_answer_that_is_not_streamed_is_read_too(talk):
    whole = {
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "hello",
                    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    client, store, _ = talk(Reply(whole))
    store.add_message("user", "u")
    assert client.get_response() == ("hello", [{"id": "a", "name": "f", "arguments": {}}])


@pytest.mark.parametrize("key", ["function_call", "tool_calls"])
def test_one_call_that_is_not_in_a_list_is_read(talk, key):
    """The form before tool calls, and a list that a proxy has taken apart."""
    function = {"name": "read_file", "arguments": '{"path": "a.py"}'}
    message = {"content": None, key: function if key == "function_call" else {"id": "c1", "function": function}}
    client, store, *_ = talk(Reply({"choices": [{"message": message, "finish_reason": "function_call"}]}))
    store.add_message("user", "Read a.py.")
    _, (only,) = client.get_response()
    assert (only["name"], only["arguments"], client.last.finish_reason) == ("read_file", {"path": "a.py"}, "tool_calls")


def test_a_rate_limit_is_waited_out(talk):
    client, store, server = talk(
        Reply({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, 429, {"Retry-After": "7"}),
        says("openai", "x"),
    )
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()) as fake:
        client.get_response()
    assert sum(fake.slept) >= 7
    assert len(server.asked) == 2


def test_a_rate_limit_that_stays_is_raised_with_its_wait(talk):
    client, store, server = talk(Reply({"error": "slow"}, 429, {"Retry-After": "3600"}))
    store.add_message("user", "u")
    with pytest.raises(RateLimited) as limited:
        client.get_response()
    assert limited.value.retry_after == 3600
    assert len(server.asked) == 1


def test_an_error_event_in_the_stream_is_typed_like_any_other(talk):
    event = b'event: error\ndata: {"error":{"message":"Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"}}\n\n'
    client, store, _ = talk(Reply([openai_events()[0], event]))
    store.add_message("user", "u")
    with pytest.raises(ContextOverflow) as overflow:
        client.get_response()
    assert (overflow.value.limit, overflow.value.requested) == (4096, 9000)
    assert store.count_messages() == 1


def test_a_line_that_is_not_json_is_sampled_again(talk):
    client, store, server = talk(Reply([b"data: {broken\n\n", b"data: [DONE]\n\n"]), says("openai", "x"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "x"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><title>Portal</title>",
        b"",
        {"object": "list", "data": []},
        [b": ping\n\n", b"data: [DONE]\n\n"],
    ],
)
def test_200_without_an_answer_is_never_taken_for_one(talk, body):
    client, store, _ = talk(Reply(body))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()), pytest.raises((AnswerUnreadable, ModelStalled)):
        client.get_response()
    assert store.count_messages() == 1


def test_a_redirect_is_not_followed(talk):
    client, store, server = talk(Reply(b"", 307, {"Location": "http://elsewhere.example/"}))
    store.add_message("user", "u")
    with pytest.raises(RequestRefused, match="redirect"):
        client.get_response()
    assert len(server.asked) == 1


def test_the_window_of_vllm_is_taken_from_its_list(talk):
    client, _, _ = talk(
        says("openai", "x"),
        routes={
            ("GET", "/v1/models"): Reply(
                {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 32768}]}
            )
        },
    )
    assert client.loaded_window() == 32768
    assert client.check().ok


@pytest.mark.parametrize(
    ("entry", "window", "asked"),
    [
        ({"id": "m", "owned_by": "vllm", "max_model_len": 32768}, 32768, ["/v1/models"]),
        ({"id": "m", "owned_by": "sglang"}, None, ["/v1/models"]),
        ({"id": "other", "owned_by": "vllm", "max_model_len": 1}, None, ["/v1/models"]),
        ({"id": "m", "owned_by": "llamacpp", "context_length": 9999}, 4096, ["/v1/models", "/props"]),
        ({"id": "m", "owned_by": ["vllm"]}, 4096, ["/v1/models", "/props"]),
    ],
)
def test_a_server_that_says_what_it_is_is_not_asked_what_it_does_not_know(talk, entry, window, asked):
    client, _, server = talk(
        says("openai", "x"),
        routes={
            ("GET", "/v1/models"): Reply({"data": [entry]}),
            ("GET", "/props"): Reply({"default_generation_settings": {"n_ctx": 4096}}),
        },
    )
    assert client.loaded_window() == window
    assert client.loaded_window() == window
    assert [one.path for one in server.journal] == asked


@pytest.mark.parametrize("data", [5, True, "models", {"id": "m"}, None])
def test_a_list_of_models_that_is_none_is_an_empty_one(talk, data):
    client, _, _ = talk(says("openai", "x"), routes={("GET", "/v1/models"): Reply({"data": data})})
    assert client.loaded_window() is None
    assert client.models() == []


def test_a_model_that_the_server_lacks_is_told_with_those_it_has(talk):
    client, _, _ = talk(says("openai", "x"), routes={("GET", "/v1/models"): Reply({"data": [{"id": "other"}]})})
    check = client.check()
    assert not check.ok
    assert check.text.endswith("it has other. Set llm.openai.model to one of them, or get it")


def test_azure_lists_no_deployments_so_that_one_is_not_missed(talk):
    routes = {("GET", "/openai/v1/models"): Reply({"data": [{"id": "gpt-4.1"}]})}
    client, _, _ = talk(says("openai", "x"), routes=routes, model="our-deployment", dialect="azure")
    check = client.check()
    assert check.ok
    assert "'our-deployment' could not be looked for" in check.text


def test_azure_behind_a_gateway_is_known_by_its_path(talk):
    client, store, server = talk(
        says("openai", "x"), path="/team/openai/deployments/d?api-version=2024-10-21", model="d", api_key="sk-12345678"
    )
    store.add_message("user", "Hello.")
    client.get_response()
    assert client.dialect.name == "azure"
    assert server.asked[-1].headers["api-key"] == "sk-12345678"
    assert server.asked[-1].path == "/team/openai/deployments/d/chat/completions?api-version=2024-10-21"


# --- a real llama.cpp server ----------------------------------------------------------------------------------


def test_llama_cpp_tells_the_window_of_one_slot(talk):
    client, _, server = talk(
        says("openai", "x"),
        routes={("GET", "/props"): Reply({"default_generation_settings": {"n_ctx": 4096}, "total_slots": 1})},
    )
    assert client.loaded_window() == 4096
    assert client.loaded_window() == 4096
    assert len(server.journal) == 2


def test_llama_cpp_that_loads_its_model_is_waited_for_minutes(talk):
    loading = Reply({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503)
    client, store, _server = talk(*[loading] * 12, says("openai", "x"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()) as fake:
        assert client.get_response()[0] == "x"
    assert sum(fake.slept) > 60


def test_llama_cpp_says_overflow_with_numbers(talk):
    client, store, _ = talk(
        Reply(
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 5004,
                    "n_ctx": 4096,
                }
            },
            400,
        )
    )
    store.add_message("user", "u")
    with pytest.raises(ContextOverflow) as overflow:
        client.get_response()
    assert (overflow.value.limit, overflow.value.requested) == (4096, 5004)


def test_llama_cpp_that_reaches_the_window_in_the_answer_says_length(talk):
    client, store, _ = talk(says("openai", "half", finish="length"))
    store.add_message("user", "u")
    client.get_response()
    assert client.last.finish_reason == "length"


def test_llama_cpp_streams_calls_with_null_content_and_bare_ids(talk):
    base = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "model": "gguf"}
    ident = "GxbrYUxkUnSQZyV5R6x5vlVbxKUKvkDH"

    def chunk(delta, finish=None):
        return sse({**base, "choices": [{"finish_reason": finish, "index": 0, "delta": delta}]})

    pieces = [
        chunk({"role": "assistant", "content": None}),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": ident, "type": "function", "function": {"name": "read_file", "arguments": "{"}}
                ]
            }
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"path"'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ':"a.py"}'}}]}),
        chunk({}, "tool_calls"),
        sse(
            {
                **base,
                "choices": [],
                "usage": {"completion_tokens": 20, "prompt_tokens": 168, "total_tokens": 188},
                "timings": {"prompt_n": 168},
            }
        ),
        b"data: [DONE]\n\n",
    ]
    client, store, server = talk(Reply(pieces), says("openai", "done"), tools=[TOOL])
    store.add_message("user", "u")
    assert client.get_response() == ("", [{"id": ident, "name": "read_file", "arguments": {"path": "a.py"}}])
    assert client.last.usage.prompt == 168
    client.send_function_result("read_file", "text")
    client.get_response()
    assert server.asked[-1].json["messages"][1]["tool_calls"][0]["id"] == ident


def test_llama_cpp_whole_message_with_empty_content_and_calls(talk):
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}, "id": "x" * 32}],
    }
    client, store, _ = talk(
        Reply(
            {
                "choices": [{"finish_reason": "tool_calls", "index": 0, "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1},
            }
        )
    )
    store.add_message("user", "u")
    assert client.get_response()[1][0]["id"] == "x" * 32


def test_llama_cpp_that_breaks_on_its_own_output_is_asked_again(talk):
    broken = Reply(
        {
            "error": {
                "code": 500,
                "message": "The model produced output that does not match the expected peg-native format",
                "type": "server_error",
            }
        },
        500,
    )
    client, store, server = talk(broken, says("openai", "x"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "x"
    assert len(server.asked) == 2


def test_llama_cpp_that_cannot_read_arguments_is_asked_again_since_those_in_the_history_are_whole(talk):
    """What is sent holds JSON objects only, so the arguments are those that the model has just written (their cause in
    public reports: an answer that was cut, vxcontrol/pentagi#313)."""
    words = "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error"
    ill = Reply({"error": {"code": 500, "message": words, "type": "server_error"}}, 500)
    client, store, server = talk(ill, says("openai", "well"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()):
        assert client.get_response() == ("well", [])
    assert len(server.asked) == 2


def test_a_trailing_assistant_message_is_never_sent_because_it_would_be_continued(talk):
    client, store, server = talk(says("openai", "x"))
    store.add_message("user", "u")
    store.add_message("assistant", "a")
    with pytest.raises(HistoryRefused, match="Last message"):
        client.get_response()
    assert server.asked == []


def test_llama_cpp_killed_in_the_stream_leaves_nothing(talk):
    client, store, _ = talk(Reply(openai_events("half an answer", done=False)[:3], cut=True))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()), pytest.raises(ModelStalled):
        client.get_response()
    assert store.count_messages() == 1


@pytest.mark.parametrize("reason", ["error", "abort"])
@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_that_its_server_gave_up_is_half_an_answer(talk, reason, streamed):
    """OpenRouter says `error` of a provider that failed in the middle, vLLM `abort` of a request that it ended."""
    message = {"role": "assistant", "content": "Half of"}
    whole = {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    half = Reply(openai_events("Half of", finish=reason)) if streamed else Reply(whole)
    client, store, server = talk(half, says("openai", "all of it"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "all of it"
    assert len(server.asked) == 2
    assert store.count_messages() == 2


def test_an_end_without_done_is_an_answer_when_the_reason_was_said(talk):
    client, store, _ = talk(Reply(openai_events("whole", done=False), plain=True))
    store.add_message("user", "u")
    assert client.get_response()[0] == "whole"


def test_5xx_after_every_try_is_raised(talk):
    client, store, server = talk(Reply(b"", 502))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()), pytest.raises(ModelUnreachable):
        client.get_response()
    assert len(server.asked) == 6
