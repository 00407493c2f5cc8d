"""A briefing that is written again for a smaller window takes the old one's place at once; folders before stay."""

import json

import pytest

from agent.config import settings_of
from agent.context import MessageStore, projection

LLM = {"provider": "openai", "openai": {"model": "phi4", "api_key": "k", "context_length": 8192}}
SETTINGS = settings_of({"llm": LLM, "context_storage": {"durability": "none"}})


@pytest.fixture
def store(tmp_path):
    made = MessageStore(tmp_path, SETTINGS)
    made.add_message("system", "You work.")
    made.add_message("user", "Do it. " + "rule " * 500)
    yield made
    made.close()


def view(store):
    current = store.get_current_context_file().read_bytes()
    assert b"".join(data for data, _ in projection.lines(store.context_dir)) == current
    return [(line["role"], line["content"]) for line in map(json.loads, current.splitlines())]


def test_it_takes_the_place_of_the_old_one_before_and_after_a_conversation(store, tmp_path):
    before = store.get_current_token_count()
    assert store.brief_again("Do it.") == 1
    assert view(store) == [("system", "You work."), ("user", "Do it.")]
    assert store.get_current_token_count() < before / 10
    assert store.briefing()["content"] == "Do it."
    store.add_message("assistant", "Well?")
    store.add_message("user", "Yes.", kind="comment")
    store.brief_again("Do it now.")
    assert [text for _, text in view(store)] == ["You work.", "Do it now.", "Well?", "Yes."]
    again = MessageStore(tmp_path, SETTINGS)
    assert again.repairs == []
    assert view(again) == view(store)
    again.close()


def test_it_leaves_cuts_summaries_and_masks_as_they_are(store):
    for number in range(3):
        store.add_message("assistant", f"step {number}")
        store.add_message("user", f"go on {number}", kind="nudge")
    store.compact(strategy="summary", end_seq=5, summary="Read all of it.", carried={"plan": "next"})
    before = view(store)
    store.brief_again("Do it.")
    assert view(store) == [before[0], ("user", "Do it."), *before[2:]]
    assert store.index.cut.summary_id == 1
    assert (store.index.cut.strategy, store.index.cut.end_seq) == ("summary", 5)


def test_pictures_stay_as_long_as_they_were_shown(tmp_path):
    picture = {"file": "images/1.png", "media_type": "image/png", "width": 4, "height": 3, "tokens": 85}
    store = MessageStore(tmp_path, SETTINGS)
    store.add_message("system", "You work.")
    store.add_message("user", "Do it.", images=[picture])
    store.brief_again("Do it now.")
    assert store.briefing()["images"] == [picture]
    store.add_message("assistant", "step")
    store.add_message("user", "go on", kind="nudge")
    store.compact(strategy="window", end_seq=store.last_seq - 1)
    store.brief_again("Do it then.")
    assert "images" not in store.briefing()
    store.close()


def test_a_briefing_that_no_line_names_waits_as_it_did(store):
    """What a process leaves that is killed between the two writes, and what older folders have."""
    store.add_message("user", "Another.", kind="task")
    assert view(store)[1][1].startswith("Do it. rule")
    store.add_message("assistant", "step")
    store.add_message("user", "go on", kind="nudge")
    store.compact(strategy="window", end_seq=store.last_seq - 1)
    assert view(store)[1] == ("user", "Another.")
