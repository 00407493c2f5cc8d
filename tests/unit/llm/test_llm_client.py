"""What is shared by all clients and belongs to no wire: making one, summaries from any file, disk faults, events."""

import json

import pytest
from llm_servers import Reply, Script, client_for, config_for, says

from agent.config import settings_of
from agent.context import MessageStore
from agent.errors import ConfigError, ContextError, DiskError
from agent.llm import CLIENTS, AnthropicClient, OllamaClient, OpenAIClient, make_client
from agent.llm.lmstudio import LMStudioClient
from agent.observe.events import Events


class PlugInClient(OpenAIClient):
    """Somebody else's provider."""

    name = "llm_plug_in"


@pytest.fixture
def server():
    with Script(says("openai", "hello")) as running:
        yield running


def test_the_seeds_way_of_making_a_client_works(tmp_path, server):
    config = config_for("openai", server.url)
    client = OpenAIClient(config, MessageStore(tmp_path, config), tmp_path)
    client.send_system_prompt("s")
    client.send_user_message("u")
    assert client.get_response() == ("hello", [])
    client.close()


def test_a_dotted_path_is_a_provider(tmp_path, server):
    name = "test_llm_client:PlugInClient"
    settings = settings_of({"llm": {"provider": name, "plugin": {"model": "p", "base_url": server.url}}})
    client = make_client(settings, MessageStore(tmp_path, settings), tmp_path)
    client.send_user_message("u")
    assert client.get_response()[0] == "hello"
    assert server.asked[0].json["model"] == "p"
    client.close()


def test_another_provider_and_model_can_be_asked_for(tmp_path, server):
    settings = settings_of({"llm": {"provider": "openai", "lmstudio": {"base_url": server.url}}})
    client = make_client(settings, MessageStore(tmp_path, settings), tmp_path, provider="lmstudio", model="small")
    assert (client.provider, client.model) == ("lmstudio", "small")
    assert type(client) is LMStudioClient


def test_an_unknown_provider_is_told_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="anthropic, lmstudio, ollama, openai, replay"):
        CLIENTS.load("opena1")


def test_the_official_host_gets_the_new_name_of_the_limit(tmp_path):
    store = MessageStore(tmp_path, {})
    for url, key in (
        ("https://api.openai.com/", "max_completion_tokens"),
        ("https://x.openai.azure.com/openai/v1/", "max_completion_tokens"),
        ("https://openrouter.ai/api/v1", "max_tokens"),
    ):
        client = OpenAIClient({"llm": {"openai": {"base_url": url}}}, store, tmp_path)
        assert list(client.parameters(100)) == ["model", "stream", "stream_options", key]


def test_defaults_are_the_vendors_addresses(tmp_path):
    store = MessageStore(tmp_path, {})
    assert OpenAIClient({}, store, tmp_path).url == "https://api.openai.com/v1/chat/completions"
    assert OllamaClient({}, store, tmp_path).url == "http://localhost:11434/api/chat"
    assert LMStudioClient({}, store, tmp_path).url == "http://localhost:1234/v1/chat/completions"
    assert AnthropicClient({}, store, tmp_path).url == "https://api.anthropic.com/v1/messages"
    assert OpenAIClient({}, store, tmp_path).loaded_window() is None


@pytest.mark.parametrize("wire", ["openai", "ollama", "anthropic"])
def test_a_summary_of_any_bytes_is_legal_json(tmp_path, wire):
    path = tmp_path / "summary_request.txt"
    text = "a" * 65_535 + "日本語😀" * 30_000 + '"\\\n\t\x1f'
    path.write_bytes(text.encode() + b"\xff\xfe\x00 \xed\xa0\x80end")
    with Script(says(wire, "short")) as server:
        client, _ = client_for(wire, server.url, tmp_path)
        assert client.get_summary(path) == "short"
        client.close()
        (message,) = server.asked[0].json["messages"]
    assert message["content"].startswith(text)
    assert message["content"].endswith("end")
    assert "\x00" not in message["content"]


def test_the_numbers_of_a_summary_are_kept_apart(tmp_path, server):
    client, _ = client_for("openai", server.url, tmp_path)
    (tmp_path / "x.txt").write_text("x")
    client.get_summary(tmp_path / "x.txt")
    assert client.last is None
    assert client.summary.usage.prompt == 100
    client.close()


def test_a_summary_of_a_file_that_is_not_there_names_it(tmp_path, server):
    client, _ = client_for("openai", server.url, tmp_path)
    with pytest.raises(ContextError, match=r"nothing\.txt"):
        client.get_summary(tmp_path / "nothing.txt")
    assert not (tmp_path / "request.json").exists()
    client.close()


def test_a_request_that_cannot_be_written_is_a_disk_error(tmp_path, server):
    client, store = client_for("openai", server.url, tmp_path)
    store.add_message("user", "u")
    (tmp_path / "request.json").mkdir()
    with pytest.raises(DiskError, match=r"request\.json"):
        client.get_response()
    assert server.asked == []
    client.close()


def test_a_planted_link_in_the_place_of_the_request_is_not_followed(tmp_path, server):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    client, store = client_for("openai", server.url, tmp_path)
    store.add_message("user", "u")
    (tmp_path / "request.json").symlink_to(victim)
    with pytest.raises(DiskError):
        client.get_response()
    assert victim.read_text() == "mine"
    client.close()


def test_the_request_is_private_and_is_the_whole_request_while_it_is_sent(tmp_path):
    seen = {}

    def look(request):
        path = tmp_path / "request.json"
        seen.update(mode=path.stat().st_mode & 0o777, same=path.read_bytes() == request.body)
        return says("openai", "hello")

    with Script(look) as server:
        client, store = client_for("openai", server.url, tmp_path)
        store.add_message("user", "u")
        client.get_response()
        client.close()
    assert seen == {"mode": 0o600, "same": True}


def test_what_happens_is_announced_under_known_names(tmp_path):
    heard = []
    events = Events([lambda name, fields: heard.append((name, dict(fields)))])
    refusal = Reply({"error": {"message": "no", "code": "invalid_api_key"}}, 401)
    with Script(says("openai", "hello"), refusal) as server:
        client, store = client_for("openai", server.url, tmp_path, events=events)
        store.add_message("user", "u")
        client.get_response()
        store.add_message("user", "v")
        with pytest.raises(Exception, match="401"):
            client.get_response()
        client.close()
    assert [name for name, _ in heard] == ["request_sent", "answer_received", "request_sent", "model_failed"]
    assert heard[0][1]["bytes"] > 0
    assert heard[1][1]["prompt_tokens"] == 100
    assert json.dumps([fields for _, fields in heard])
