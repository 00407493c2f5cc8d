"""Public reports that make small offline cases: each number is a test somewhere, those of the wires are here.

The list is the one the program was built against (compaction, counting and message lists of other agents).  A case is
a test whose name begins with its number; the rest of the name says the right behaviour.
"""

import json
import re
from pathlib import Path

import orjson
import pytest
import strict_server
from llm_servers import Reply, Script, Stop, client_for, conversations, says

from agent import clock
from agent.context import MessageStore, TaskContextManager, projection
from agent.errors import ContextOverflow, HistoryRefused, QuotaExhausted
from agent.llm import Interrupted
from agent.llm.error_body import parse_document
from agent.llm.error_mapping import map_error
from agent.values import End, Outcome, Plan, Span

NUMBERS = {
    *(1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 18, 20, 21, 23, 25, 26, 27, 29, 31, 33, 34, 35, 37, 38, 39, 41, 42),
    *(43, 45, 46, 47, 49, 50, 52, 53),
}
CALL = {"id": "call_1", "name": "read_file", "arguments": {"path": "a.py", "lines": [1, 2]}}
KEEP = (
    "Trying to keep the first 15028 tokens when context the overflows. However, the model is loaded with context "
    "length of only 7424 tokens, which is not enough."
)
KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "7"}


def test_every_number_is_a_test_and_no_other_is():
    found = {}
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        if "node_modules" in path.parts:
            continue
        for name in re.findall(r"^def test_case_(\d+(?:_and_\d+)*)_", path.read_text(encoding="utf-8"), re.MULTILINE):
            for number in name.split("_and_"):
                found.setdefault(int(number), []).append(path.name)
    assert sorted(found) == sorted(NUMBERS)


@pytest.fixture
def talk(tmp_path):
    """talk(wire, *replies) → (client, store, server) with a system prompt and a task in the store."""
    with conversations(tmp_path, ("system", "You are careful."), ("user", "Fix it.")) as start:
        yield start


def called(store, result="text of a.py"):
    store.add_message("assistant", None, tool_calls=[CALL])
    store.add_message("tool", result, tool_call_id="call_1")


def test_case_37_the_window_goes_with_every_request_to_ollamas_own_api(talk):
    client, _, server = talk("ollama", says("ollama", "Done."), path="/v1")
    client.get_response()
    [request] = server.asked
    assert request.path == "/api/chat"
    assert request.json["options"]["num_ctx"] == 8192
    assert request.json["truncate"] is False


@pytest.mark.parametrize("loaded", [True, False])
def test_case_37_where_ollamas_v1_is_used_all_the_same_its_true_window_counts_and_a_cut_is_seen(tmp_path, loaded):
    entry = {"name": "m:latest", "model": "m:latest", "context_length": 4096}
    cut = says("openai", "What was the task?", usage=(2050, 5))
    server = Script(cut, says("openai", "Done.", usage=(1500, 5)))
    # A model is loaded by the first request at the latest.
    server.routes["GET", "/api/ps"] = lambda _: Reply({"models": [entry] if loaded or server.asked else []})
    client, store = client_for("openai", server.url + "/v1", tmp_path, context_length=32_768)
    store.add_message("user", "Fix it.")
    span = Span(store.get_current_context_file())
    try:
        assert client.loaded_window() == (4096 if loaded else None)
        with pytest.raises(ContextOverflow, match="OLLAMA_CONTEXT_LENGTH") as overflow:
            client.get_response(Plan((span,), tokens=20_000))
        assert overflow.value.limit == 4096
        assert store.count_messages() == 1
        assert client.get_response(Plan((span,), tokens=1600))[0] == "Done."
    finally:
        client.close()
        store.close()
        server.close()


def test_case_37_a_count_that_is_low_is_no_cut_where_nobody_cuts(talk):
    client, store, _ = talk("openai", says("openai", "Done.", usage=(2050, 5)))
    assert client.loaded_window() is None
    assert client.get_response(Plan((Span(store.get_current_context_file()),), tokens=20_000))[0] == "Done."


@pytest.mark.parametrize("wire", ["ollama", "openai", "lmstudio"])
def test_case_38_arguments_are_an_object_for_ollama_and_text_for_openai(talk, wire):
    client, store, server = talk(wire, says(wire, "Done."))
    called(store)
    client.get_response()
    [request] = server.asked
    [arguments] = [
        one["tool_calls"][0]["function"]["arguments"] for one in request.json["messages"] if one.get("tool_calls")
    ]
    assert (arguments if wire == "ollama" else json.loads(arguments)) == CALL["arguments"]
    assert isinstance(arguments, dict if wire == "ollama" else str)


@pytest.mark.parametrize(
    "error",
    [
        "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        KEEP,
    ],
)
@pytest.mark.parametrize("bare", [True, False])
def test_case_39_lm_studios_words_for_too_long_are_known_as_an_object_and_as_bare_text(error, bare):
    found = map_error(parse_document(400, {"error": error if bare else {"message": error}}), "lmstudio")
    assert isinstance(found, ContextOverflow)
    assert found.limit in (7424, None)
    assert ("7424" in error) == (found.limit == 7424)


@pytest.mark.parametrize(
    "said",
    [
        "Error rendering prompt with jinja template: No user query found in messages.",
        "Error rendering prompt with jinja template: Cannot pass both content and thinking in an assistant message",
        "Invalid 'content': 'content' field must be a string or an array of objects.",
        "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    ],
)
def test_case_41_a_template_that_does_not_take_the_list_is_no_overflow_and_is_not_retried_as_it_is(said):
    found = map_error(parse_document(400, {"error": {"message": said}}), "lmstudio")
    assert isinstance(found, HistoryRefused)
    assert found.tries == 1


def test_case_41_and_35_a_strict_template_gets_turns_a_user_first_and_no_null(talk):
    refusal = Reply({"error": "Error rendering prompt with jinja template: roles must alternate"}, 400)
    client, store, server = talk("lmstudio", refusal, says("lmstudio", "Done."))
    store.add_message("user", "And this.", kind="comment")
    called(store)
    store.add_message("user", "Quickly.", kind="comment")
    assert client.get_response()[0] == "Done."
    messages = server.asked[-1].json["messages"]
    assert [one["role"] for one in messages[:3]] == ["system", "user", "assistant"]
    assert "And this." in messages[1]["content"]
    assert all(isinstance(one["content"], str) for one in messages if one["role"] != "assistant")
    assert messages[-1]["role"] in ("user", "tool")


@pytest.mark.parametrize("wire", ["openai", "lmstudio"])
@pytest.mark.parametrize(
    "said",
    [
        "Invalid 'content': 'content' field must be a string or an array of objects.",
        "Invalid value for 'content': expected a string, got null.",
        "invalid message content type: <nil>",
    ],
)
def test_case_41_and_43_a_server_that_takes_no_null_beside_calls_gets_text_from_then_on(talk, wire, said):
    refusal = Reply({"error": {"message": said, "type": "invalid_request_error"}}, 400)
    client, store, server = talk(wire, refusal, says(wire, "Done."))
    called(store)
    assert client.get_response()[0] == "Done."
    store.add_message("user", "More.")
    client.get_response()
    contents = [[one["content"] for one in request.json["messages"]] for request in server.asked]
    assert [None in content for content in contents] == [True, False, False]
    assert contents[1][2] == contents[2][2] == ""
    assert contents[1] == contents[2][: len(contents[1])]
    assert b'"content":null' in store.get_current_context_file().read_bytes()


def test_case_41_a_server_that_takes_no_text_beside_calls_either_is_asked_no_third_time(talk):
    client, store, server = talk("lmstudio", Reply({"error": "expected a string, got null."}, 400))
    called(store)
    with pytest.raises(HistoryRefused):
        client.get_response()
    assert len(server.asked) == 2


def test_case_42_nothing_but_the_keys_of_the_wire_is_sent(talk):
    client, store, server = talk("openai", says("openai", "Done."))
    called(store)
    client.get_response()
    allowed = {
        "system": {"role", "content"},
        "user": {"role", "content"},
        "assistant": {"role", "content", "tool_calls"},
    }
    allowed["tool"] = {"role", "content", "tool_call_id"}
    for message in server.asked[0].json["messages"]:
        assert set(message) <= allowed[message["role"]]
    record = orjson.loads(store.messages_path.read_bytes().splitlines()[-1])
    assert {"seq", "timestamp", "tokens"} <= set(record), "they are recorded, and stay at home"


@pytest.mark.parametrize("wire", ["openai", "ollama"])
def test_case_43_content_is_null_only_beside_calls(talk, wire):
    client, store, server = talk(wire, says(wire, "Done."))
    called(store, result=None)
    store.add_message("assistant", None)
    store.add_message("user", "Go on.")
    client.get_response()
    messages = server.asked[0].json["messages"]
    for message in messages:
        assert message["content"] is not None or message.get("tool_calls")
        assert message["content"] or message.get("tool_calls")
    [result] = [one["content"] for one in messages if one["role"] == "tool"]
    assert result == "(no output)"


def test_case_45_what_stands_between_a_call_and_its_result_does_not_get_there(talk, tmp_path):
    _, store, _ = talk("openai", says("openai", "Done."))
    store.add_message("assistant", None, tool_calls=[CALL])
    before = store.last_seq
    with pytest.raises(ValueError, match="call_1"):
        store.add_message("user", "Wait!")
    assert store.last_seq == before
    # A file that came to be so elsewhere is made legal by the projection.
    lines = [orjson.loads(line) for line in store.messages_path.read_bytes().splitlines()]
    between = {**lines[1], "seq": 4, "kind": "comment", "content": "Wait!"}
    late = {
        "seq": 5,
        "role": "tool",
        "content": "late",
        "tool_call_id": "call_1",
        "tool_name": "read_file",
        "tokens": 1,
    }
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "messages.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in [*lines, between, late]))
    view = [orjson.loads(data) for data, _ in projection.lines(folder)]
    assert strict_server.fault({"messages": view}) == ""
    assert view[-1]["content"] == "Wait!"


@pytest.mark.parametrize("wire", ["openai", "ollama", "anthropic"])
def test_case_46_a_lone_surrogate_does_not_poison_the_session(talk, wire):
    client, store, server = talk(wire, says(wire, "Done \ud83d."), says(wire, "Again."))
    arguments = {"path": "a\udcb0.py"}
    store.add_message("assistant", "x\ud800y", tool_calls=[{**CALL, "arguments": arguments}])
    store.add_message("tool", "r\udfff", tool_call_id="call_1")
    assert client.get_response()[0] == "Done \ufffd."
    store.add_message("user", "More \udc00.")
    client.get_response()
    for request in server.asked:
        text = request.body.decode("utf-8")
        assert not re.search(r"\\u[dD][89a-fA-F]", text)
        assert "\ufffd" in text
    assert not re.search(rb"\\u[dD][89a-fA-F]", store.messages_path.read_bytes())


def test_case_47_nul_is_replaced_before_anything_is_stored(tmp_path):
    llm = {"provider": "openai", "openai": {"model": "m", "api_key": "k"}}
    config = {"context_storage": {"base_dir": str(tmp_path)}, "llm": llm}
    with TaskContextManager(KEY, "u-1", config, title="a\0b") as context:
        store = context.get_message_store()
        store.add_message("user", "zero \0 here")
        store.add_message("assistant", None, tool_calls=[{**CALL, "arguments": {"path": "a\0"}}])
        context.get_tool_store().add_tool_call("read_file", {"path": "a\0"}, "r\0", "success", 1)
        store.add_message("tool", "r\0", tool_call_id="call_1")
        context.set_columns(title="c\0d")
        assert "\0" not in context.row["title"]
        for path in context.context_dir.glob("*.jsonl"):
            data = path.read_bytes()
            assert b"\\u0000" not in data
            assert b"\0" not in data


def limited(code, kind, message, **headers):
    return Reply({"error": {"message": message, "type": kind, "code": code}}, 429, headers)


def test_case_49_no_quota_is_not_retried_and_a_limit_is_whatever_the_words_say(talk):
    quota = limited(
        "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan."
    )
    client, _, server = talk("openai", quota)
    with clock.use(clock.FakeClock()):
        with pytest.raises(QuotaExhausted):
            client.get_response()
        assert len(server.asked) == 1
        busy = limited("rate_limit_exceeded", "requests", "INSUFFICIENT QUOTA: too many concurrent requests")
        server.replies = [busy, busy, says("openai", "Done.")]
        assert client.get_response()[0] == "Done."
    assert len(server.asked) == 4


def test_case_49_a_wait_for_a_limit_can_be_stopped(talk):
    stop = Stop(Outcome(End.STOPPED), looks=2)
    client, _, _ = talk(
        "openai", limited("rate_limit_exceeded", "tokens", "slow", **{"Retry-After": "60"}), control=stop
    )
    with clock.use(clock.FakeClock()), pytest.raises(Interrupted):
        client.get_response()


@pytest.mark.parametrize("wire", ["openai", "lmstudio", "ollama"])
def test_case_53_the_role_developer_is_never_sent(talk, wire):
    client, _, server = talk(wire, says(wire, "Done."))
    client.get_response()
    assert [one["role"] for one in server.asked[0].json["messages"]] == ["system", "user"]


def test_case_46_and_47_what_was_poisoned_before_is_cleaned_when_it_is_opened_again(tmp_path):
    """A view is derived from records that went through the same door: nothing else can be in it."""
    from agent.config import settings_of

    settings = settings_of({"llm": {"provider": "openai", "openai": {"model": "m", "api_key": "k"}}})
    store = MessageStore(tmp_path, settings)
    store.add_message("user", "a\0b\ud800c")
    store.close()
    again = MessageStore(tmp_path, settings)
    [message] = [orjson.loads(line) for line in again.current_path.read_bytes().splitlines()]
    assert message["content"] == "a\ufffdb\ufffdc"
    again.close()
