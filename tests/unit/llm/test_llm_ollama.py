"""Ollama's wire: objects for arguments, a constant window, no silent cutting (cases 34, 35, 37, 38)."""

import json
from functools import partial
from pathlib import Path

import jsonschema
import pytest
import yaml
from llm_servers import TOOL, Reply, call, conversations, ollama_lines, says

from agent import clock
from agent.context.usage_reports import MessageCost, UsageReports
from agent.errors import AnswerUnreadable, ContextOverflow, ModelNotFound, ModelUnreachable
from agent.llm.truncation_detector import check_not_truncated, window_behind
from agent.values import Answer, Plan, Span, Usage

DOCUMENT = yaml.safe_load((Path(__file__).parents[2] / "specs" / "ollama-openapi.yaml").read_text())
REQUEST = {"$ref": "#/components/schemas/ChatRequest", "components": DOCUMENT["components"]}


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path) as start:
        yield partial(start, "ollama")


def plan_of(store, **numbers):
    return Plan((Span(store.get_current_context_file()),), **numbers)


def test_a_tool_loop_is_valid_by_ollamas_document_with_objects_and_tool_names(talk):
    calls = (call("read_file", {"path": "a"}, ""), call("list_files", {}, ""))
    client, store, server = talk(says("ollama", "I look", calls), says("ollama", "done"), tools=[TOOL])
    client.send_system_prompt("s")
    client.send_user_message("u")
    _, made = client.get_response(plan_of(store, output=300))
    for one in made:
        store.add_message("tool", f"result of {one['name']}", tool_call_id=one["id"])
    client.get_response(plan_of(store, output=300))
    validator = jsonschema.Draft202012Validator(REQUEST)
    for request in server.asked:
        assert [error.message for error in validator.iter_errors(request.json)] == []
        assert request.path == "/api/chat"
    sent = server.asked[-1].json["messages"]
    assert [one["function"]["arguments"] for one in sent[2]["tool_calls"]] == [{"path": "a"}, {}]
    assert [one["id"] for one in sent[2]["tool_calls"]] == [one["tool_call_id"] for one in sent[3:]]
    assert [one["tool_name"] for one in sent[3:]] == ["read_file", "list_files"]
    assert len({one["id"] for one in made}) == 2


def test_the_window_is_the_same_in_every_request_and_nothing_is_cut_silently(talk):
    client, store, server = talk(says("ollama", "x"))
    store.add_message("user", "u")
    client.get_response(plan_of(store, output=7))
    path = store.context_dir / "summary.txt"
    path.write_text("text")
    client.get_summary(path)
    for request in server.asked:
        body = request.json
        assert (body["truncate"], body["shift"], body["stream"]) == (False, False, True)
        assert body["options"]["num_ctx"] == 8192
        assert "keep_alive" not in body  # it would replace what the server's owner set (OLLAMA_KEEP_ALIVE)
        assert "think" not in body  # 400 where a model cannot
    assert server.asked[0].json["options"]["num_predict"] == 7


def test_the_window_is_at_most_what_the_model_was_trained_for(talk):
    shown = Reply({"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 4096}})
    client, store, server = talk(says("ollama", "x"), routes={("POST", "/api/show"): shown})
    store.add_message("user", "u")
    client.get_response()
    assert client.loaded_window() == 4096
    assert server.asked[0].json["options"]["num_ctx"] == 4096
    assert len([request for request in server.journal if request.path == "/api/show"]) == 1


@pytest.mark.parametrize("path", ["", "/", "/api", "/v1", "/api/chat"])
def test_the_native_endpoint_is_used_however_the_address_is_written(talk, path):
    client, store, server = talk(says("ollama", "x"), path=path)
    store.add_message("user", "u")
    client.get_response()
    assert server.asked[0].path == "/api/chat"


def test_arguments_that_are_not_json_go_out_as_an_empty_object(talk):
    client, store, server = talk(says("ollama", "done"), tools=[TOOL])
    store.add_message("user", "u")
    store.add_message(
        "assistant", "", tool_calls=[{"id": "a", "name": "read_file", "arguments": {}, "invalid": "{bad"}]
    )
    store.add_message("tool", "not run", tool_call_id="a")
    client.get_response()
    assert server.asked[0].json["messages"][1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "function": {"index": 0, "name": "read_file", "arguments": {}}}],
    }


def test_a_prompt_that_was_cut_without_a_word_is_an_overflow_and_not_recorded(talk):
    client, store, server = talk(says("ollama", "I forgot your question", usage=(2050, 10)))
    server.routes["GET", "/api/ps"] = Reply({"models": [{"name": "m:latest", "context_length": 4096}]})
    store.add_message("user", "u")
    with pytest.raises(ContextOverflow) as overflow:
        client.get_response(plan_of(store, tokens=5000))
    assert overflow.value.limit == 4096
    assert store.count_messages() == 1


@pytest.mark.parametrize(("answer", "reason"), [(191, "tool_calls"), (192, "length"), (400, "length")])
def test_an_answer_that_fills_the_window_is_one_that_was_cut(talk, answer, reason):
    """A server that does not know `shift` forgets the oldest half and writes on; it says `stop` at the end."""
    usage = (8000, answer)
    client, store, _ = talk(says("ollama", "", (call("read_file", {"path": "a"}),), usage=usage), tools=[TOOL])
    store.add_message("user", "u")
    client.get_response()
    assert client.last.finish_reason == ("stop" if reason == "tool_calls" else "length")


def test_results_go_out_in_the_order_of_their_calls_by_which_templates_tie_them(talk):
    calls = [{"id": one, "name": "read_file", "arguments": {"path": one}} for one in ("a", "b", "c")]
    client, store, server = talk(says("ollama", "done"), says("ollama", "more"), tools=[TOOL])
    store.add_message("user", "u")
    for turn in range(2):
        renamed = [{**one, "id": f"{one['id']}{turn}"} for one in calls]
        store.add_message("assistant", "I look.", tool_calls=renamed)
        for one in ("c", "a", "b"):
            store.add_message("tool", f"text of {one}", tool_call_id=f"{one}{turn}")
        if not turn:
            store.add_message("user", "And again.")
            store.add_message("user", "Quickly.")
    client.get_response()
    results = [one["content"] for one in server.asked[0].json["messages"] if one["role"] == "tool"]
    assert results == ["text of a", "text of b", "text of c"] * 2


def test_a_summary_of_a_prompt_that_was_cut_is_not_used(talk, tmp_path):
    client, _, _ = talk(
        says("ollama", "Only the second half.", usage=(4098, 10)), says("ollama", "All", usage=(4000, 9))
    )
    path = tmp_path / "summary_request.txt"
    path.write_text("Summarise: " + "much was done. " * 3000)
    with pytest.raises(ContextOverflow, match="silently") as overflow:
        client.get_summary(path)
    assert overflow.value.limit == 8192
    assert client.get_summary(path) == "All"


def judged(reported, estimated, *, read=0, added=0, allocated=None, is_partial=False):
    """The window that a cut has taught, None where the report is believed."""
    reports = UsageReports(
        read=read, added=MessageCost(added), is_partial=is_partial, _prompt=read, _growth=MessageCost(added)
    )
    plan = Plan((Span(Path("current.jsonl")),), tokens=estimated)
    try:
        check_not_truncated(Answer("x", usage=Usage(reported, 5)), plan, reports, 131_072, lambda: allocated, "it", "")
    except ContextOverflow as overflow:
        return overflow.limit
    return None


@pytest.mark.parametrize(
    ("reported", "estimated", "more", "taught"),
    [
        # an estimate alone, however far off
        (2050, 20_000, {}, None),
        (4000, 40_000, {}, None),
        (1_386, 11_000, {"allocated": 131_072}, None),
        # the mark of a cut for the window that the server has allocated
        (2050, 5000, {"allocated": 4096}, 4096),
        (2060, 5000, {"allocated": 4096}, 4096),  # num_keep 24
        (2040, 5000, {"allocated": 4096}, None),
        (3000, 5000, {"allocated": 4096}, None),
        # a prompt that has grown, and a number that has not
        (2050, 9000, {"read": 2050, "added": 20}, 4096),
        (2051, 12_000, {"read": 3974, "added": 8000}, 4096),
        (3950, 5000, {"read": 3960, "added": 450}, 4096),
        (16_386, 30_000, {"read": 14_000, "added": 16_000}, None),  # it has grown: the next prompt tells
        (16_386, 30_000, {"read": 16_386, "added": 500}, 32_768),
        (2_100, 3_000, {"read": 2_000, "added": 700}, None),  # an estimate of seven times as much
        (2_000, 3_000, {"read": 2_010, "added": 20}, None),  # a template that writes a newest message otherwise
        # a server that tells only what it had not cached
        (1_500, 12_000, {"read": 9_000, "added": 1_500}, None),
        (3_000, 9_000, {"read": 5_000, "added": 3_000}, None),
        (3_000, 9_000, {"read": 3_500, "added": 1_000, "is_partial": True}, None),
        (40, 12_000, {"read": 60, "added": 500}, None),
        (0, 12_000, {"allocated": 4096}, None),
    ],
)
def test_a_cut_is_told_from_a_bad_estimate_and_from_a_cache(reported, estimated, more, taught):
    assert judged(reported, estimated, **more) == taught


@pytest.mark.parametrize(("reported", "cut"), [(65_538, True), (65_530, False), (40_000, False)])
def test_without_a_plan_only_the_mark_of_the_window_tells(reported, cut):
    answer = Answer("x", usage=Usage(reported, 5))
    if cut:
        with pytest.raises(ContextOverflow):
            check_not_truncated(answer, None, None, 131_072, lambda: None, "it", "")
    else:
        check_not_truncated(answer, None, None, 131_072, lambda: None, "it", "")


def test_the_window_behind_a_cut_has_room_for_the_prompt_before():
    assert window_behind(2050, 0) == 4096
    assert window_behind(16_386, 16_386) == 32_768
    assert window_behind(3000, 2000) == 3072
    assert window_behind(2050, 5000) == 5120


def test_an_error_line_under_200_is_an_error(talk):
    pieces = [
        *ollama_lines("half", done=False),
        b'{"error":"an error was encountered while running the model: CUDA error"}\n',
    ]
    client, store, _ = talk(Reply(pieces))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()), pytest.raises(ModelUnreachable, match="CUDA"):
        client.get_response()
    assert store.count_messages() == 1


def test_an_overflow_line_under_200_is_an_overflow(talk):
    client, store, _ = talk(
        Reply([b'{"error":"the prompt is longer than the context length currently available to the model"}\n'])
    )
    store.add_message("user", "u")
    with pytest.raises(ContextOverflow):
        client.get_response()


@pytest.mark.parametrize("reason", [b"load", b"unload"])
def test_a_model_that_was_only_loaded_is_asked_again(talk, reason):
    loaded = Reply(
        [b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"%s"}\n' % reason]
    )
    client, store, server = talk(loaded, says("ollama", "x"))
    store.add_message("user", "u")
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "x"
    assert len(server.asked) == 2


def test_a_missing_model_is_not_retried(talk):
    client, store, server = talk(Reply({"error": 'model "m" not found, try pulling it first'}, 404))
    store.add_message("user", "u")
    with pytest.raises(ModelNotFound, match="pull"):
        client.get_response()
    assert len(server.asked) == 1


def test_thinking_is_kept_apart(talk):
    pieces = [
        b'{"model":"m","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}\n',
        *ollama_lines("yes"),
    ]
    client, store, _ = talk(Reply(pieces))
    store.add_message("user", "u")
    assert client.get_response()[0] == "yes"
    assert client.last.reasoning == "hm"
    record = json.loads((store.context_dir / "messages.jsonl").read_text().splitlines()[-1])
    assert record["content"] == "yes"
    assert record["provider_fields"]["message"] == {"thinking": "hm"}


def test_html_is_no_answer(talk):
    client, store, _ = talk(Reply(b"<html>\n<title>Proxy</title>\n</html>"))
    store.add_message("user", "u")
    with pytest.raises(AnswerUnreadable, match="base_url"):
        client.get_response()


def test_neighbours_are_merged(talk):
    client, store, server = talk(says("ollama", "x"))
    folder = store.context_dir
    path = folder / "odd.jsonl"
    path.write_text('{"role":"system","content":"one"}\n{"role":"user","content":"a"}\n{"role":"user","content":"b"}\n')
    client.get_response(Plan((Span(path),)))
    assert server.asked[0].json["messages"] == [
        {"role": "system", "content": "one"},
        {"role": "user", "content": "a\n\nb"},
    ]


def test_a_conversation_that_begins_with_a_summary_gets_a_user_message_first(talk):
    client, store, server = talk(says("ollama", "x"))
    path = store.context_dir / "odd.jsonl"
    path.write_text(
        '{"role":"system","content":"s"}\n{"role":"assistant","content":"so far"}\n{"role":"user","content":"b"}\n'
    )
    client.get_response(Plan((Span(path),)))
    assert [message["role"] for message in server.asked[0].json["messages"]] == ["system", "user", "assistant", "user"]


def test_the_check_finds_a_model_without_its_tag(talk):
    client, _, _ = talk(
        says("ollama", "x"),
        routes={("GET", "/api/tags"): Reply({"models": [{"name": "m:latest", "model": "m:latest"}]})},
    )
    assert client.check().ok
