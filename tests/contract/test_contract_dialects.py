"""A whole conversation with a strict server of every dialect: calls, results, words of a person in between, too long.

The servers refuse what the real ones refuse, by rules that know nothing of the program's own table.
"""

import pytest
from dialect_rules import RULES
from dialect_server import KEY, THOUGHT, DialectServer, Say
from llm_servers import TOOL, client_for

from agent.errors import ContextOverflow

TOLD = set(RULES) - {"groq"}  # those whose words for "too long" have the window in them

TURNS = (
    Say("I look.", (("read_file", {"path": "a.py"}),)),
    Say("", (("read_file", {"path": "b.py"}), ("read_file", {"path": "c.py"}))),
    Say("It is fixed."),
    Say("", (("read_file", {"path": "d.py"}),)),
    Say("Now it is."),
)


def play(_messages, number):
    return TURNS[(number - 1) % len(TURNS)]


@pytest.fixture(params=RULES)
def name(request):
    return request.param


@pytest.fixture
def server(name):
    with DialectServer(name, play) as made:
        yield made


def connect(name, server, folder, **more):
    rules = RULES[name]
    key = {"api_key": KEY} if rules.key else {}
    return client_for(rules.provider, server.url, folder, tools=[TOOL], dialect=name, **key, **more)


def answered(client, store):
    """One turn: ask, and answer each call."""
    text, calls = client.get_response()
    for call in calls:
        store.add_message("tool", f"content of {call['arguments']['path']}", tool_call_id=call["id"])
    return text, [call["arguments"] for call in calls]


def test_a_whole_conversation_is_taken_by_each_kind_of_server(name, server, tmp_path):
    client, store = connect(name, server, tmp_path)
    assert client.check().ok
    client.send_system_prompt("You are careful.")
    client.send_user_message("Fix the bug in a.py")
    assert answered(client, store) == ("I look.", [{"path": "a.py"}])
    assert answered(client, store) == ("", [{"path": "b.py"}, {"path": "c.py"}])
    client.send_user_message("A comment while the tools were at work.")
    assert answered(client, store) == ("It is fixed.", [])
    client.send_user_message("Is it? Call finish when it is.")
    assert answered(client, store) == ("", [{"path": "d.py"}])
    assert answered(client, store) == ("Now it is.", [])
    if name != "litellm":  # it was told not to ask for it
        assert client.last.usage is not None
        thought = THOUGHT if server.thinks else 0
        assert client.last.usage.reasoning == (thought if RULES[name].thought else None)
    assert len(server.taken) == len(TURNS)
    assert len(server.refused) == len(set(server.refused)) <= 2, "each thing is learnt once"

    before = len(server.refused)
    client.send_user_message("All of it again: " + "word " * 4 * server.window)
    with pytest.raises(ContextOverflow) as long:
        client.get_response()
    assert long.value.limit == (server.window if name in TOLD else None)
    assert len(server.refused) == before + 1
    client.close()
    store.close()


def test_the_prompt_cache_of_a_server_is_told_which_conversation_it_is_and_of_no_other_server(name, server, tmp_path):
    """The key is the same in each request of a conversation and in every process; requests outside it have none."""
    folder = tmp_path / "11111111-2222-4333-8444-555555555555"
    folder.mkdir()
    client, store = connect(name, server, folder)
    client.send_system_prompt("You are careful.")
    client.send_user_message("Fix the bug in a.py")
    answered(client, store)
    client.ask_aside([{"role": "user", "content": "Sum it up."}], purpose="vote")
    client.close()
    store.close()
    client, store = connect(name, server, folder)
    answered(client, store)
    client.close()
    store.close()
    assert not any("prompt_cache_key" in words for _, words in server.refused)
    first, aside, second = [body.get("prompt_cache_key") for body in server.taken]
    assert aside is None
    assert first == second
    assert (first is not None) == (name in ("openai", "mistral"))
    assert first in (None, f"makimono-{folder.name}")


@pytest.mark.parametrize(("model", "is_marked"), [("anthropic/claude-sonnet-5", True), ("openai/gpt-5.2", False)])
def test_a_gateway_to_claude_gets_the_mark_that_its_cache_needs(model, is_marked, tmp_path):
    with DialectServer("openrouter", play) as server:
        client, store = connect("openrouter", server, tmp_path, model=model)
        client.send_user_message("Fix the bug in a.py")
        answered(client, store)
        client.ask_aside([{"role": "user", "content": "Sum it up."}], purpose="vote")
        client.close()
        store.close()
    conversation, aside = server.taken
    assert conversation.get("cache_control") == ({"type": "ephemeral"} if is_marked else None)
    assert "cache_control" not in aside


def test_a_key_of_the_cache_that_is_refused_is_left_out_from_then_on(tmp_path):
    """A deployment behind OpenAI's address form that does not know the parameter."""
    with DialectServer("azure", play) as server:
        client, store = client_for(
            "openai", server.url, tmp_path, tools=[TOOL], dialect="openai", api_key=KEY, api_key_header="api-key"
        )
        client.send_user_message("Fix the bug in a.py")
        answered(client, store)
        answered(client, store)
        client.close()
        store.close()
    assert len(server.refused) == 1
    assert len(server.taken) == 2
