"""Where requests go and with which headers, over HTTP: forms of addresses, keys, headers of one's own."""

import pytest
from llm_servers import Reply, conversations, says

from agent.config import settings_of
from agent.errors import ConfigError, ModelNotFound
from agent.security.redact import Redactor

CHAT = "/chat/completions"


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path, ("user", "Fix it.")) as start:
        yield start


def only(path, wire="openai"):
    """A reply that is there at one path (with its query) only."""

    def answer(request):
        return says(wire, "done") if request.path == path else Reply({"detail": "Not Found"}, 404)

    return answer


@pytest.mark.parametrize(
    ("written", "right", "asked"),
    [
        ("/inference", "/inference/chat/completions", 1),
        ("/gateway", "/gateway/v1/chat/completions", 2),
        ("", "/v1/chat/completions", 1),
        ("", "/chat/completions", 2),
        ("/deployments/d?api-version=1", "/deployments/d/chat/completions?api-version=1", 1),
        ("/any/chat/completions?key=k", "/any/chat/completions?key=k", 1),
    ],
)
def test_the_form_of_an_address_is_found_by_trying_and_remembered(talk, written, right, asked):
    client, _store, server = talk("openai", only(right), path=written)
    assert client.get_response() == ("done", [])
    assert len(server.asked) == asked
    client.send_user_message("More.")
    assert client.get_response() == ("done", [])
    assert [one.path for one in server.asked[asked - 1 :]] == [right, right]


def test_where_no_form_is_right_the_error_names_the_address_and_each_is_tried_once(talk):
    client, _store, server = talk("openai", Reply({"detail": "Not Found"}, 404), path="/gateway")
    with pytest.raises(ModelNotFound, match="base_url"):
        client.get_response()
    assert [one.path for one in server.asked] == ["/gateway/chat/completions", "/gateway/v1/chat/completions"]


def test_a_model_that_is_missing_is_no_reason_to_try_another_address(talk):
    missing = Reply({"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}, 404)
    client, _store, server = talk("openai", missing, path="/gateway")
    with pytest.raises(ModelNotFound, match="does not exist"):
        client.get_response()
    assert len(server.asked) == 1


def test_the_anthropic_wire_has_its_version_behind_a_path(talk):
    client, _store, server = talk("anthropic", only("/anthropic/v1/messages", "anthropic"), path="/anthropic")
    assert client.get_response() == ("done", [])
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("wire", "keys", "sent"),
    [
        ("openai", {}, {"authorization": "Bearer sk-12345678"}),
        ("openai", {"dialect": "azure"}, {"api-key": "sk-12345678"}),
        ("openai", {"api_key_header": "X-Goog-Api-Key"}, {"x-goog-api-key": "sk-12345678"}),
        ("openai", {"dialect": "azure", "api_key_header": "Authorization"}, {"authorization": "Bearer sk-12345678"}),
        ("ollama", {}, {"authorization": "Bearer sk-12345678"}),
        ("anthropic", {}, {"x-api-key": "sk-12345678", "anthropic-version": "2023-06-01"}),
        (
            "anthropic",
            {"headers": {"Anthropic-Version": "2024-01-01", "authorization": "Bearer tok-87654321"}},
            {"anthropic-version": "2024-01-01", "authorization": "Bearer tok-87654321"},
        ),
        ("openai", {"headers": {"HTTP-Referer": "https://me.example"}}, {"http-referer": "https://me.example"}),
        ("openai", {"headers": {"authorization": "Basic dXNlcjpwYXNz"}}, {"authorization": "Basic dXNlcjpwYXNz"}),
    ],
)
def test_the_key_and_headers_of_ones_own_are_sent_as_the_server_wants_them(talk, wire, keys, sent):
    client, _store, server = talk(wire, says(wire, "done"), api_key="sk-12345678", **keys)
    client.get_response()
    heard = server.asked[-1].headers
    assert {name: heard.get(name) for name in sent} == sent
    carriers = {"authorization", "api-key", "x-api-key", "x-goog-api-key"}
    if "headers" not in keys:
        assert len(carriers & heard.keys()) == 1


def test_headers_are_secrets_taken_from_the_environment_and_shown_nowhere(monkeypatch):
    monkeypatch.setenv("GATEWAY_TOKEN", "Bearer tok-abcdefgh123\n")
    settings = settings_of({"llm": {"openai": {"headers": {"X-Gateway": "${GATEWAY_TOKEN}", "X-Team": "core"}}}})
    assert settings.provider_of("openai").headers["X-Gateway"].get_secret_value() == "Bearer tok-abcdefgh123"
    [shown] = [value for key, value, _ in settings.show() if key == "llm.openai.headers"]
    assert shown == '{"X-Gateway": "********", "X-Team": "********"}'
    assert "tok-abcdefgh123" not in repr(settings)
    assert "tok-abcdefgh123" not in Redactor(settings.secrets())("it said tok-abcdefgh123 is wrong")


def test_a_key_in_the_query_of_an_address_is_masked():
    settings = settings_of({"llm": {"openai": {"base_url": "https://g.example/v1?api-version=1&key=abcdefgh12345"}}})
    [shown] = [value for key, value, _ in settings.show() if key == "llm.openai.base_url"]
    assert shown == "https://g.example/v1?api-version=1&key=********"


@pytest.mark.parametrize("name", ["Content-Length", "X Team", "", "host"])
def test_a_header_that_cannot_be_sent_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=r"llm\.openai\.headers"):
        settings_of({"llm": {"openai": {"headers": {name: "x"}}}})


def test_the_value_of_a_header_that_cannot_be_sent_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match=r"llm\.openai\.headers.*X-Key") as refused:
        settings_of({"llm": {"openai": {"headers": {"X-Key": "geheim-ä\nX-More: 1"}}}})
    assert "geheim" not in str(refused.value)


def test_doctor_tells_a_server_without_a_list_of_models_from_an_address_that_is_wrong(talk):
    def no_list(request):
        return Reply(
            {"error": {"message": "messages must not be empty"}}, 400 if request.path == "/v1/chat/completions" else 404
        )

    client, _store, _server = talk("openai", no_list)
    assert client.check().ok
    assert "lists no models" in client.check().text
    lost, _store, _server = talk("openai", Reply({"detail": "Not Found"}, 404))
    assert not lost.check().ok
