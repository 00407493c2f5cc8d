"""LM Studio: the window that is loaded, not the one that could be; loading; addresses; its own errors."""

from functools import partial

import pytest
from llm_servers import Reply, config_for, conversations, says, store_for

from agent.config import settings_of
from agent.errors import AnswerUnreadable, ContextOverflow, HistoryRefused, ModelNotFound
from agent.llm import make_client


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path) as start:
        yield partial(start, "lmstudio")


V1, V0, LOAD = ("GET", "/api/v1/models"), ("GET", "/api/v0/models"), ("POST", "/api/v1/models/load")
ANYWAY = Reply({"error": "Unexpected endpoint or method. (GET /api/v1/models). Returning 200 anyway"})


def listed(instances, most=131072):
    return Reply({"models": [{"type": "llm", "key": "m", "loaded_instances": instances, "max_context_length": most}]})


def test_the_window_is_the_loaded_one(talk):
    client, _, _ = talk(says("lmstudio", "x"), routes={V1: listed([{"id": "m", "config": {"context_length": 16384}}])})
    assert client.loaded_window() == 16384


def test_an_older_server_tells_it_under_v0(talk):
    old = Reply({"data": [{"id": "m", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096}]})
    client, _, _ = talk(says("lmstudio", "x"), routes={V1: ANYWAY, V0: old})
    assert client.loaded_window() == 4096


def test_what_a_model_could_have_is_not_taken_for_what_it_has(talk):
    old = Reply({"data": [{"id": "m", "state": "not-loaded", "max_context_length": 131072}]})
    client, _, _ = talk(says("lmstudio", "x"), routes={V1: ANYWAY, V0: old})
    assert client.loaded_window() is None


def test_a_model_that_is_not_loaded_is_loaded_with_our_window_before_the_first_request(talk):
    loaded = Reply({"type": "llm", "instance_id": "m", "status": "loaded", "load_config": {"context_length": 8192}})
    client, store, server = talk(says("lmstudio", "x"), routes={V1: listed([]), LOAD: loaded})
    store.add_message("user", "u")
    client.get_response()
    assert [request.path for request in server.journal] == [
        "/api/v1/models",
        "/api/v1/models/load",
        "/v1/chat/completions",
    ]
    assert server.journal[1].json["context_length"] == 8192
    assert client.loaded_window() == 8192


def test_a_model_is_loaded_with_at_most_what_it_can_have(talk):
    loaded = Reply({"status": "loaded"})
    client, _, server = talk(says("lmstudio", "x"), routes={V1: listed([], most=2048), LOAD: loaded})
    assert client.loaded_window() == 2048
    assert server.journal[1].json["context_length"] == 2048


def test_a_model_for_summaries_is_loaded_with_its_own_window_and_not_with_the_other_ones(talk, tmp_path, monkeypatch):
    loaded = Reply({"status": "loaded"})
    entry = {"key": "small", "loaded_instances": [], "max_context_length": 131_072}
    _, _, server = talk(says("lmstudio", "x"), routes={V1: Reply({"models": [entry]}), LOAD: loaded})
    config = config_for("lmstudio", server.url, context_length=32_768)
    monkeypatch.setenv("SMALL_MAX_CONTEXT_TOKENS", "8192")
    settings = settings_of(config)
    client = make_client(settings, store_for(tmp_path, settings), tmp_path, provider="lmstudio", model="small")
    assert client.loaded_window() == 8192
    assert server.journal[-1].json == {"model": "small", "context_length": 8192, "echo_load_config": True}
    client.close()


def test_a_server_that_cannot_load_is_used_all_the_same(talk):
    client, store, _ = talk(
        says("lmstudio", "x"), routes={V1: listed([]), LOAD: Reply({"error": {"message": "no memory"}}, 500)}
    )
    store.add_message("user", "u")
    assert client.get_response()[0] == "x"
    assert client.loaded_window() is None


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/api/v0", "/api/v1"])
def test_the_address_is_taken_with_and_without_version(talk, path):
    client, store, server = talk(
        says("lmstudio", "x"), path=path, routes={V1: listed([{"id": "m", "config": {"context_length": 4096}}])}
    )
    store.add_message("user", "u")
    client.get_response()
    assert server.asked[0].path == "/v1/chat/completions"
    assert client.loaded_window() == 4096


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (
            Reply({"error": "Unexpected endpoint or method. (POST /chat/completions). Returning 200 anyway"}),
            AnswerUnreadable,
        ),
        (
            Reply(
                {
                    "error": {
                        "message": "No models loaded. Please load a model",
                        "type": "invalid_request_error",
                        "param": "model",
                        "code": "model_not_found",
                    }
                },
                404,
            ),
            ModelNotFound,
        ),
        (
            Reply(
                {"error": "The number of tokens to keep from the initial prompt is greater than the context length."},
                400,
            ),
            ContextOverflow,
        ),
        (
            Reply([b'event: error\ndata: {"error":"Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}\n\n']),
            ContextOverflow,
        ),
        (
            Reply(
                [
                    b'data: "The number of tokens to keep from the initial prompt is greater than the context length."\n\n'
                ]
            ),
            ContextOverflow,
        ),
        (
            Reply({"error": 'Error rendering prompt with jinja template: "No user query found in messages."'}, 400),
            HistoryRefused,
        ),
    ],
)
def test_its_own_errors_are_understood(talk, reply, kind):
    client, store, server = talk(reply)
    store.add_message("user", "u")
    with pytest.raises(kind):
        client.get_response()
    assert len(server.asked) == 1
    assert store.count_messages() == 1


def test_the_limit_is_max_tokens(talk):
    client, store, server = talk(says("lmstudio", "x"), max_output_tokens=33)
    store.add_message("user", "u")
    client.get_response()
    assert server.asked[0].json["max_tokens"] == 33


def test_a_tool_without_parameters_gets_an_empty_schema(talk):
    client, store, server = talk(says("lmstudio", "x"), tools=[{"type": "function", "function": {"name": "now"}}])
    store.add_message("user", "u")
    client.get_response()
    assert server.asked[0].json["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
