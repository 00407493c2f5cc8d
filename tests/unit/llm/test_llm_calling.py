"""How tools are called: natively, in the text, or natively until the server says that it cannot; and calls that a
server left in the text."""

import json
from contextlib import closing

import pytest
from llm_servers import TOOL, Heard, Reply, Script, call, client_for, says
from template_server import TemplateServer

from agent import clock
from agent.errors import RequestRefused, ToolsRefused

WIRES = ("openai", "ollama", "lmstudio", "anthropic")
REFUSED = Reply({"error": {"message": "the model m does not support tools", "type": "invalid_request_error"}}, 400)
JSON = json.dumps({"name": "read_file", "arguments": {"path": "a.py"}})


@pytest.fixture
def talk(tmp_path):
    made = []

    def start(wire, *replies, **keys):
        server = Script(*replies)
        heard = Heard()
        client, store = client_for(wire, server.url, tmp_path, tools=[TOOL], events=heard, **keys)
        store.add_message("system", "You are careful.")
        store.add_message("user", "Read a.py.")
        made.extend([server, client, store])
        return client, store, server, heard

    yield start
    for one in reversed(made):
        one.close()


def records(store):
    return [json.loads(line) for line in store.messages_path.read_bytes().splitlines()]


def block(client, name="read_file", **arguments):
    mark = client.calling.form.mark
    made = json.dumps(arguments, separators=(",", ":"))
    return f'<call-{mark}>\n{{"name": "{name}", "arguments": {made}}}\n</call-{mark}>'


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_refuses_tools_gets_them_in_the_text_from_then_on(talk, wire):
    client, store, server, heard = talk(wire, REFUSED)
    server.replies.append(lambda _: says(wire, f"I look.\n\n{block(client, path='a.py')}"))
    text, calls = client.get_response()
    assert (text, [(one["name"], one["arguments"]) for one in calls]) == ("I look.", [("read_file", {"path": "a.py"})])
    record = records(store)[-1]
    assert (record["form"], record["content"], record["finish_reason"]) == ("text", "I look.", "tool_calls")
    store.add_message("tool", "x = 1", tool_name="read_file")
    server.replies = [says(wire, "Done.")]
    client.get_response()
    refused, first, second = (request.json for request in server.asked)
    assert "tools" in refused
    for body in (first, second):
        assert not {"tools", "tool_choice"} & set(body)
        assert {message["role"] for message in body["messages"]} <= {"system", "user", "assistant"}
        assert '"required":["path"]' in json.dumps(body, separators=(",", ":")).replace('\\"', '"')
        assert all(set(message) == {"role", "content"} for message in body["messages"])
    assert "x = 1" in json.dumps(second["messages"][-1])
    assert block(client, path="a.py") in json.dumps(second).replace('\\"', '"').replace("\\n", "\n")
    assert [one["why"] for one in heard.named("text_mode")] == ["the server refused the tools"]
    assert json.loads(store.get_current_context_file().read_text().splitlines()[-2])["role"] == "tool"


def test_native_means_native_and_text_means_text(talk):
    client, _, server, _ = talk("openai", REFUSED, tool_calls="native")
    with pytest.raises(ToolsRefused):
        client.get_response()
    assert len(server.asked) == 1
    client, _, server, _ = talk("openai", says("openai", "Hm."), tool_calls="text")
    client.get_response()
    assert "tools" not in server.asked[0].json


@pytest.mark.parametrize("kind", ["ollama", "llamacpp"])
def test_a_server_that_says_that_the_model_has_no_tool_calls_is_believed(tmp_path, kind):
    with closing(TemplateServer(kind, ["Hm."])) as server:
        wire = "ollama" if kind == "ollama" else "openai"
        heard = Heard()
        client, store = client_for(wire, server.url, tmp_path, tools=[TOOL], events=heard)
        store.add_message("system", "s")
        store.add_message("user", "u")
        client.loaded_window()
        assert client.get_response() == ("Hm.", [])
        assert server.refusals == []
        assert "says that the model has no tool calls" in heard.named("text_mode")[0]["why"]
        assert "it has no tool calls: tools are called in its text" in client.check().text
        client.close()


def test_a_first_request_that_is_refused_for_no_known_reason_is_tried_in_text_once(talk):
    unknown = Reply({"error": {"message": "Le modèle ne sait pas faire", "type": "x"}}, 400)
    client, _, server, heard = talk(
        "openai", lambda request: unknown if "tools" in request.json else says("openai", "Hm.")
    )
    assert client.get_response()[0] == "Hm."
    assert ["tools" in request.json for request in server.asked] == [True, True, True, True, False]
    assert "stream_options" in server.asked[-1].json, "what was left out before did not help"
    assert client.facts() == {}
    assert heard.named("text_mode")[0]["why"] == "the first request was refused with tools"
    assert client.calling.in_text
    assert not client.calling.refused, "nothing that another task should start with"


def test_if_the_try_is_refused_as_well_the_first_refusal_stands(talk):
    replies = [Reply({"error": {"message": words, "type": "x"}}, 400) for words in ("the true reason", "another")]
    client, store, server, _ = talk("openai", *replies)
    with pytest.raises(RequestRefused, match="the true reason"):
        client.get_response()
    assert len(server.asked) == 5
    assert not client.calling.in_text
    assert client.facts() == {}
    assert store.last_seq == 2


def test_a_refusal_of_a_place_inside_the_tools_is_one_of_the_tools(talk):
    """FastAPI's form, where `tools` is declared and its entries are not (vllm-project/vllm#9033 has the plain form)."""
    detail = [{"loc": ["body", "tools", 0, "type"], "msg": "extra fields not permitted", "type": "value_error.extra"}]
    refused = Reply({"detail": detail}, 422)
    client, *_ = talk("openai", lambda request: refused if "tools" in request.json else says("openai", "Hm."))
    assert client.get_response()[0] == "Hm."
    assert client.calling.in_text


def _has(*names):
    """A server that refuses a request with one of these, without a word on why."""
    wordless = Reply({"error": {"message": "Bad Request", "type": "x"}}, 400)
    return lambda request: wordless if set(names) & set(request.json) else says("openai", "Hm.")


@pytest.mark.parametrize(
    ("names", "learnt", "tries"),
    [
        (["stream_options"], {"dropped": ["stream_options"]}, 2),
        (["max_tokens"], {"swapped": True}, 3),
        (
            ["max_tokens", "max_completion_tokens"],
            {"dropped": ["max_completion_tokens", "stream_options"], "swapped": True},
            4,
        ),
    ],
)
def test_a_first_request_is_tried_without_what_not_every_server_takes_and_keeps_its_tools(talk, names, learnt, tries):
    client, store, server, _ = talk("openai", _has(*names))
    client.get_response()
    assert client.facts() == learnt
    assert [len(server.asked), "tools" in server.asked[-1].json] == [tries, True]
    store.add_message("user", "Go on.")
    client.get_response()
    assert len(server.asked) == tries + 1


def test_a_later_refusal_is_no_reason_to_leave_tool_calls(talk):
    client, store, server, _ = talk("openai", says("openai", "", [call("read_file", {"path": "a.py"})]))
    client.get_response()
    store.add_message("tool", "x", tool_name="read_file")
    server.replies = [Reply({"error": {"message": "who knows", "type": "x"}}, 400)]
    with pytest.raises(RequestRefused):
        client.get_response()
    assert all("tools" in request.json for request in server.asked)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "text", [f"<tool_call>\n{JSON}\n</tool_call>", f"```json\n{JSON}\n```", f"[TOOL_CALLS][{JSON}]"]
)
def test_a_call_that_a_server_left_in_the_text_is_run_and_marked(talk, wire, text):
    client, store, server, heard = talk(wire, says(wire, text))
    assert [(one["name"], one["arguments"]) for one in client.get_response()[1]] == [("read_file", {"path": "a.py"})]
    record = records(store)[-1]
    assert (record["form"], record["content"], record["finish_reason"]) == ("recovered", None, "tool_calls")
    assert heard.named("call_recovered") == [{"provider": wire, "model": "m", "tools": ["read_file"]}]
    store.add_message("tool", "x = 1", tool_name="read_file")
    client.get_response()
    assert "tools" in server.asked[-1].json, "it is still asked natively"
    assert store.index.forms == {"recovered"}


@pytest.mark.parametrize(
    "text",
    [
        f"The file holds <tool_call>{JSON}</tool_call>, which I will not run.",
        f"<tool_call>{JSON}</tool_call>\n\nThat is what the issue says.",
        JSON.replace("read_file", "rm_rf"),
    ],
)
def test_text_that_only_holds_a_call_stays_text(talk, text):
    client, store, _, heard = talk("openai", says("openai", text))
    assert client.get_response() == (text, [])
    assert "form" not in records(store)[-1]
    assert heard.named("call_recovered") == []


def test_in_text_mode_only_the_models_own_marked_blocks_run_whatever_it_quotes(talk):
    client, _, server, _ = talk("openai", says("openai", "x"), tool_calls="text")
    quoted = "<tool_call>\n" + JSON + "\n</tool_call>\n<call-00000000>\n" + JSON + "\n</call-00000000>"
    server.replies = [
        lambda _: says("openai", f"The issue says:\n\n{quoted}\n\nI read b.\n\n{block(client, path='b')}")
    ]
    text, calls = client.get_response()
    assert [one["arguments"] for one in calls] == [{"path": "b"}]
    assert quoted in text


def test_a_summary_that_is_a_call_in_text_is_none(talk, tmp_path):
    from agent.errors import AnswerUnreadable

    client, _, server, _ = talk("openai", says("openai", f"<tool_call>{JSON}</tool_call>"))
    path = tmp_path / "s.txt"
    path.write_text("Summarise")
    with clock.use(clock.FakeClock()), pytest.raises(AnswerUnreadable, match="is a call"):
        client.get_summary(path)
    assert len(server.asked) == 1


UNREADABLE = {
    "Groq: pydantic/pydantic-ai#2759": Reply({"error": {"message": "Failed.", "code": "tool_use_failed"}}, 400),
    "Ollama: ollama/ollama#17638": Reply({"error": "error parsing tool call: raw='{', err=unexpected end"}, 500),
    "Gemini": says("openai", "", finish="function_call_filter: MALFORMED_FUNCTION_CALL"),
}


@pytest.mark.parametrize("unreadable", UNREADABLE.values(), ids=UNREADABLE)
def test_calls_that_a_server_cannot_read_again_and_again_are_asked_for_in_text(talk, unreadable):
    """The parser fails at what the model writes, also when it is asked again."""
    client, _, server, heard = talk("openai", unreadable)
    answers = [unreadable, unreadable, unreadable, lambda _: says("openai", block(client, path="a.py"))]
    server.replies = [lambda request: one(request) if callable(one := answers.pop(0)) else one]
    with clock.use(clock.FakeClock()):
        assert [one["name"] for one in client.get_response()[1]] == ["read_file"]
    assert ["tools" in request.json for request in server.asked] == [True, True, True, False]
    assert heard.named("text_mode")[0]["why"] == "the server could not read the calls of its model"
    assert not client.no_tools


def test_a_call_that_a_server_leaves_behind_words_is_not_run_and_the_next_is_asked_for_in_the_text(talk):
    """A parser that does not fit the model, and a model that says a word before each call: no call would ever come."""
    left = f"I look at it.\n\n<tool_call>\n{JSON}\n</tool_call>"
    client, store, server, heard = talk("openai", says("openai", left))
    assert client.get_response() == (left, [])
    store.add_message("user", "Call a tool.")
    server.replies = [lambda _: says("openai", f"I look.\n\n{block(client, path='a.py')}")]
    text, calls = client.get_response()
    assert (text, [one["name"] for one in calls]) == ("I look.", ["read_file"])
    assert "tools" not in server.asked[-1].json
    assert [one["why"] for one in heard.named("text_mode")] == ["the server could not read the calls of its model"]


def test_such_a_call_changes_nothing_where_calls_are_to_be_native(talk):
    client, store, server, heard = talk(
        "openai", says("openai", f"Hm.\n<tool_call>{JSON}</tool_call>"), tool_calls="native"
    )
    client.get_response()
    store.add_message("user", "Call a tool.")
    client.get_response()
    assert all("tools" in one.json for one in server.asked)
    assert heard.named("text_mode") == []
