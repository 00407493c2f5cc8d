"""What servers say of a model's window and abilities, over HTTP, each in its own words."""

import json

import pytest
from llm_servers import Reply, Script, client_for

from agent.config import settings_of
from agent.window import WindowLimits


def asked(tmp_path, routes, wire="openai", **keys):
    """(client, window) of a server with these answers to GET."""
    found = {("GET", path) if isinstance(path, str) else path: Reply(body) for path, body in routes.items()}
    with Script(Reply({}), routes=found) as server:
        client, store = client_for(wire, server.url, tmp_path, context_length=None, **keys)
        window = client.loaded_window()
        client.close()
        store.close()
    return client, window


def listed(**entry):
    return {"/v1/models": {"data": [{"id": "other", "context_length": 1}, {"id": "m", **entry}]}}


@pytest.mark.parametrize(
    ("routes", "window", "dialect"),
    [
        (listed(owned_by="vllm", max_model_len=40960), 40960, "vllm"),
        (listed(owned_by="sglang", max_model_len=32768), 32768, "sglang"),
        (listed(context_length=163840, top_provider={"context_length": 65536}), 65536, "compatible"),
        (listed(context_window=131072, owned_by="Meta"), 131072, "compatible"),
        (listed(max_context_length=262144, owned_by="mistralai"), 262144, "mistral"),
        (listed(limits={"max_input_tokens": 8000}), 8000, "compatible"),
        (listed() | {"/props": {"default_generation_settings": {"n_ctx": 16384}}}, 16384, "llamacpp"),
        (
            listed(owned_by="library") | {"/api/ps": {"models": [{"model": "m", "context_length": 8192}]}},
            8192,
            "ollama",
        ),
        (listed() | {"/info": {"model_id": "m", "max_input_tokens": 4095, "max_total_tokens": 6000}}, 6000, "tgi"),
        (
            listed(owned_by="organization_owner")
            | {"/api/v0/models": {"data": [{"id": "m", "max_context_length": 99999, "loaded_context_length": 12000}]}},
            12000,
            "lmstudio",
        ),
        (listed(max_model_len="many", context_length=True), None, "compatible"),
        (listed(max_model_len=-5, context_length=0), None, "compatible"),
        ({"/v1/models": {"data": "none"}}, None, "compatible"),
        ({"/v1/models": [1, 2]}, None, "compatible"),
    ],
)
def test_the_window_that_a_server_tells_is_used_and_the_server_recognised(tmp_path, routes, window, dialect):
    client, found = asked(tmp_path, routes)
    assert (found, client.dialect.name) == (window, dialect)
    limits = WindowLimits.from_settings(client.settings, found, provider="openai", model="m")
    assert limits.window == (window or 4096)


def test_litellm_is_recognised_by_its_headers_and_asked_for_what_it_knows(tmp_path):
    routes = {
        ("GET", "/v1/models"): Reply({"data": [{"id": "m", "owned_by": "openai"}]}, headers={"x-litellm-version": "1"}),
        ("GET", "/model/info"): Reply({"data": [{"model_name": "m", "model_info": {"max_input_tokens": 200000}}]}),
    }
    with Script(Reply({}), routes=routes) as server:
        client, _store = client_for("openai", server.url, tmp_path)
        assert (client.loaded_window(), client.dialect.name) == (200000, "litellm")
        client.close()


def test_litellm_without_its_headers_is_recognised_by_what_it_says_of_its_models(tmp_path):
    info = {"model_name": "m", "litellm_params": {"model": "mistral/m"}, "model_info": {"max_input_tokens": 32000}}
    client, window = asked(tmp_path, listed(owned_by="openai") | {"/model/info": {"data": [info]}})
    assert (window, client.dialect.name) == (32000, "litellm")


def test_github_models_tell_it_in_their_catalogue(tmp_path):
    routes = {"/catalog/models": [{"id": "m", "limits": {"max_input_tokens": 131072, "max_output_tokens": 4096}}]}
    answers = {("GET", path): Reply(json.dumps(body).encode()) for path, body in routes.items()}
    with Script(Reply({}), routes=answers) as server:
        client, _store = client_for("openai", f"{server.url}/inference", tmp_path, dialect="github")
        assert client.loaded_window() == 131072
        assert client.models() == ["m"]
        client.close()


@pytest.mark.parametrize(
    ("shown", "window"),
    [
        ({"model_info": {"qwen3.context_length": 40960}}, 40960),
        ({"model_info": {"qwen3.context_length": 40960}, "parameters": "num_ctx 16384\nstop x"}, 16384),
        ({"model_info": {"qwen3.context_length": "x"}, "parameters": ["num_ctx"]}, 4096),
        ({}, 4096),
    ],
)
def test_ollama_is_asked_for_what_the_model_was_made_for_where_nothing_is_configured(tmp_path, shown, window):
    client, found = asked(tmp_path, {("POST", "/api/show"): shown}, wire="ollama")
    assert found == window
    assert WindowLimits.from_settings(client.settings, found, provider="ollama", model="m").window == window


def test_what_is_configured_or_capped_is_never_exceeded(tmp_path, monkeypatch):
    settings = settings_of({"llm": {"openai": {"model": "m", "context_length": 8000}}})
    assert WindowLimits.from_settings(settings, 40960).window == 8000
    assert WindowLimits.from_settings(settings_of({"llm": {"openai": {"model": "gpt-4.1"}}}), 8000).window == 8000
    monkeypatch.setenv("MLC_MAX_CONTEXT_TOKENS", "9000")
    capped = settings_of({"llm": {"provider": "ollama", "ollama": {"model": "m"}}})
    assert WindowLimits.from_settings(capped, 40960).window == 9000
    with Script(
        Reply({}), routes={("POST", "/api/show"): Reply({"model_info": {"a.context_length": 40960}})}
    ) as server:
        client, _store = client_for("ollama", server.url, tmp_path, context_length=None)
        assert client.loaded_window() == 9000
        client.close()


def test_a_window_for_the_case_that_nobody_knows_gives_way_to_what_is_told(monkeypatch):
    monkeypatch.setenv("DEFAULT_MAX_TOKENS", "6000")
    settings = settings_of({"llm": {"openai": {"model": "mine"}}})
    assert WindowLimits.from_settings(settings, 40960).window == 40960
    assert WindowLimits.from_settings(settings, None, 20000).window == 20000
    assert WindowLimits.from_settings(settings).window == 6000


@pytest.mark.parametrize(
    ("answer", "wire", "tools"),
    [
        ({"/props": {"default_generation_settings": {"n_ctx": 1}, "chat_template_caps": {"supports_tools": False}}}, "openai", False),
        ({"/props": {"default_generation_settings": {"n_ctx": 1}, "chat_template_caps": {"supports_tools": True}}}, "openai", True),
        (listed(supported_parameters=["temperature"]), "openai", False),
        (listed(supported_parameters=["tools"]), "openai", True),
        (listed(), "openai", None),
        ({("POST", "/api/show"): {"capabilities": ["completion", "vision"]}}, "ollama", False),
        ({("POST", "/api/show"): {"capabilities": ["completion", "tools"]}}, "ollama", True),
    ],
)  # fmt: skip
def test_what_a_server_says_about_tool_calls_is_known(tmp_path, answer, wire, tools):
    client, _window = asked(tmp_path, answer, wire=wire)
    assert client.abilities.get("tools") is tools
