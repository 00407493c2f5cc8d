"""Pictures on all four wires: each in its server's form, not at all where they are refused, and out of the view
again."""

import base64
import io
import json

import pytest
from llm_servers import TOOL, Heard, Reply, Script, client_for, says, store_for
from PIL import Image

from agent import clock
from agent.config import settings_of
from agent.errors import RecordRefused
from agent.store.db import open_tasks
from agent.store.learnt_model_facts import LearntModels
from agent.tokens import counter_for
from agent.tokens.counters import count_message

TEXT = "What is wrong here?"


def png(color):
    out = io.BytesIO()
    Image.new("RGB", (40, 30), color).save(out, "PNG")
    return out.getvalue()


RED, BLUE = png("red"), png("blue")
IMAGES = [
    {"file": f"images/000{number}.png", "media_type": "image/png", "width": 40, "height": 30, "tokens": 87}
    for number in (1, 2)
]


def of_openai(body):
    (message,) = [one for one in body["messages"] if one["role"] == "user"]
    text, *rest = message["content"]
    assert text == {"type": "text", "text": TEXT}
    assert all(part["type"] == "image_url" for part in rest)
    urls = [part["image_url"]["url"] for part in rest]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [url.partition(",")[2] for url in urls]


def of_ollama(body):
    (message,) = [one for one in body["messages"] if one["role"] == "user"]
    assert message["content"] == TEXT
    return message["images"]


def of_anthropic(body):
    (message,) = body["messages"]
    text, *rest = message["content"]
    assert text["text"] == TEXT
    assert all(block["type"] == "image" and block["source"]["type"] == "base64" for block in rest)
    assert all(block["source"]["media_type"] == "image/png" for block in rest)
    return [block["source"]["data"] for block in rest]


FORMS = {"openai": of_openai, "lmstudio": of_openai, "ollama": of_ollama, "anthropic": of_anthropic}


@pytest.fixture
def begun(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "0001.png").write_bytes(RED)
    (tmp_path / "images" / "0002.png").write_bytes(BLUE)
    ended = []

    def start(wire, *replies, events=None, images=IMAGES, tools=(), **keys):
        server = Script(*replies)
        client, store = client_for(wire, server.url, tmp_path, events=events, tools=tools, **keys)
        ended.extend((client.close, store.close, server.close))
        store.add_message("system", "You are an agent.")
        store.add_message("user", TEXT, images=images)
        return client, store, server

    yield start
    for end in ended:
        end()


def asked(server):
    return [json.loads(one.body) for one in server.journal if b'"messages"' in one.body]


@pytest.mark.parametrize("wire", FORMS)
def test_each_wire_gets_them_in_its_form_and_the_view_stays_small(begun, wire):
    client, store, server = begun(wire, says(wire, "The colour."), says(wire, "Red."))
    assert client.get_response()[0] == "The colour."
    store.add_message("user", "Which?")
    client.get_response()
    first, second = asked(server)
    sent = FORMS[wire](first)
    assert [base64.b64decode(one) for one in sent] == [RED, BLUE]
    assert json.dumps(second).count(sent[0]) == 1
    assert store.current_path.stat().st_size < 1500
    assert sent[0] not in store.messages_path.read_text()


REFUSALS = [
    (400, "this model does not support image input", "invalid_request_error"),  # ollama/ollama#17301
    (500, "image input is not supported - hint: you may need to provide the mmproj", "server_error"),  # llama.cpp#15377
    (422, "Unsupported content part type", "whatever"),
]


@pytest.mark.parametrize(
    ("wire", "status", "words", "kind"),
    [*((wire, *REFUSALS[0]) for wire in FORMS), *(("openai", *refusal) for refusal in REFUSALS[1:])],
)
def test_a_server_that_takes_none_is_asked_without_them_and_it_is_remembered(
    begun, tmp_path, wire, status, words, kind
):
    error = {"error": {"message": words, "type": kind, "code": status}}
    refused = Reply(error, status)

    class Strict(Script):
        def answer(self, handler, body):
            has = b"image_url" in body or b'"images":[' in body or b'"type":"image"' in body
            self.replies = [refused] if has else [says(wire, "I cannot see it.")]
            super().answer(handler, body)

    server = Strict(refused)
    heard = Heard()
    client, store = client_for(wire, server.url, tmp_path, events=heard, tools=[TOOL])
    database = open_tasks(tmp_path)
    try:
        client.load_learnt(LearntModels(database))
        store.add_message("system", "You are an agent.")
        store.add_message("user", TEXT, images=IMAGES)
        with clock.use(clock.FakeClock(clock.now())):  # a 500 is tried again first
            assert client.get_response()[0] == "I cannot see it."
        assert client.takes_no_pictures
        assert not client.calling.in_text  # the tools were not the reason
        assert len(heard.named("pictures_refused")) == 1
        assert "2 pictures belong to this message. You cannot see them" in json.dumps(asked(server)[-1])
        again, _ = client_for(wire, server.url, tmp_path, store)
        again.load_learnt(LearntModels(database))
        assert again.picture_form == ""
        again.close()
    finally:
        client.close()
        store.close()
        server.close()
        database.close()


def test_a_refusal_that_is_about_something_else_stays_what_it_is(begun):
    refused = Reply({"error": {"message": "your account is on hold", "type": "x", "code": "on_hold"}}, 400)
    client, _, server = begun("openai", refused)
    with pytest.raises(Exception, match="on hold"):
        client.get_response()
    assert not client.takes_no_pictures
    assert client.picture_form == "image_url"
    assert len(asked(server)) == 2


@pytest.mark.parametrize("wire", FORMS)
def test_a_model_without_tool_calls_sees_them_too(begun, wire):
    client, _, server = begun(wire, says(wire, "Red."), tools=[TOOL], tool_calls="text")
    client.get_response()
    assert [base64.b64decode(one) for one in FORMS[wire](asked(server)[-1])] == [RED, BLUE]


@pytest.mark.parametrize("wire", FORMS)
def test_a_refusal_of_tools_without_a_reason_does_not_cost_the_pictures(begun, wire):
    vague = Reply({"error": {"message": "bad request", "type": "invalid_request_error"}}, 400)
    client, _, server = begun(wire, vague, vague, says(wire, "Red."), tools=[TOOL])
    assert client.get_response()[0] == "Red."
    assert client.calling.in_text
    assert not client.takes_no_pictures
    first, second, third = asked(server)
    assert FORMS[wire](first) == FORMS[wire](third)
    assert "You cannot see them" in json.dumps(second)


def test_never_is_never(begun):
    client, _, server = begun("openai", says("openai", "Ok."))
    client.keys = settings_of(
        {"llm": {"provider": "openai", "openai": {"model": "m", "base_url": server.url, "images": "never"}}}
    ).provider_of("openai")
    client.get_response()
    assert "image_url" not in json.dumps(asked(server))
    assert "You cannot see them" in json.dumps(asked(server))


def test_neighbours_are_joined_with_their_pictures(begun):
    client, store, server = begun("lmstudio", says("lmstudio", "Ok."), images=IMAGES[:1])
    store.add_message("user", "And here?", images=IMAGES[1:])
    client.get_response()
    (message,) = [one for one in asked(server)[0]["messages"] if one["role"] == "user"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "text", "image_url"]


# --- counted, and masked like results ------------------------------------------------------------------------------


def test_they_are_counted_and_a_compaction_leaves_a_line_of_text(tmp_path):
    settings = settings_of({"llm": {"provider": "openai", "openai": {"model": "unknown", "context_length": 9000}}})
    store = store_for(tmp_path, settings)
    counter = counter_for("unknown")
    store.add_message("system", "You are an agent.")
    store.add_message("user", TEXT, images=IMAGES)
    store.add_message("assistant", "Red.")
    store.add_message("user", "And here?", kind="comment", images=IMAGES[1:])
    view = [json.loads(line) for line in store.current_path.read_bytes().splitlines()]
    assert count_message(counter, view[1]) >= 2 * 87
    with_them = store.get_current_token_count()
    store.compact(strategy="mask", end_seq=3)
    view = [json.loads(line) for line in store.current_path.read_bytes().splitlines()]
    assert "images" not in view[1]
    assert view[1]["content"].endswith("[left out, seen before: images/0001.png (40 × 30), images/0002.png (40 × 30)]")
    assert view[3]["images"] == IMAGES[1:]
    assert store.get_current_token_count() < with_them - 100
    store.close()
    again = store_for(tmp_path, settings)  # derived alike from the facts
    assert not [line for line in again.repairs if "current.jsonl" in line]
    again.close()
    with pytest.raises(RecordRefused, match="only a user's"):
        store_for(tmp_path, settings).add_message("assistant", "x", images=IMAGES)
