"""Whatever stands in a field of an answer, it is read or refused with a model error; a Python error is a bug of ours."""

import copy
import io
import json
from types import SimpleNamespace

import orjson
import pytest
import urllib3
from llm_servers import Reply, Script, client_for, says

from agent.errors import ModelError, ShapeWrong
from agent.llm import wire_anthropic, wire_ollama, wire_openai
from agent.llm.answer_fields import index_in, object_in, objects_in, text_in
from agent.llm.openai import OpenAIClient
from agent.llm.transport import Stream

DEEP = 700
ODD = [
    *(None, True, False, 0, 7, -1, 1.5, 10**30, "", "text", "null"),
    *([], [None], ["x"], [[]], [{}], {}, {"a": None}, {"type": []}, {"index": {}}, [{"index": []}]),
    json.loads("[" * DEEP + "]" * DEEP),
    json.loads('{"a":' * DEEP + "1" + "}" * DEEP),
]
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}, "own": {}}
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1}}
OPENAI = [
    {"model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a", "reasoning": "r"}}]},
    {"choices": [{"delta": {"content": [{"type": "text", "text": "b"}, {"type": "thinking", "thinking": ["t"]}]}}]},
    {"choices": [{"delta": {"tool_calls": [CALL], "extra": [{"index": 0, "x": "y"}]}}]},
    {"choices": [{"delta": {"tool_calls": [CALL | {"function": {"arguments": '{"a": 1}'}}], "extra": [{"index": 0}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "tool_calls", "usage": USAGE}], "usage": USAGE},
    {"choices": [], "x_groq": {"usage": USAGE}},
]
WHOLE = {
    "model": "m",
    "choices": [{"message": {"content": "a", "tool_calls": [CALL]}, "finish_reason": "stop"}],
    "usage": USAGE,
}
COUNTS = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 1, "output_tokens_details": {}}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s", "partial_json": "{"}
ANTHROPIC = [
    {"type": "message_start", "message": {"model": "m", "usage": COUNTS}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
    {"type": "content_block_start", "index": 1, "content_block": THOUGHT},
    {"type": "content_block_delta", "index": 1, "delta": {"thinking": "t", "signature": "u", "partial_json": "}"}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "1", "name": "f"}},
    {"type": "content_block_delta", "index": 2, "delta": {"partial_json": '{"a": 1}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": COUNTS},
    {"type": "message_stop"},
]
MESSAGE = {
    "type": "message",
    "model": "m",
    "content": [{"type": "text", "text": "a"}, THOUGHT, {"type": "tool_use", "id": "1", "name": "f", "input": {}}],
    "stop_reason": "end_turn",
    "usage": COUNTS,
}
OLLAMA = [
    {"model": "m", "message": {"role": "assistant", "content": "a", "thinking": "t", "extra": {"x": 1}}},
    {"model": "m", "message": {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]}},
    {"model": "m", "message": {}, "done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2},
]


def streamed(records):
    return b"".join(b"data: " + json.dumps(record).encode() + b"\n\n" for record in records) + b"data: [DONE]\n\n"


def lines(records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def whole(records):
    return json.dumps(records[0]).encode()


FORMS = {
    "openai": (wire_openai, OPENAI, streamed, "text/event-stream"),
    "openai whole": (wire_openai, [WHOLE], whole, "application/json"),
    "anthropic": (wire_anthropic, ANTHROPIC, streamed, "text/event-stream"),
    "anthropic whole": (wire_anthropic, [MESSAGE], whole, "application/json"),
    "ollama": (wire_ollama, OLLAMA, lines, "application/x-ndjson"),
}


def read(wire, body, kind):
    raw = urllib3.HTTPResponse(io.BytesIO(body), {"content-type": kind}, 200, preload_content=False)
    watch = SimpleNamespace(answering=False, raise_outcome=lambda: None)
    return wire.read_answer(Stream(raw, "the server", watch), "the server").answer(("call_1",), ("f",))


def places(value, way=()):
    """The way to each value inside of `value`."""
    if way:
        yield way
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from places(inner, (*way, key))


def with_odd(records, way, odd):
    changed = copy.deepcopy(records)
    here = changed
    for key in way[:-1]:
        here = here[key]
    here[way[-1]] = odd
    return changed


@pytest.mark.parametrize("form", FORMS)
def test_an_odd_value_at_any_place_is_read_or_refused(form):
    wire, records, encode, kind = FORMS[form]
    assert read(wire, encode(records), kind).calls
    refused = 0
    for way in list(places(records)):
        for odd in ODD:
            try:
                answer = read(wire, encode(with_odd(records, way, odd)), kind)
            except ModelError:
                refused += 1
            else:
                orjson.dumps([answer.text, answer.calls, answer.fields, answer.call_fields, answer.reasoning])
    assert refused > 10


class Broken(OpenAIClient):
    """A client with a mistake in its reader."""

    def read(self, stream):
        list(stream.lines())
        return {}["a field that we forgot"]


def test_a_mistake_in_a_reader_stays_the_python_error_that_it_is(tmp_path):
    with Script(says("openai", "hello")) as script:
        client, store = client_for("openai", script.url, tmp_path)
        client.__class__ = Broken
        client.send_system_prompt("You help.")
        client.send_user_message("Go.")
        with pytest.raises(KeyError, match="a field that we forgot"):
            client.get_response()
        client.close()
        assert len(script.asked) == 1, "the same request would fail in the same way"
    assert store.last_seq == 2


def test_an_answer_with_half_a_sign_in_too_deep_json_is_refused(tmp_path):
    deep = b"[" * 100_000 + b'"\\ud83d"' + b"]" * 100_000
    body = [b'data: {"choices": [{"delta": {"content": ' + deep + b"}}]}\n\n"]
    with Script(Reply(body, headers={"Content-Type": "text/event-stream"})) as script:
        client, _ = client_for("openai", script.url, tmp_path)
        client.send_system_prompt("You help.")
        client.send_user_message("Go.")
        with pytest.raises(ModelError, match="not JSON"):
            client.get_response()
        client.close()


def test_fields_are_read_by_their_type():
    record = {"o": {"a": 1}, "l": [{}, {"b": 2}], "i": 3, "t": "text", "none": None, "empty": ""}
    assert object_in(record, "o") == {"a": 1}
    assert object_in(record, "none") == object_in(record, "missing") == object_in(record, "empty") == {}
    assert list(objects_in(record, "l")) == [{}, {"b": 2}]
    assert list(objects_in(record, "none")) == []
    assert (index_in(record, "i"), index_in(record, "t"), index_in(record, "none")) == (3, "text", None)
    assert (text_in(record, "t"), text_in(record, "none")) == ("text", "")
    for reader, name, fault in (
        (object_in, "l", r"the field `l` must be an object, and is \[\{\}, \{'b': 2\}\]"),
        (objects_in, "o", "the field `o` must be a list, and is"),
        (index_in, "o", "the field `o` must be a number"),
        (text_in, "i", "the field `i` must be text, and is 3"),
    ):
        with pytest.raises(ShapeWrong, match=fault):
            reader(record, name)
    with pytest.raises(ShapeWrong, match=r"the field `l\[1\]` must be an object, and is 5"):
        objects_in({"l": [{}, 5]}, "l")
