"""What is shared by all clients and belongs to no wire: making one, summaries from any file, disk faults, events."""

import io
import json

import pytest
from llm_servers import Reply, Script, client_for, config_for, says

from agent.config import settings_of
from agent.context import MessageStore
from agent.errors import ConfigError, ContextError, DiskError
from agent.llm import CLIENTS, AnthropicClient, OllamaClient, OpenAIClient, make_client
from agent.llm.lmstudio import LMStudioClient
from agent.observe.events import Events
from agent.values import Span


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
    data = {"llm": {"provider": name, "plugin": {"model": "p", "base_url": server.url}}}
    settings = settings_of(data, root=tmp_path)
    with pytest.raises(ConfigError, match="is not pinned"):
        make_client(settings, MessageStore(tmp_path, settings), tmp_path)
    settings.plugin_guard.pin([name])
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


# --- a request that goes on from the last -----------------------------------------------------------------------


def whole_request(client, folder):
    """The bytes of the request as they are when nothing was kept."""
    other = type(client)(client.settings, client.message_store, folder, tools=client.tools)
    other.dropped, out = client.dropped, io.BytesIO()
    spans = (Span(client.message_store.get_current_context_file()),)
    other.encode(out, spans, other.lines.check(spans), other.output_limit(0))
    return out.getvalue()


@pytest.fixture
def talk(tmp_path):
    """(client, store, say): `say` adds a user's message, asks, and compares what was sent with a request made anew."""
    with Script(*[says("openai", f"answer {number}") for number in range(40)]) as server:
        client, store = client_for("openai", server.url, tmp_path)
        store.add_message("system", "s")

        def say(text):
            store.add_message("user", text)
            wanted = whole_request(client, tmp_path)
            client.get_response()
            assert server.asked[-1].body == wanted
            return wanted

        yield client, store, say
        client.close()


def test_a_request_that_only_goes_on_from_the_last_is_written_behind_it(talk, tmp_path):
    client, store, say = talk
    first = say("x" * 300_000)
    assert (tmp_path / "kept.json").read_bytes() == first
    for text in ("short", "y\n" * 200_000, "日本語 😀", "z"):
        say(text)
    # A byte of the kept file that is another now is in the next request: only what is new was written.
    kept = bytearray((tmp_path / "kept.json").read_bytes())
    kept[kept.index(b"xxxx")] = ord("X")
    (tmp_path / "kept.json").write_bytes(kept)
    store.add_message("user", "last")
    client.get_response()
    assert (tmp_path / "kept.json").read_bytes()[: len(kept) - 2] == kept[:-2]


@pytest.mark.parametrize("lost", ["gone", "shorter", "longer"])
def test_where_the_kept_request_is_not_what_it_was_all_is_written(talk, tmp_path, lost):
    _, _, say = talk
    say("x" * 1000)
    path = tmp_path / "kept.json"
    if lost == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if lost == "shorter" else path.read_bytes() + b" ")
    say("next")
    say("and next")


def test_another_header_or_a_summary_between_two_requests_does_not_get_into_the_second(talk, tmp_path):
    client, _, say = talk
    say("x" * 1000)
    client.drop_parameter("stream_options")
    say("another header")
    (tmp_path / "s.txt").write_text("summarise " * 50)
    client.get_summary(tmp_path / "s.txt")
    assert not (tmp_path / "request.json").exists()
    say("after a summary")
    say("on")


def test_a_view_that_was_replaced_is_copied_from_its_beginning(talk, tmp_path):
    client, _, _ = talk
    view, aside = tmp_path / "view.jsonl", tmp_path / "aside"

    def request(*texts):
        roles = ("user", "assistant")
        messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
        aside.write_text("".join(json.dumps(message) + "\n" for message in messages))
        aside.rename(view)  # as a compaction does
        client.encode(out, spans, client.lines.check(spans), 0)
        out.truncate()
        return [message["content"] for message in json.loads(out.getvalue())["messages"]]

    spans, out = (Span(view),), io.BytesIO()
    assert request("a", "b", "c") == ["a", "b", "c"]
    assert request("d", "e", "f", "g", "h") == ["d", "e", "f", "g", "h"]
    assert request("i") == ["i"]


def test_the_kept_request_is_gone_when_the_client_is_closed(talk, tmp_path):
    client, _, say = talk
    say("x")
    assert (tmp_path / "kept.json").stat().st_mode & 0o777 == 0o600
    client.close()
    assert not (tmp_path / "kept.json").exists()


@pytest.mark.parametrize(
    ("wanted", "answered", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("qwen3", "qwen3:latest", True),
        ("qwen/Qwen3-30B", "qwen3-30b", True),
        ("qwen3-30b", "lmstudio-community/qwen3-30b-a3b", True),
        ("qwen3-30b", "llama-3.1-8b", False),
        ("m", "", True),
    ],
)
def test_another_model_than_the_one_that_was_asked_for_is_told_once(tmp_path, wanted, answered, same):
    heard = []
    events = Events([lambda name, fields: heard.append((name, dict(fields)))])
    replies = [says("lmstudio", "hello", model=answered) for _ in range(2)]
    with Script(*replies) as server:
        client, store = client_for("lmstudio", server.url, tmp_path, events=events, model=wanted)
        for _ in range(2):
            store.add_message("user", "u")
            client.get_response()
        client.close()
    told = [fields for name, fields in heard if name == "model_differs"]
    assert told == ([] if same else [{"provider": "lmstudio", "model": wanted, "answered": answered}])


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
