"""One judge of a message list: odd lists, what is decided of each, and why.

Each list goes to all who judge: the judge itself, the planner's view, the lines of a client, and the store, which may
refuse a message or make it fit, but never writes a view that the judge refuses.
"""

import orjson
import pytest

from agent.context import MessageStore
from agent.errors import HistoryRefused
from agent.llm.request_lines import Lines
from agent.message_list_check import MessageList
from agent.message_reader import MessageReader
from agent.tokens import counter_for
from agent.values import Span
from agent.window.base import IllegalContext
from agent.window.counted_view import View

SYSTEM = {"role": "system", "content": "s"}
USER = {"role": "user", "content": "u"}
DONE = {"role": "assistant", "content": "done"}
FUNCTION = {"name": "f", "arguments": "{}"}
CALL = {"id": "a", "type": "function", "function": FUNCTION}


def calling(*ids, **more):
    return {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": one} for one in ids]} | more


def result(one, content="r", **more):
    return {"role": "tool", "tool_call_id": one, "content": content} | more


def begun(*messages):
    return [SYSTEM, USER, *messages]


def called(call):
    return begun(calling("a", tool_calls=[call]), result("a"))


# (list, the rule that it breaks or "", why)
ODD = {
    "late system": (begun(SYSTEM, USER), "Only the first message may be system", "Qwen's template raises; docs 3.5"),
    "two users in a row": (begun(USER), "", "OpenAI takes it; merged on the way to strict templates"),
    "two assistants in a row": (begun(DONE, DONE, USER), "", "as two users"),
    "an assistant first": ([SYSTEM, DONE, USER], "", "a summary may come first; strict templates get a user's word"),
    "empty assistant": (begun(DONE | {"content": ""}, USER), "empty content", "Kimi and Anthropic refuse; docs 3.5"),
    "assistant of null": (
        begun(DONE | {"content": None}, USER),
        "empty content",
        "OpenAI: expected a string, got null",
    ),
    "assistant without content": (begun({"role": "assistant"}, USER), "empty content", "docs 3.5: role and content"),
    "empty result": (begun(calling("a"), result("a", "")), "empty content", "the store says (no output); docs 3.5"),
    "result of null": (begun(calling("a"), result("a", None)), "empty content", "OpenAI: expected a string, got null"),
    "empty user": ([SYSTEM, USER | {"content": ""}], "empty content", "Anthropic refuses; docs 3.5"),
    "user of null": ([SYSTEM, USER | {"content": None}], "empty content", "OpenAI: expected a string, got null"),
    "empty system": ([SYSTEM | {"content": ""}, USER], "empty content", "docs 3.5"),
    "unknown key": ([SYSTEM, USER | {"seq": 2}], "Unknown keys.*seq", "OpenAI: additional properties are not allowed"),
    "record's key of an answer": (begun(DONE | {"usage": {}}, USER), "Unknown keys.*usage", "as an unknown key"),
    "server's key of an answer": (
        begun(DONE | {"reasoning": "x"}, USER),
        "",
        "it goes back to the server that gave it",
    ),
    "name of a user": ([SYSTEM, USER | {"name": "ann"}], "Unknown keys.*name", "Groq and Mistral refuse it"),
    "name of an assistant": (begun(DONE | {"name": "bot"}, USER), "Unknown keys.*name", "as of a user"),
    "name of a result": (begun(calling("a"), result("a", name="f")), "Unknown keys.*name", "not in OpenAI's schema"),
    "call's id of a user": ([SYSTEM, USER | {"tool_call_id": "a"}], "Unknown keys.*tool_call_id", "as an unknown key"),
    "id twice in one answer": (begun(calling("a", "a"), result("a")), "Duplicate ids", "OpenAI: duplicate value"),
    "id used again later": (
        begun(calling("a"), result("a"), calling("a"), result("a")),
        "Duplicate ids.*'a'",
        "OpenAI: duplicate value for tool_call_id, in two messages",
    ),
    "result before its call": (begun(result("a"), calling("a")), "must answer an open call", "OpenAI, Anthropic: 400"),
    "result missing": (begun(calling("a", "b"), result("a"), USER), r"must follow.*f \(b\)", "OpenAI, Anthropic: 400"),
    "result for another call": (begun(calling("a"), result("b")), r"'b', which no open call has.*f \(a\)", "the same"),
    "two results": (
        begun(calling("a"), result("a"), result("a")),
        "'a', which no open call has; open: none",
        "the same",
    ),
    "result for a list": (begun(calling("a"), result(["a"])), "must answer an open call", "the same"),
    "results in another order": (begun(calling("a", "b"), result("b"), result("a")), "", "any order, one for each"),
    "tool_calls []": (begun(DONE | {"tool_calls": []}, USER), "must be a list with calls", "OpenAI: [] is too short"),
    "tool_calls null": (begun(DONE | {"tool_calls": None}, USER), "must be a list with calls", "not in the schema"),
    "calls of a user": ([SYSTEM, USER | {"tool_calls": [CALL]}], "Unknown keys.*tool_calls", "as an unknown key"),
    "call without type": (called({"id": "a", "function": FUNCTION}), "needs id, type", "required by OpenAI's schema"),
    "call without id": (called({"type": "function", "function": FUNCTION}), "needs an id", "the same"),
    "call without function": (called({"id": "a", "type": "function"}), "needs id, type", "the same"),
    "call that is a text": (called("f"), "needs id, type", "the same"),
    "call of another name": (called(CALL | {"function": {"name": "f f", "arguments": "{}"}}), "1 to 64", "OpenAI: 400"),
    "name with a newline": (called(CALL | {"function": {"name": "f\n", "arguments": "{}"}}), "1 to 64", "OpenAI: 400"),
    "arguments as an object": (
        called(CALL | {"function": {"name": "f", "arguments": {}}}),
        "arguments as text: .* has dict",
        "OpenAI's schema, and /v1 of Ollama",
    ),
    "record's key of a call": (called(CALL | {"invalid": "x"}), "a call has no invalid", "as an unknown key"),
    "null beside calls": (begun(calling("a"), result("a")), "", "OpenAI's own form"),
    "empty text beside calls": (begun(calling("a", content=""), result("a")), "", "for servers that refuse null"),
    "content as parts": ([SYSTEM, USER | {"content": [{"type": "text", "text": "x"}]}], "must be text", "Ollama: 400"),
    "role that is unknown": ([SYSTEM, USER | {"role": "developer"}], "allowed are system", "most compatibles: 400"),
    "role that is a list": ([SYSTEM, USER | {"role": []}], "allowed are system", "the same"),
    "no role": ([SYSTEM, {"content": "x"}], "missing role", "docs 3.5"),
    "not JSON": (begun(b'{"role":'), "Message 3 in current.jsonl is not JSON", "no server takes it"),
    "blank line": (begun(b""), "Message 3 in current.jsonl is not JSON", "copied, it makes two commas in a row"),
    "line of blanks": (begun(b"  "), "Message 3 in current.jsonl is not JSON", "the same"),
    "not an object": (begun([1]), "Message 3 in current.jsonl is list, not an object", "no server takes it"),
    "pictures that are none": ([SYSTEM, USER | {"images": 3}], "Pictures must be a list", "nothing could be sent"),
    "ends with an assistant": (begun(DONE), "Last message must be", "it would be continued; docs 3.5"),
    "ends with a call": (begun(calling("a")), r"without results for f \(a\)", "OpenAI, Anthropic: 400"),
    "no user": ([SYSTEM, calling("a"), result("a")], "No user message", "Qwen's template: no user query found"),
    "a system message alone": ([SYSTEM], "No user message", "the same"),
    "empty": ([], "Messages cannot be empty", "OpenAI: [] is too short; Ollama loads the model and says nothing"),
}
odd = pytest.mark.parametrize(("messages", "rule"), [one[:2] for one in ODD.values()], ids=list(ODD))


def write(path, messages):
    lines = (one if isinstance(one, bytes) else orjson.dumps(one) for one in messages)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "current.jsonl"


def planned(path):
    View(path, counter_for("")).complete()


def sent(path):
    Lines().check((Span(path),))


@pytest.mark.parametrize("name", [name for name, (_, rule, _) in ODD.items() if not rule])
def test_a_list_that_breaks_no_rule_is_planned_and_sent(path, name):
    write(path, ODD[name][0])
    planned(path)
    sent(path)


@pytest.mark.parametrize("name", [name for name, (_, rule, _) in ODD.items() if rule])
def test_planner_and_client_say_the_same_of_a_list(path, name):
    messages, rule, _ = ODD[name]
    write(path, messages)
    with pytest.raises(IllegalContext, match=rule) as of_planner:
        planned(path)
    with pytest.raises(HistoryRefused, match=rule) as of_client:
        sent(path)
    assert str(of_client.value).replace(str(path), path.name) == str(of_planner.value)


@odd
def test_what_the_store_takes_is_legal(tmp_path, messages, rule):
    """It refuses, or it makes the message fit; either way the view breaks no rule."""
    store = MessageStore(tmp_path, {"llm": {"provider": "openai"}})
    for message in messages:
        if not isinstance(message, dict) or isinstance(message.get("role"), list) or message.get("images") == 3:
            continue  # nothing that could be given to it
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        with_id = {"tool_call_id": message["tool_call_id"]} if message.get("role") == "tool" else {}
        try:
            store.add_message(message.get("role"), message.get("content"), tool_calls=calls, **with_id)
        except (ValueError, TypeError):
            assert rule
    judged = MessageReader(system_first=False).read_list((Span(store.current_path),))
    assert judged.problem == ""
    store.close()


def test_a_list_without_a_system_prompt_is_for_requests_outside_the_conversation(path):
    """No server asks for one; the conversation of a task has one first (docs/design/assembler.md, 3.5)."""
    write(path, [USER])
    sent(path)
    with pytest.raises(IllegalContext, match=r"First message must be system prompt: message 1 in current\.jsonl"):
        planned(path)


def test_the_first_rule_that_is_broken_stands():
    judge = MessageList()
    for message in (SYSTEM, USER, result("a"), DONE, USER | {"name": "x"}):
        judge.add(message, "f")
    assert "message 3 in f answers 'a'" in judge.unfit("f")
    assert judge.shape.count == 5


def test_a_later_system_message_waits_outside_the_view(tmp_path):
    """The store took it into the view once, and the planner then refused every request of the task."""
    store = MessageStore(tmp_path, {"llm": {"provider": "openai"}})
    for message in (SYSTEM, USER, SYSTEM | {"content": "other rules"}):
        store.add_message(message["role"], message["content"])
    planned(store.current_path)
    assert [one["kind"] for one in store.records()] == ["system", "task", "system"]
    assert b"other rules" not in store.current_path.read_bytes()
    store.close()


def test_the_plan_saves_the_client_the_second_parse(path):
    write(path, begun(calling("a"), result("a")))
    view, client = View(path, counter_for("")), Lines()
    seen = view.complete()
    spans = (Span(path, 0, seen.offset),)
    assert client.check(spans, view.get_reading()) is view.messages.shape
    assert client.reader.parsed == 0


@pytest.mark.parametrize("change", ["replaced", "in place", "removed", "read on", "another part"])
def test_a_client_reads_for_itself_what_is_not_what_the_plan_has_read(path, change):
    write(path, begun(USER))
    view, client = View(path, counter_for("")), Lines()
    seen = view.complete()
    spans = (Span(path, 0, seen.offset),)
    reading = view.get_reading()
    if change == "replaced":
        write(path.with_name("new"), begun(USER)).rename(path)
    elif change == "in place":
        write(path, begun(USER | {"content": "v"}))
    elif change == "removed":
        path.unlink()
    elif change == "read on":
        write(path, begun(USER, USER))
        view.read()
    else:
        spans = (Span(path, 0, len(orjson.dumps(SYSTEM)) + 1), Span(path, len(orjson.dumps(SYSTEM)) + 1, seen.offset))
    assert reading.shape_of(spans) is None
    if change == "removed":
        with pytest.raises(HistoryRefused, match="cannot be empty"):
            client.check(spans, reading)
    else:
        assert client.check(spans, reading).count == 3
        assert client.reader.parsed == 3
