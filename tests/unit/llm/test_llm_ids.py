"""Ids of tool calls, and a user's message behind a result, as servers want them.

Sources: anomalyco/opencode#1680, jundot/omlx#1995, vllm-project/vllm#18412 (ids), aaif-goose/goose#5998,
zed-industries/zed#37021 (order), api.openai.com's own words for an id that is too long.
"""

import re
import subprocess
import sys
from itertools import pairwise

import pytest
from llm_servers import TOOL, Reply, call, conversations, says

from agent.errors import ModelError
from agent.llm.call_ids import ANTHROPIC, SHORT, form_of, translate_id

LONG = "call_1__thought__" + "QUJD" * 300


@pytest.fixture
def talk(tmp_path):
    with conversations(tmp_path, ("system", "You help."), ("user", "Go.")) as start:
        yield start


def history(store, *ids):
    """Two groups, a comment behind the first."""
    for number, call_id in enumerate(ids):
        store.add_message("assistant", None, tool_calls=[call("read_file", {"path": f"{number}.py"}, call_id)])
        store.add_message("tool", f"content {number}", tool_call_id=call_id)
        if number == 0:
            store.add_message("user", "And the other.", kind="comment")


def refuses(form, words, status=400):
    """A server that takes ids of this form only, and gives such."""

    def server_says(request):
        messages = request.json["messages"]
        made = [one["id"] for message in messages for one in message.get("tool_calls") or ()]
        answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert made == answered
        assert len(set(made)) == len(made)
        for one in made:
            if not re.fullmatch(form, one):
                error = {"object": "error", "message": words.format(one), "type": "invalid_request_error"}
                return Reply({"error": error}, status)
        return says("openai", "Done.")

    return server_says


@pytest.mark.parametrize(
    ("form", "words", "status"),
    [
        (SHORT, "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9.", 400),
        (SHORT, "Function call id was {} but must be a-z, A-Z, 0-9, with a length of 9.", 422),
        (SHORT, "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9.", 500),
        (
            r".{1,40}",
            (
                "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got"
                " a string with length 1217 instead."
            ),
            400,
        ),
        (r"[a-zA-Z0-9_-]+", "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", 400),
        (r"[A-Za-z0-9]{9}", "invalid tool_call_id: {}", 400),
    ],
)
def test_ids_that_a_server_refuses_are_translated_from_then_on(form, words, status, talk):
    client, store, server = talk("openai", refuses(form, words, status), tools=[TOOL])
    history(store, "functions.read_file:0", "call_0123456789abcdef01234567", LONG, "aB3dE6gH9")
    assert client.get_response()[0] == "Done."
    assert len(server.asked) == 2
    store.add_message("user", "More.")
    assert client.get_response()[0] == "Done."
    assert len(server.asked) == 3
    assert b"aB3dE6gH9" in server.asked[-1].body  # what fits stays
    assert '"tool_call_id":"functions.read_file:0"' in store.current_path.read_text()


def test_the_dialect_knows_the_form_and_every_process_translates_alike(talk):
    client, store, server = talk("openai", refuses(SHORT, "no"), tools=[TOOL], dialect="mistral")
    history(store, "call_0123456789abcdef01234567", LONG)
    client.get_response()
    assert len(server.asked) == 1
    code = f"from agent.llm.call_ids import SHORT, translate_id; print(translate_id({LONG!r}, SHORT))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == translate_id(LONG, SHORT)
    assert translate_id(LONG, SHORT) != translate_id(LONG + "x", SHORT)
    assert translate_id("a.b", ANTHROPIC) != translate_id("a_b", ANTHROPIC) == "a_b"


@pytest.mark.parametrize(
    "words",
    [
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "Invalid parameter: Duplicate value for 'tool_call_id' of 'call_1'",
        "This model's maximum context length is 10 tokens",
        "invalid api key",
    ],
)
def test_other_refusals_are_not_about_the_form_of_an_id(words):
    assert form_of(words) == ""


def test_a_form_that_a_server_never_takes_ends_in_its_refusal(talk):
    client, store, server = talk("openai", Reply({"error": {"message": "invalid tool_call_id: x"}}, 400), tools=[TOOL])
    history(store, "call_0123456789abcdef01234567")
    store.add_message("user", "More.")
    with pytest.raises(ModelError, match="tool_call_id"):
        client.get_response()
    assert len(server.asked) == 2


@pytest.mark.parametrize("dialect", ["mistral", None])
@pytest.mark.parametrize("status", [400, 422])
def test_a_word_between_a_result_and_a_comment_by_the_dialect_or_once_the_server_asks_for_it(dialect, status, talk):
    def server_says(request):
        roles = [message["role"] for message in request.json["messages"]]
        if ("tool", "user") in pairwise(roles):
            words = "Unexpected role 'user' after role 'tool'"
            error = {"object": "error", "message": words, "type": "invalid_request_message_order", "code": "3230"}
            return Reply(error, status)
        return says("openai", "Done.")

    more = {"dialect": dialect} if dialect else {}
    client, store, server = talk("openai", server_says, tools=[TOOL], **more)
    history(store, "aB3dE6gH9")
    assert client.get_response()[0] == "Done."
    assert len(server.asked) == (1 if dialect else 2)
    assert [message["role"] for message in server.asked[-1].json["messages"]][-3:] == ["tool", "assistant", "user"]
