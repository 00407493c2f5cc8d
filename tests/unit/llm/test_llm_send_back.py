"""Fields of an answer that only its server understands: kept with the answer, and sent back to that wire and model
only.

Each server here refuses what the real one refuses.  Sources: anomalyco/opencode#24722 and vercel/ai#14739 (DeepSeek),
MoonshotAI/kimi-agent-sdk#169 (Kimi), nanbingxyz/5ire#405 (Gemini), Anthropic's documentation of extended thinking.
"""

import json
from contextlib import closing
from itertools import pairwise

import pytest
from llm_servers import TOOL, Reply, Script, call, client_for, config_for, openai_events, says, sse, store_for

from agent.config import settings_of
from agent.context.message_records import wire as wire_form
from agent.context.provider_fields import Origin
from agent.errors import ModelError
from agent.message_list_check import CALL, RECORDED
from agent.tokens import plain
from agent.window.counted_view import View

REASONING = "The user wants a.py; I read it first. " * 3
DETAILS = [
    {"type": "reasoning.text", "text": REASONING, "format": "anthropic-claude-v1", "index": 0, "signature": "c2ln" * 9},
    {"type": "reasoning.encrypted", "data": "b3BhcXVl" * 8, "id": "rs_1", "format": "openai-responses-v1", "index": 1},
]
SIGNED = {"extra_content": {"google": {"thought_signature": "AVSoXO" * 20}}}


def refusal(text, status=400):
    return Reply({"error": {"message": text, "type": "invalid_request_error", "param": None, "code": None}}, status)


class Strict:
    """A server of OpenAI's wire whose answers have `message` and `in_call`, and which wants both back unchanged with
    each of its answers; an assistant's message that is not its own is refused unless it has `stand_in`."""

    def __init__(self, message=None, in_call=None, *, words, stand_in=None, streamed=True):
        self.message, self.in_call, self.words = message or {}, in_call or {}, words
        self.stand_in, self.streamed = stand_in, streamed
        self.given = set()
        self.refused = 0

    def __call__(self, request):
        for message in request.json["messages"]:
            if message.get("tool_calls") and not self._is_right(message):
                self.refused += 1
                return refusal(self.words)
        number = len(self.given)
        if number == 3:
            return says("openai", "All done.")
        self.given.add(f"call_{number}")
        return self.answer(f"call_{number}")

    def _is_right(self, message):
        first = message["tool_calls"][0]
        if first["id"] in self.given:
            own = all(message.get(key) == value for key, value in self.message.items())
            return own and all(first.get(key) == value for key, value in self.in_call.items())
        return self.stand_in is not None and self.stand_in(message)

    def answer(self, call_id):
        function = {"name": "read_file", "arguments": '{"path": "a.py"}'}
        made = {"id": call_id, "type": "function", "function": function, **self.in_call}
        if not self.streamed:
            message = {"role": "assistant", "content": None, **self.message, "tool_calls": [made]}
            return Reply({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})

        def chunk(delta, finish=None):
            return sse({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

        pieces = [chunk({"role": "assistant", "content": ""})]
        for key, value in self.message.items():
            pieces += [chunk({key: piece}) for piece in cut(value)]
        pieces += [chunk({"tool_calls": [{"index": 0, **made}]}), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        return Reply(pieces, headers={"Content-Type": "text/event-stream"})


def cut(value):
    """The pieces of a field, as a stream has them: texts in parts, items of a list one by one, a signature last."""
    if isinstance(value, str):
        yield from (value[at : at + 11] for at in range(0, len(value), 11))
        return
    if not isinstance(value, list):
        yield value
        return
    for item in value:
        head = {key: item[key] for key in item if key not in ("text", "signature")}
        for piece in cut(item.get("text", "")):
            yield [{**head, "text": piece}]
        if "text" not in item:
            yield [head]
        if "signature" in item:
            yield [{**head, "signature": item["signature"]}]


def turns(client, store, number):
    """Answer and go on, so often; the last text."""
    text = ""
    for _ in range(number):
        text, calls = client.get_response()
        for one in calls:
            store.add_message("tool", "x = 1\n", tool_call_id=one["id"])
    return text


def begin(store):
    store.add_message("system", "You are careful.")
    store.add_message("user", "Fix a.py")


KINDS = {
    "DeepSeek": (
        {"reasoning_content": REASONING},
        {},
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
    ),
    "Gemini": ({}, SIGNED, "Function call is missing a thought_signature in functionCall parts."),
    "OpenRouter": ({"reasoning_details": DETAILS}, {}, "reasoning_details must be passed back unmodified"),
    "unknown": (
        {"x_state": {"turn": [1, {"sig": "q" * 40}]}},
        {"x_sig": "s" * 30},
        "Provider returned error",
    ),
    "no text": ({"reasoning_content": ""}, {}, "Missing `reasoning_content` field in the assistant message"),
}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_server_wants_back_comes_back_in_every_turn_and_after_a_restart(kind, streamed, tmp_path):
    message, in_call, words = KINDS[kind]
    strict = Strict(message, in_call, words=words, streamed=streamed or kind == "no text")
    if kind == "no text":
        strict.streamed = False
    with closing(Script(strict)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 2)
        client.close()
        store.close()
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])  # another process goes on
        assert not store.repairs
        assert turns(client, store, 2) == "All done."
        assert strict.refused == 0
        bodies = [one.body for one in server.asked]
        assert all(later.startswith(earlier[:-2]) for earlier, later in pairwise(bodies))
        client.close()
        store.close()
    text = (tmp_path / "messages.jsonl").read_text()
    assert '"provider_fields":{"wire":"openai","model":"m","server":"127.0.0.1"' in text


def test_another_model_gets_nothing_of_it_and_the_first_gets_all_again(tmp_path):
    strict = Strict({"reasoning_content": REASONING}, SIGNED, words="reasoning_content must be passed back")

    def openai(request):
        """Unknown keys are refused, as api.openai.com and Groq do."""
        allowed = {"role", "content", "tool_calls", "tool_call_id"}
        for message in request.json["messages"]:
            extra = set(message) - allowed
            extra |= {key for one in message.get("tool_calls") or () for key in set(one) - {"id", "type", "function"}}
            if extra:
                return refusal(f"Additional properties are not allowed ({extra} was unexpected) - 'messages.2'")
        return says("openai", "", [call("read_file", {"path": "b.py"}, "call_other")])

    with closing(Script(strict)) as first, closing(Script(openai)) as second:
        client, store = client_for("openai", first.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 2)
        client.close()
        store.close()
        client, store = client_for("openai", second.url, tmp_path, tools=[TOOL], model="other")
        turns(client, store, 1)
        assert len(second.asked) == 1
        seen = View(store.current_path, store.plain).read()
        assert seen.tokens == store.get_current_token_count() + seen.messages * 4 + 3 * 8
        client.close()
        store.close()
        strict.stand_in = lambda message: bool(message.get("reasoning_content"))
        client, store = client_for("openai", first.url, tmp_path, tools=[TOOL])
        turns(client, store, 1)
        # The other model's call has none: what stands in for it is learnt from the refusal, once.
        assert strict.refused == 1
        turns(client, store, 1)
        assert strict.refused == 1
        client.close()
        store.close()


@pytest.mark.parametrize("dialect", ["deepseek", "kimi", "gemini"])
def test_a_dialect_knows_what_stands_in_for_answers_of_another_model(dialect, tmp_path):
    def stands(message):
        first = message["tool_calls"][0]
        if dialect == "gemini":
            return first["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"
        return bool(message.get("reasoning_content"))

    message, in_call = ({}, SIGNED) if dialect == "gemini" else ({"reasoning_content": REASONING}, {})
    strict = Strict(message, in_call, words="refused", stand_in=stands)
    with closing(Script(strict)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL], dialect=dialect)
        begin(store)
        store.add_message("assistant", None, tool_calls=[call("read_file", {"path": "a.py"}, "call_old")])
        store.add_message("tool", "x", tool_call_id="call_old")
        assert turns(client, store, 4) == "All done."
        assert strict.refused == 0
        client.close()
        store.close()


def test_the_window_counts_what_is_sent_back(tmp_path):
    strict = Strict({"reasoning_content": REASONING}, SIGNED, words="")
    with closing(Script(strict)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 1)
        seen = View(store.current_path, plain(store.counter)).read()
        assert seen.tokens == store.get_current_token_count() + seen.messages * 4 + 8
        assert seen.tokens > store.plain.count(REASONING) + store.plain.count(json.dumps(SIGNED))
        assert store.index.since >= store.plain.count(REASONING)
        client.close()
        store.close()


def test_a_summary_has_nothing_of_it_and_the_messages_that_stay_keep_it(tmp_path):
    from agent.window.summary_request import write_lines

    strict = Strict({"reasoning_content": REASONING}, SIGNED, words="reasoning_content must be passed back")
    with closing(Script(strict)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 2)
        write_lines(tmp_path / "lines.jsonl", store.records(), 0)
        assert "thought_signature" not in (tmp_path / "lines.jsonl").read_text()
        assert REASONING not in (tmp_path / "lines.jsonl").read_text()
        store.compact(strategy="summary", end_seq=4, summary="Read a.py once.")
        seen = View(store.current_path, store.plain).read()
        assert seen.tokens == store.get_current_token_count() + seen.messages * 4 + 8
        assert turns(client, store, 2) == "All done."
        assert strict.refused == 0
        client.close()
        store.close()


def test_where_it_must_not_come_in_older_turns_it_comes_in_the_running_loop_only(tmp_path):
    """DeepSeek's R1: "Please remove the reasoning_content" (Euyug/Mirai-Gpt-Plugin#4); its tool loop wants it."""

    def server_says(request):
        messages = request.json["messages"]
        last = max(place for place, message in enumerate(messages) if message["role"] == "user")
        for place, message in enumerate(messages):
            if place < last and "reasoning_content" in message:
                return refusal("Please remove the reasoning_content from your message to reduce network traffic.")
            if place > last and message.get("tool_calls") and message.get("reasoning_content") != REASONING:
                return refusal("Missing `reasoning_content` field in the assistant message at message index 3.")
        return strict.answer(f"call_{len(messages)}")

    strict = Strict({"reasoning_content": REASONING}, words="")
    with closing(Script(server_says)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 2)
        store.add_message("user", "And b.py too.", kind="comment")
        turns(client, store, 3)
        assert len(server.asked) == 6  # one refusal taught it
        client.close()
        store.close()


@pytest.mark.parametrize(
    "words",
    [
        "Unknown parameter: 'messages[2].reasoning_content'.",
        "property 'reasoning_content' is unsupported",
        "Cannot pass both content and thinking in an assistant message with tool calls!",
        "Extra inputs are not permitted",
        "bad request",
    ],
)
def test_a_server_that_gives_a_field_and_refuses_it_does_not_get_it_again(words, tmp_path):
    def server_says(request):
        if any("reasoning_content" in message for message in request.json["messages"]):
            return refusal(words)
        return strict.answer(f"call_{len(request.json['messages'])}")

    strict = Strict({"reasoning_content": REASONING}, words="")
    with closing(Script(server_says)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 3)
        assert len(server.asked) == 4
        client.close()
        store.close()


def test_a_refusal_of_something_else_stays_one(tmp_path):
    strict = Strict({"reasoning_content": REASONING}, words="")

    def server_says(request):
        if len(request.json["messages"]) > 6:
            return refusal("the parameter temperature is refused")
        return strict.answer(f"call_{len(request.json['messages'])}")

    with closing(Script(server_says)) as server:
        client, store = client_for("openai", server.url, tmp_path, tools=[TOOL])
        begin(store)
        with pytest.raises(ModelError, match="temperature"):
            turns(client, store, 9)
        assert [len(one.json["messages"]) for one in server.asked] == [2, 4, 6, 8]
        client.close()
        store.close()


def test_declared_secrets_are_masked_in_a_text_and_a_signed_structure_with_one_is_left_out(tmp_path, monkeypatch):
    secret = "sk-very-secret-0123456789"
    config = config_for("openai", "http://127.0.0.1:1", api_key=secret)
    store = store_for(tmp_path, settings_of(config))
    begin(store)
    fields = {
        "message": {"reasoning_content": f"The key is {secret}.", "blocks": [{"thinking": secret, "signature": "x"}]},
        "calls": [{"note": secret}],
    }
    made = [call("read_file", {}, "c")]
    whose = {"wire": "openai", "model": "m", "server": "h"}
    store.add_message("assistant", None, tool_calls=made, provider_fields=whose | fields)
    assert secret not in (tmp_path / "messages.jsonl").read_text() + (tmp_path / "current.jsonl").read_text()
    line = json.loads((tmp_path / "current.jsonl").read_text().splitlines()[-1])
    assert line["reasoning_content"] == "The key is ***."
    assert "blocks" not in line
    store.close()


IN_MESSAGE = dict.fromkeys(sorted(RECORDED), "theirs")
IN_CALL = dict.fromkeys(sorted(CALL - {"id", "type", "function"}), "theirs")
FUNCTION = {"name": "read_file", "arguments": {"path": "a.py"}}
TEXT = FUNCTION | {"arguments": '{"path": "a.py"}'}
USED = {"type": "tool_use", "id": "c", "name": "read_file", "input": {"path": "a.py"}}
WITH_OUR_NAMES = {
    "openai": {
        "choices": [
            {
                "message": IN_MESSAGE
                | {"role": "assistant", "content": None}
                | {"mine": 1, "tool_calls": [IN_CALL | {"index": 0, "id": "c", "mine": 1, "function": TEXT}]},
                "finish_reason": "tool_calls",
            }
        ]
    },
    "anthropic": {"type": "message", "content": [IN_CALL | USED | {"mine": 1}], "stop_reason": "tool_use"},
    "ollama": {
        "model": "m",
        "message": IN_MESSAGE
        | {"role": "assistant", "content": "", "mine": 1}
        | {"images": [], "tool_calls": [IN_CALL | {"index": 0, "mine": 1, "function": FUNCTION}]},
        "done": True,
        "done_reason": "stop",
    },
}


@pytest.mark.parametrize(("wire", "answer"), WITH_OUR_NAMES.items())
def test_fields_that_are_named_as_a_records_are_left_out_and_the_next_request_is_legal(tmp_path, wire, answer):
    with closing(Script(Reply(answer), says(wire, "Done."))) as server:
        client, store = client_for(wire, server.url, tmp_path, tools=[TOOL])
        begin(store)
        _, calls = client.get_response()
        store.add_message("tool", "x", tool_call_id=calls[0]["id"])
        View(store.current_path, store.plain).complete()
        assert client.get_response()[0] == "Done."
        record = next(one for one in store.records() if one["role"] == "assistant")
        assert list(record["provider_fields"]["calls"].values()) == [{"mine": 1}]
        assert record["provider_fields"]["message"] == ({} if wire == "anthropic" else {"mine": 1})
        client.close()
        store.close()


def test_a_record_that_has_such_fields_already_is_shown_without_them():
    fields = {
        "wire": "openai",
        "model": "m",
        "message": IN_MESSAGE | {"mine": 1},
        "calls": {"c": IN_CALL | {"mine": 1}},
    }
    made = {"id": "c", "type": "function", "function": TEXT}
    record = {"role": "assistant", "content": None, "tool_calls": [made], "provider_fields": fields}
    shown = {"role": "assistant", "content": None, "mine": 1, "tool_calls": [{"mine": 1} | made]}
    assert wire_form(record, Origin("openai", "m")) == shown


# --- Anthropic's wire ------------------------------------------------------------------------------------------

BLOCKS = [
    {"type": "thinking", "thinking": REASONING, "signature": "EqQBCg" * 12},
    {"type": "text", "text": "I look."},
    {"type": "redacted_thinking", "data": "EmwKAhgB" * 6},
    {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}},
    {"type": "text", "text": "And b."},
    {"type": "tool_use", "id": "toolu_2", "name": "read_file", "input": {"path": "b.py"}},
]


def anthropic_answer(blocks, *, streamed):
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": {"input_tokens": 9}}
    if not streamed:
        return Reply(start | {"content": blocks, "stop_reason": reason})
    pieces = [sse({"type": "message_start", "message": start | {"content": []}}, "message_start")]
    for index, block in enumerate(blocks):
        empty = {"thinking": "", "text": "", "signature": "", "input": {}}
        begun = {key: empty.get(key, value) for key, value in block.items()}
        pieces.append(sse({"type": "content_block_start", "index": index, "content_block": begun}))
        deltas = [{"type": "text_delta", "text": piece} for piece in cut(block.get("text", ""))]
        deltas += [{"type": "thinking_delta", "thinking": piece} for piece in cut(block.get("thinking", ""))]
        if "signature" in block:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        if "input" in block:
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in cut(json.dumps(block["input"]))]
        pieces += [sse({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
        pieces.append(sse({"type": "content_block_stop", "index": index}))
    pieces.append(sse({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}))
    return Reply([*pieces, sse({"type": "message_stop"})], headers={"Content-Type": "text/event-stream"})


@pytest.mark.parametrize("streamed", [True, False])
def test_thinking_blocks_come_back_unchanged_and_in_their_order(streamed, tmp_path):
    def server_says(request):
        said = [message["content"] for message in request.json["messages"] if message["role"] == "assistant"]
        bare = [[{k: v for k, v in block.items() if k != "cache_control"} for block in blocks] for blocks in said]
        if any(blocks != BLOCKS for blocks in bare):
            return refusal(
                "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot"
                " be modified. These blocks must remain as they were in the original response."
            )
        return anthropic_answer(BLOCKS if not bare else [{"type": "text", "text": "Done."}], streamed=streamed)

    with closing(Script(server_says)) as server:
        client, store = client_for("anthropic", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 1)
        client.close()
        store.close()
        client, store = client_for("anthropic", server.url, tmp_path, tools=[TOOL])
        assert turns(client, store, 1) == "Done."
        assert len(server.asked) == 2
        assert "I look.And b." in (tmp_path / "messages.jsonl").read_text()
        client.close()
        store.close()


def test_a_thinking_server_gets_a_block_for_calls_of_another_model_once_it_asks_for_it(tmp_path):
    """DeepSeek's and Kimi's /anthropic."""

    def server_says(request):
        for message in request.json["messages"]:
            kinds = [block["type"] for block in message["content"]]
            if message["role"] == "assistant" and "tool_use" in kinds and kinds[0] != "thinking":
                return refusal("The `content[].thinking` in the thinking mode must be passed back to the API.")
        return anthropic_answer([{"type": "text", "text": "Done."}], streamed=True)

    with closing(Script(server_says)) as server:
        client, store = client_for("anthropic", server.url, tmp_path, tools=[TOOL])
        begin(store)
        store.add_message("assistant", "Hm.", tool_calls=[call("read_file", {"path": "a.py"}, "call_old")])
        store.add_message("tool", "x", tool_call_id="call_old")
        assert turns(client, store, 1) == "Done."
        assert len(server.asked) == 2
        client.close()
        store.close()


def test_ollama_gets_its_thinking_back_in_the_running_loop(tmp_path):
    """Ollama's documentation of thinking with tools: the whole message goes back."""

    def server_says(request):
        messages = request.json["messages"]
        last = max(place for place, message in enumerate(messages) if message["role"] == "user")
        for place, message in enumerate(messages):
            if message.get("tool_calls") and message.get("thinking") != (REASONING if place > last else None):
                return Reply({"error": f"thinking of message {place}: {message.get('thinking')!r}"}, 400)
        function = {"name": "read_file", "arguments": {"path": "a.py"}}
        message = {"role": "assistant", "content": "", "thinking": REASONING, "tool_calls": [{"function": function}]}
        return Reply([json.dumps({"model": "m", "message": message, "done": True, "done_reason": "stop"}).encode()])

    with closing(Script(server_says)) as server:
        client, store = client_for("ollama", server.url, tmp_path, tools=[TOOL])
        begin(store)
        turns(client, store, 3)
        store.add_message("user", "And b.py too.", kind="comment")
        turns(client, store, 2)
        assert len(server.asked) == 5
        client.close()
        store.close()


def test_openai_events_without_fields_leave_no_trace(tmp_path):
    with closing(Script(Reply(openai_events("hello")))) as server:
        client, store = client_for("openai", server.url, tmp_path)
        begin(store)
        client.get_response()
        assert "provider_fields" not in (tmp_path / "messages.jsonl").read_text()
        client.close()
        store.close()
