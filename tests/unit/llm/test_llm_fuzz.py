"""A server that answers anything at all: an answer or a typed error, and what is recorded can be sent again.

Valid answers with values replaced, left out or repeated, streamed and not, on each wire.  A few seconds in all.
"""

import copy
import json
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from length import either
from llm_servers import TOOL, WIRES, Reply, Script, client_for, says

from agent import clock
from agent.errors import ModelError

KEYS = [
    "choices",
    "delta",
    "message",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "index",
    "id",
    "type",
    "text",
    "thinking",
    "signature",
    "usage",
    "reasoning_content",
    "reasoning_details",
    "extra_content",
    "finish_reason",
    "stop_reason",
    "error",
    "model",
    "data",
    "input",
    "role",
]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["{", "[DONE]", "<think>", "tool_use", "stop", "call_1", "\ud83d", "\x00", "read_file", "{}", ""]),
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner),
    max_leaves=6,
)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from("rdt"), ANYTHING), min_size=1, max_size=3)

CALL = {"index": 0, "id": "call_1", "type": "function", "extra_content": {"google": {"thought_signature": "c2ln"}}}
FUNCTION = {"name": "read_file", "arguments": '{"path": "a.py"}'}
DETAIL = {"type": "reasoning.text", "text": "hm", "index": 0, "signature": "c2ln"}
BASE = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
COUNTS = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
MESSAGE = {"role": "assistant", "content": "Hi", "reasoning_content": "hm", "reasoning_details": [DETAIL]}
OPENAI = [
    {**BASE, "choices": [{"index": 0, "delta": MESSAGE, "finish_reason": None}]},
    {**BASE, "choices": [{"index": 0, "delta": {"tool_calls": [{**CALL, "function": FUNCTION}]}}]},
    {**BASE, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {**BASE, "choices": [], "usage": COUNTS},
]
OPENAI_WHOLE = [
    {
        **BASE,
        "usage": COUNTS,
        "choices": [
            {
                "index": 0,
                "message": {**MESSAGE, "tool_calls": [{**CALL, "function": FUNCTION}]},
                "finish_reason": "tool_calls",
            }
        ],
    }
]
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
USED = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}}
BLOCKS = [THOUGHT, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Hi"}, USED]
START = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": {"input_tokens": 9}}
ANTHROPIC = [
    {"type": "message_start", "message": {**START, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {**THOUGHT, "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_start", "index": 2, "content_block": {**USED, "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"path": "a"}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
ANTHROPIC_WHOLE = [{**START, "content": BLOCKS, "stop_reason": "tool_use"}]
SAID = {"role": "assistant", "content": "Hi", "thinking": "hm", "tool_calls": [{"id": "c", "function": FUNCTION}]}
OLLAMA = [
    {"model": "m", "message": {**SAID, "tool_calls": [{"function": {**FUNCTION, "arguments": {"path": "a.py"}}}]}},
    {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
]
ANSWERS = {
    ("openai", "stream"): OPENAI,
    ("openai", "whole"): OPENAI_WHOLE,
    ("anthropic", "stream"): ANTHROPIC,
    ("anthropic", "whole"): ANTHROPIC_WHOLE,
    ("ollama", "stream"): OLLAMA,
}


def places(value, parent=None, key=None):
    """(container, key) of every value inside."""
    if parent is not None:
        yield parent, key
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, one in list(inner):
        yield from places(one, value, at)


def changed(events, changes):
    made = copy.deepcopy(events)
    for number, how, value in changes:
        known = list(places(made))
        if not known:
            return made
        container, key = known[number % len(known)]
        if how == "r":
            container[key] = value
        elif how == "d":
            del container[key]
        elif isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        else:
            container[f"{key}_more"] = container[key]
    return made


def body(wire, form, events):
    lines = [json.dumps(event).encode() for event in events]
    if form == "whole":
        return lines[0] if lines else b""
    if wire == "ollama":
        return b"".join(line + b"\n" for line in lines)
    end = b"data: [DONE]\n\n" if wire == "openai" else b""
    return b"".join(b"data: " + line + b"\n\n" for line in lines) + end


@pytest.mark.parametrize(("wire", "form"), ANSWERS)
def test_whatever_a_server_answers_is_an_answer_or_a_model_error(wire, form):
    """What was taken is recorded, and a next request with it can be built and is taken."""
    replies = {}
    kind = "application/json" if form == "whole" else WIRES[wire][1]

    def server_says(_request):
        return Reply(replies["now"], headers={"Content-Type": kind}) if "now" in replies else says(wire, "Done.")

    with closing(Script(server_says)) as server:

        @settings(max_examples=either(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
        @given(CHANGES)
        @example([(159, "r", {"name": False})])  # a call of Ollama's that has a field of our records
        def check(changes):
            replies["now"] = body(wire, form, changed(ANSWERS[wire, form], changes))
            with tempfile.TemporaryDirectory() as folder, clock.use(clock.FakeClock()):
                client, store = client_for(wire, server.url, Path(folder), tools=[TOOL])
                with closing(store), closing(client):
                    store.add_message("system", "You help.")
                    store.add_message("user", "Go.")
                    try:
                        _, calls = client.get_response()
                    except ModelError:
                        assert store.last_seq == 2
                        return
                    for call in calls:
                        store.add_message("tool", "x", tool_call_id=call["id"])
                    store.add_message("user", "Go on.", kind="comment")
                    del replies["now"]
                    assert client.get_response()[0] == "Done."
                    json.loads(server.asked[-1].body)

        check()
