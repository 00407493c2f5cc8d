"""A parameter that a server refuses: found in any shape of error, left out, remembered; over HTTP."""

import json

import pytest
from llm_servers import TOOL, Heard, Reply, conversations, says

from agent.errors import ModelError, RequestRefused
from agent.llm import refused_parameters
from agent.store.db import open_tasks
from agent.store.learnt_model_facts import LearntModels
from agent.values import Plan, Span


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path, ("user", "Fix it.")) as start:
        yield start


def openai_param(name):
    return {"error": {"message": f"Unknown parameter: '{name}'.", "type": "invalid_request_error", "param": name}}


def fastapi(name):
    detail = {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": {}}
    return {"detail": [detail]}


def mistral(name):
    return {"object": "error", "message": fastapi(name), "type": "invalid_request_error", "param": None, "code": None}


def wrapped(name):
    return {"error": {"message": f"Error from provider: {json.dumps(fastapi(name))}", "type": "gateway_error"}}


def text(name):
    return {"error": f"property '{name}' is unsupported"}


def google(name):
    words = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    return json.dumps([{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}]).encode()


SHAPES = [openai_param, fastapi, mistral, wrapped, text, google]


def without(name, body, wire="openai", status=400):
    """A server that answers once the parameter is not sent."""

    def answer(request):
        sent = {**request.json, **request.json.get("options", {})}
        return Reply(body, status) if name in sent else says(wire, "done")

    return answer


def plan(client):
    return Plan((Span(client.message_store.get_current_context_file()),), output=100)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["stream_options", "max_tokens"])
def test_a_parameter_that_is_refused_is_left_out_and_asked_once_more(talk, shape, name):
    heard = Heard()
    client, _store, server = talk("openai", without(name, shape(name)), events=heard)
    assert client.get_response(plan(client)) == ("done", [])
    assert len(server.asked) == 2
    first, second = (one.json for one in server.asked)
    assert set(first) - set(second) == {name}
    assert first["messages"] == second["messages"]
    [adapted] = heard.named("model_adapted")
    assert name in adapted["why"]
    client.send_user_message("More.")
    client.get_response(plan(client))
    assert len(server.asked) == 3


def test_a_server_that_knows_neither_name_of_the_limit_gets_none(talk):
    def answer(request):
        named = next((name for name in ("max_tokens", "max_completion_tokens") if name in request.json), None)
        return Reply(openai_param(named), 400) if named else says("openai", "done")

    client, _store, server = talk("openai", answer)
    assert client.get_response(plan(client)) == ("done", [])
    assert len(server.asked) == 3


def test_several_parameters_are_learnt_one_after_the_other_and_the_stream_itself_can_go(talk):
    def answer(request):
        for name in ("stream_options", "stream"):
            if name in request.json:
                return Reply(fastapi(name), 422)
        whole = {"choices": [{"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]}
        return Reply(whole)

    client, _store, server = talk("openai", answer)
    assert client.get_response() == ("done", [])
    assert len(server.asked) == 3


@pytest.mark.parametrize("name", ["truncate", "shift", "num_ctx"])
def test_ollamas_own_parameters_can_be_left_out_too(talk, name):
    client, _store, server = talk("ollama", without(name, {"error": f"unknown field `{name}`"}, "ollama"))
    assert client.get_response() == ("done", [])
    assert len(server.asked) == 2


def test_anthropics_marks_for_the_cache_can_be_left_out(talk):
    def answer(request):
        if b"cache_control" in request.body:
            words = "messages.0.content.0.cache_control: Extra inputs are not permitted"
            return Reply({"type": "error", "error": {"type": "invalid_request_error", "message": words}}, 400)
        return says("anthropic", "done")

    client, _store, server = talk("anthropic", answer, tools=[TOOL])
    client.send_system_prompt("s")
    assert client.get_response() == ("done", [])
    assert len(server.asked) == 2


def test_a_window_that_the_machine_has_no_memory_for_is_halved_where_none_is_configured(talk):
    def answer(request):
        if request.json["options"]["num_ctx"] > 32768:
            return Reply({"error": "model requires more system memory (21.5 GiB) than is available (15.2 GiB)"}, 500)
        return says("ollama", "done")

    def shown(server):
        server.routes[("POST", "/api/show")] = Reply({"model_info": {"a.context_length": 131072}})
        return server.url

    client, _store, server = talk("ollama", answer, context_length=None, url=shown)
    assert client.get_response() == ("done", [])
    assert [one.json["options"]["num_ctx"] for one in server.asked] == [131072, 65536, 32768]
    assert client.facts() == {"most_window": 32768}

    fixed, _store, server = talk("ollama", answer, context_length=65536, url=shown)
    with pytest.raises(RequestRefused, match="context_length"):
        fixed.get_response()
    assert len(server.asked) == 1


def test_a_keyword_in_the_schema_of_a_tool_is_left_out(talk):
    tool = {**TOOL, "function": {**TOOL["function"]}}
    tool["function"]["parameters"] = {**tool["function"]["parameters"], "additionalProperties": False}

    def answer(request):
        if "additionalProperties" in request.json["tools"][0]["function"]["parameters"]:
            place = "tools[0].function_declarations[0].parameters"
            words = f"Unknown name \"additionalProperties\" at '{place}': Cannot find field."
            return Reply({"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}, 400)
        return says("openai", "done")

    client, _store, server = talk("openai", answer, tools=[tool])
    assert client.get_response() == ("done", [])
    assert server.asked[-1].json["tools"][0]["function"]["parameters"]["required"] == ["path"]


def test_what_cannot_be_left_out_is_told_with_its_name_and_place(talk):
    detail = {"type": "missing", "loc": ["body", "messages", 0, "user", "mood"], "msg": "Field required"}
    client, _store, server = talk("openai", Reply({"detail": [detail]}, 422))
    with pytest.raises(RequestRefused, match=r"messages\.0\.user\.mood") as refused:
        client.get_response()
    assert "openai at http://127.0.0.1" in str(refused.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("words", "params", "name"),
    [
        ("Unsupported parameter: 'stream_options'", (), "stream_options"),
        ("the stream is not supported here", (), ""),  # an ordinary word
        ("'stream' is not supported", (), "stream"),
        ("max_tokens is too large", (), ""),  # a value, not the parameter
        ("bad value", ("max_tokens",), "max_tokens"),  # the body names it
        ("no", ("messages.0.content",), ""),
        ("no", ("stream_options.include_usage",), "stream_options"),
        ("no", ("body.stream_options",), "stream_options"),
        ("no", ("tools.0.function.parameters.default",), "default"),
        ("no", ("tools.0.function.parameters.properties.path",), ""),
    ],
)
def test_the_name_is_found_where_it_is_said_and_only_then(words, params, name):
    error = ModelError(words)
    error.quote, error.params = words, params
    assert refused_parameters.refused_name(error, ("stream", "stream_options", "max_tokens"), ("default",)) == name


def test_a_property_that_is_named_like_a_keyword_stays():
    tools = [
        {"function": {"parameters": {"properties": {"default": {"type": "string", "default": "x"}}, "default": {}}}}
    ]
    assert "default" in refused_parameters.keywords_of(tools)
    assert refused_parameters.without_keywords(tools, {"default"}) == [
        {"function": {"parameters": {"properties": {"default": {"type": "string"}}}}}
    ]


# --- kept for the next process ----------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    database = open_tasks(tmp_path)
    yield LearntModels(database)
    database.close()


def test_the_next_process_begins_with_what_was_learnt(talk, kept):
    picky = without("stream_options", fastapi("stream_options"))
    client, _store, server = talk("openai", picky)
    client.load_learnt(kept)
    client.get_response()
    assert kept.get(server.url, "m") == {"dropped": ["stream_options"]}
    client.close()

    client.dropped = set()
    again, _store, _ = talk("openai", picky, url=lambda _server: server.url)
    again.load_learnt(kept)
    before = len(server.asked)
    again.get_response()
    assert len(server.asked) == before + 1


def test_what_was_learnt_of_another_model_or_server_does_not_count(talk, kept):
    client, _store, server = talk("openai", says("openai", "done"))
    kept.put(server.url, "other", {"dropped": ["stream_options"]})
    kept.put("http://127.0.0.1:1", "m", {"dropped": ["stream_options"]})
    client.load_learnt(kept)
    client.get_response()
    assert "stream_options" in server.asked[-1].json


def test_what_was_learnt_is_doubted_once_when_the_server_has_changed(talk, kept):
    """An update that wants back what was refused before: the old facts go, and the new ones are kept."""

    def updated(request):
        if "max_completion_tokens" not in request.json:
            return Reply({"error": {"message": "the request is not as it should be"}}, 400)
        return says("openai", "done")

    client, _store, server = talk("openai", updated, dialect="openai")
    kept.put(server.url, "m", {"swapped": True, "alternate": "yes", "unknown": 1})
    client.load_learnt(kept)
    assert client.alternate is False  # of a type that it cannot have
    assert client.get_response(plan(client)) == ("done", [])
    assert kept.get(server.url, "m") == {}
