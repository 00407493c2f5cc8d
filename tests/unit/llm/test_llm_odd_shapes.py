"""JSON that is no answer of its wire: a typed error, whatever its shape, and nothing is appended."""

import json

import pytest
from llm_servers import WIRES, Reply, Script, client_for

from agent.errors import AnswerUnreadable

OPENAI = [
    {"choices": 5},
    {"choices": [None]},
    {"choices": [{"delta": "text"}]},
    {"choices": [{"delta": {"tool_calls": [None]}}]},
    {"choices": [{"delta": {"tool_calls": 7}}]},
    {"choices": [{"delta": {"tool_calls": [{"function": "name"}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": [], "function": {"name": "a"}}]}}]},
]
ANTHROPIC = [
    {"type": "message_start", "message": "m"},
    {"type": "message_start", "message": {"usage": [1]}},
    {"type": "content_block_start", "content_block": ["text"]},
    {"type": "content_block_delta", "delta": 5},
    {"type": "message_delta", "delta": ["stop_reason"]},
    {"type": "message_delta", "delta": {"stop_reason": {"a": 1}}},
]
OLLAMA = [
    {"message": "text"},
    {"message": {"tool_calls": 7}},
    {"message": {"tool_calls": [None]}},
    {"message": {"tool_calls": [{"function": "name"}]}},
]
SHAPES = [
    *[(wire, shape) for wire in ("openai", "lmstudio") for shape in OPENAI],
    *[("anthropic", shape) for shape in ANTHROPIC],
    *[("ollama", shape) for shape in OLLAMA],
]


@pytest.mark.parametrize(("wire", "shape"), SHAPES)
def test_an_answer_of_another_shape_is_a_model_error(wire, shape, tmp_path):
    line = json.dumps(shape).encode()
    body = line + b"\n" if wire == "ollama" else b"data: " + line + b"\n\n"
    with Script(Reply([body], headers={"Content-Type": WIRES[wire][1]})) as script:
        client, store = client_for(wire, script.url, tmp_path)
        client.send_system_prompt("You help.")
        client.send_user_message("Go.")
        with pytest.raises(AnswerUnreadable, match="another shape"):
            client.get_response()
        client.close()
    assert store.last_seq == 2
    assert not (tmp_path / "request.json").exists()
