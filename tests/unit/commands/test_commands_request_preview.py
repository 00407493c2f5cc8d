"""The request that `request` shows is the request that is sent."""

import json

import pytest
from cli_home import OPEN, Home
from llm_servers import Reply, Script

from agent.commands.request_preview import preview, request_of
from agent.context import TaskContextManager
from agent.errors import RequestRefused, UsageError
from agent.llm import make_client
from agent.plugin_guard import PluginGuard
from agent.security.sanitise import output
from agent.tools import Toolbox
from agent.window import make_window
from agent.window.context_layers import AssemblyOptions
from agent.wiring.wiring import Wiring

OTHER = "0f000000-0000-4000-8000-000000000006"


class Foreign:
    """A provider of somebody else's package: what a model client must have, and no wire form that we know."""

    def __init__(self, config, message_store, context_dir, *, tools=(), control=None, events=None, provider, model):
        self.tools, self.last, self.provider, self.model, self.control = tools, None, provider, model or "m", control

    def loaded_window(self):
        return 9000

    def close(self):
        pass


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.task(OPEN, 1, title="Open one").close()
    return home


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    return place


def look(home, place, llm=None, uuid=OPEN, options=None):
    if llm is not None:
        lines = [line for line in home.config.read_text().splitlines() if not line.startswith("llm:")]
        home.config.write_text("\n".join([f"llm: {llm}", *lines]) + "\n")
    wiring = Wiring(home.settings)
    try:
        return preview(wiring, uuid, place, options)
    finally:
        wiring.close()


def nowhere():
    with Script(Reply({})) as server:
        return server.url


def test_it_is_byte_for_byte_what_a_worker_would_send(home, place):
    with Script(Reply({"error": {"message": "no"}}, 400)) as server:
        found = look(home, place, f"{{provider: openai, openai: {{base_url: '{server.url}', model: m}}}}")
        with TaskContextManager(found.row.key, OPEN, home.settings) as worker:
            tools = Toolbox(
                root=place,
                context_dir=place,
                run=None,
                redact=str,
                clean=output,
                lookup=lambda _: None,
                settings=home.settings,
            )
            client = make_client(home.settings, worker.get_message_store(), worker.context_dir, tools=tools.schemas())
            window = make_window(home.settings, worker, client, tools)
            with pytest.raises(RequestRefused):
                client.get_response(window.plan())
            client.close()
        assert server.asked[0].body == found.path.read_bytes()
    assert found.url == f"{server.url}/v1/chat/completions"


def test_ollama_gets_its_own_wire_with_the_window(home, place):
    found = look(home, place, f"{{provider: ollama, ollama: {{base_url: '{nowhere()}', context_length: 16384}}}}")
    body = request_of(found.path)
    assert body["options"]["num_ctx"] == 16384
    assert found.limits.window == 16384


def test_anthropic_gets_its_own_wire(home, place):
    body = request_of(look(home, place, "{provider: anthropic}").path)
    assert json.dumps(body["system"]).count("You are an agent.") == 1
    assert body["messages"][0]["role"] == "user"


def test_the_window_that_the_server_has_loaded_is_named_first(home, place):
    routes = {("GET", "/props"): Reply({"default_generation_settings": {"n_ctx": 8192}})}
    with Script(Reply({}), routes=routes) as server:
        found = look(home, place, f"{{provider: openai, openai: {{base_url: '{server.url}', context_length: 32768}}}}")
    assert found.limits.sources[0] == ("loaded by the server", 8192)
    assert not server.asked, "nothing is sent to the model"


def test_pictures_of_the_conversation_are_in_it(home, place):
    uuid = "0d000000-0000-4000-8000-000000000007"
    context = home.task(uuid, 7)
    (context.context_dir / "images").mkdir()
    (context.context_dir / "images" / "0001.png").write_bytes(b"a picture")
    named = {"file": "images/0001.png", "media_type": "image/png", "width": 4, "height": 3, "tokens": 85}
    context.get_message_store().add_message("user", "And this?", kind="comment", images=[named])
    context.close()
    found = look(home, place, f"{{provider: openai, openai: {{base_url: '{nowhere()}', model: m}}}}", uuid)
    *_, last = request_of(found.path)["messages"]
    assert last["content"][1]["image_url"]["url"] == "data:image/png;base64,YSBwaWN0dXJl"


def test_a_model_that_was_changed_since_is_said(home, place):
    found = look(home, place, f"{{provider: openai, openai: {{base_url: '{nowhere()}', model: other}}}}")
    assert any("ran with replay" in note and "other" in note for note in found.notes)


def test_what_can_never_fit_is_said_with_both_numbers(home, place):
    key = {"task_source": "local", "owner": "local", "repo": "default", "task_type": "issue", "task_id": "2"}
    with TaskContextManager(key, OTHER, home.settings) as context:
        context.get_message_store().add_message("system", "You are an agent. " * 600)
        context.get_message_store().add_message("user", "Fix it.")
    llm = "{provider: replay, replay: {messages: rec.jsonl, context_length: 1200}}"
    found = look(home, place, llm, uuid=OTHER)
    assert any(note.startswith("it is not sent: The system prompt and the tools alone need") for note in found.notes)
    assert found.tokens > found.limits.input_limit


def test_of_a_plug_in_the_view_is_shown(home, place):
    PluginGuard(home.config.parent).pin([f"{__name__}:Foreign"])
    found = look(home, place, f"{{provider: '{__name__}:Foreign'}}")
    assert [message["role"] for message in request_of(found.path)["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert any("plug-in" in note for note in found.notes)
    assert found.limits.window == 9000  # nothing is configured for it, so what its server has counts


def test_a_plug_in_of_our_kind_has_a_wire_form(home, place):
    found = look(
        home,
        place,
        f"{{provider: 'agent.llm.openai:OpenAIClient', plugin: {{base_url: '{nowhere()}', model: m}}}}",
    )
    assert request_of(found.path)["model"] == "m"


def test_of_a_part_of_the_view_both_numbers_are_those_of_that_request(home, place):
    uuid = "0d000000-0000-4000-8000-000000000008"
    context = home.task(uuid, 8)
    store = context.get_message_store()
    for number in range(6):
        store.add_message("user", "And now?", kind="comment")
        words = f"Word {number}. " * 200
        store.add_message("assistant", words, usage={"prompt": 5000 + number, "completion": 3})
    store.add_message("user", "And now?", kind="comment")
    context.close()
    whole = look(home, place, uuid=uuid)
    assert whole.reported
    for path in place.iterdir():
        path.unlink()
    part = look(home, place, uuid=uuid, options=AssemblyOptions(2))
    assert not part.reported
    assert part.by_counter == part.tokens < whole.by_counter // 2


def test_an_unknown_task_is_a_usage_error(home, place):
    wiring = Wiring(home.settings)
    with pytest.raises(UsageError):
        preview(wiring, "ffff", place)
    wiring.close()
