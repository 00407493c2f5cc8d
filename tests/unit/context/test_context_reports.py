"""What is in use: the prompt that a server has read, and what was stored of its answer."""

import pytest

from agent.context import MessageStore
from agent.context.usage_reports import MessageCost, stored
from agent.values import Usage

TASK = [("system", "You are careful."), ("user", "Fix the bug. " * 200)]


def answer(content="Read it.", usage=None, **more):
    return {"role": "assistant", "content": content, "tokens": 40, "usage": usage or {}, **more}


def usage(completion, thought=None):
    return Usage(1000, completion, 0, thought).to_dict()


@pytest.mark.parametrize(
    ("reported", "more", "tokens"),
    [
        (usage(2550, 2500), {}, 50),  # OpenAI: a part of the completion, and told apart
        (usage(50, 0), {}, 50),  # a model that does not think
        (usage(2550), {}, 0),  # Ollama: nobody says how much of it was thinking
        (usage(2550, 0), {"provider_fields": {"kept": {"reasoning": "Hm."}}}, 0),  # a gateway that fills in 0
        (usage(9050, 0), {}, 0),  # another, which hides the thoughts as well
        (usage(2500, 2500), {}, 0),  # all of it thinking, and yet there is text
        (usage(0), {}, 0),
    ],
)
def test_only_what_the_server_tells_apart_from_its_thinking_is_taken_for_the_text(reported, more, tokens):
    assert stored(answer(usage=reported, **more), MessageCost(44)) == tokens


def begun(folder, make_settings):
    store = MessageStore(folder, make_settings)
    for role, content in TASK:
        store.add_message(role, content)
    return store


SETTINGS = {"llm": {"provider": "ollama", "ollama": {"model": "phi4", "context_length": 32_768}}}
THOUGHT = {"wire": "ollama", "model": "phi4", "server": "x", "message": {"thinking": "I think about it. " * 500}}


def turns(store, prompts, *, fields=None, size=50):
    for number, prompt in enumerate(prompts):
        call = {"id": f"c{store.last_seq}", "name": "read_file", "arguments": {"path": f"f{number}.py"}}
        store.add_message("assistant", "Next.", tool_calls=[call], usage=Usage(prompt, 3000), provider_fields=fields)
        store.add_message("tool", "a line of text\n" * size, tool_call_id=call["id"])


def test_thinking_that_no_later_prompt_has_is_not_in_use(tmp_path):
    """Provider fields are sent back, and two prompts tell whether the server counts them."""
    store = begun(tmp_path, SETTINGS)
    turns(store, [1000], fields=THOUGHT)
    unknown = store.tokens_in_use()
    fields = store.index.reports.since.fields
    assert fields > 1500
    assert unknown == 1000 + store.index.reports.since.tokens, "they are sent: until a report says otherwise they count"
    grown = store.index.reports.added.text
    turns(store, [1000 + grown], fields=THOUGHT)
    assert store.index.reports.skips_fields
    assert store.tokens_in_use() == 1000 + grown + store.index.reports.since.text
    again = MessageStore(tmp_path, SETTINGS)
    assert again.tokens_in_use() == store.tokens_in_use(), "all of it is in the files"
    assert again.index.reports == store.index.reports


def test_thinking_that_the_server_reads_again_is_in_use(tmp_path):
    store = begun(tmp_path, SETTINGS)
    turns(store, [1000], fields=THOUGHT)
    turns(store, [1000 + store.index.reports.added.tokens], fields=THOUGHT)
    assert not store.index.reports.skips_fields
    assert store.index.reports.since.fields > 1500
    assert store.tokens_in_use() == store.index.reported + store.index.reports.since.tokens


def test_a_prompt_that_does_not_grow_is_of_a_server_that_tells_only_what_it_had_not_cached(tmp_path):
    store = begun(tmp_path, SETTINGS)
    turns(store, [1000, 1250])
    assert not store.index.reports.is_partial
    turns(store, [260])
    assert store.index.reports.is_partial
    assert MessageStore(tmp_path, SETTINGS).index.reports.is_partial


def test_what_a_compaction_left_whole_is_the_difference_of_two_prompts(tmp_path):
    """Without the thinking, which was written between them and is in neither."""
    store = begun(tmp_path, SETTINGS)
    turns(store, [1000, 1220, 1440])
    store.compact(strategy="mask", end_seq=4)
    reports = store.index.reports
    assert (reports.read, reports.kept) == (0, 220)
    assert MessageStore(tmp_path, SETTINGS).index.reports == reports
