"""A trim shortens messages to a size that its line names: a pure function of the files, beaten by a later mask or
cut."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import settings_of
from agent.context import MessageStore, projection
from agent.context.index import Cut
from agent.context.shortened_message import LEAST, shorten

LLM = {"provider": "openai", "openai": {"model": "phi4", "api_key": "k", "context_length": 8192}}


@pytest.fixture
def store(tmp_path):
    made = MessageStore(tmp_path, settings_of({"llm": LLM, "context_storage": {"durability": "none"}}))
    made.add_message("system", "You work.")
    made.add_message("user", "Do it.")
    yield made
    made.close()


def ask(store, *texts, output=None):
    calls = [{"id": f"c{store.last_seq}_{n}", "name": "read_file", "arguments": {}} for n in range(len(texts))]
    store.add_message("assistant", None, tool_calls=calls)
    for call, text in zip(calls, texts, strict=True):
        store.add_message("tool", text, tool_call_id=call["id"], output=output)


def view(store):
    lines = [json.loads(line) for line in store.get_current_context_file().read_text().splitlines()]
    derived = b"".join(data for data, _ in projection.lines(store.context_dir))
    assert derived == store.get_current_context_file().read_bytes(), "the view is what the files say"
    return [line["content"] for line in lines if line["role"] != "assistant"][2:]


def lines(prefix, count):
    return "\n".join(f"{prefix} {n} 値段" for n in range(count))


def test_large_results_and_comments_are_shortened_and_small_ones_stay(store):
    ask(store, lines("row", 500), "small", lines("log", 500), output="outputs/0007.txt")
    store.add_message("user", lines("said", 400), kind="comment")
    before = store.get_current_token_count()
    store.trim(start_seq=4, end_seq=7, largest=900)
    shown = view(store)
    assert shown[1] == "small"
    for text, name in ((shown[0], "outputs/0007.txt"), (shown[3], "messages:7")):
        assert len(text.encode()) <= 900
        assert f'read_output("{name}") shows the whole' in text
        assert re.search(r"\[… [\d,]+ of [\d,]+ bytes left out", text)
    assert shown[0].startswith("row 0 値段\nrow 1 ")
    assert shown[0].endswith("\nrow 499 値段")
    assert store.get_current_token_count() < before / 2
    assert store.text_of(7) == lines("said", 400), "the fact stays whole"


def test_a_smaller_trim_wins_and_a_larger_one_changes_nothing(store):
    ask(store, lines("row", 500))
    sizes = []
    for largest in (2000, 600, 5000):
        store.trim(start_seq=4, end_seq=4, largest=largest)
        sizes.append(len(view(store)[0].encode()))
    assert 1800 < sizes[0] <= 2000
    assert sizes[1] == sizes[2] <= 600


def test_a_later_mask_wins_over_a_trim_of_results_and_leaves_a_trimmed_comment_short(store):
    ask(store, lines("row", 500), output="outputs/0001.txt")
    store.add_message("user", lines("said", 400), kind="comment")
    store.trim(start_seq=4, end_seq=5, largest=900)
    said = view(store)[1]
    ask(store, "new")
    store.compact(strategy="mask", end_seq=5)
    assert view(store) == ['[left out; read_output("outputs/0001.txt") shows it]', said, "new"]


def test_a_later_cut_forgets_a_trim(store):
    ask(store, lines("row", 500))
    store.trim(start_seq=4, end_seq=4, largest=900)
    assert store.index.cut.trims == ((4, 4, 900),)
    ask(store, "new")
    store.compact(strategy="window", end_seq=4)
    assert store.index.cut.trims == ()
    assert view(store)[-1] == "new"


def test_a_restart_derives_the_same_view(store, tmp_path):
    ask(store, lines("row", 500), lines("log", 90))
    store.trim(start_seq=4, end_seq=5, largest=700)
    before = store.get_current_context_file().read_bytes()
    again = MessageStore(tmp_path, settings_of({"llm": LLM, "context_storage": {"durability": "none"}}))
    assert again.repairs == []
    assert again.get_current_context_file().read_bytes() == before
    assert again.get_current_token_count() == store.get_current_token_count()
    again.close()


def test_the_task_is_never_shortened(store, tmp_path):
    record = {"seq": 2, "role": "user", "kind": "task", "content": "x" * 9000}
    assert shorten(record, 300) is None
    assert shorten({**record, "kind": "fix"}, 300) is not None
    assert shorten({"seq": 3, "role": "assistant", "content": "x" * 9000}, 300) is None


@given(
    st.text(st.characters(codec="utf-8"), max_size=3000),
    st.integers(0, 4000),
    st.sampled_from(["tool", "user"]),
)
def test_what_is_shown_is_never_larger_than_named_and_is_text(text, largest, role):
    record = {"seq": 12, "role": role, "content": text, "tool_seq": 3, "tool_call_id": "c"}
    shown = shorten(record, largest)
    room = max(largest, LEAST[role])
    if shown is None:
        assert len(text.encode()) <= room
    else:
        assert len(shown.encode()) <= room < len(text.encode())
        head, rest = shown.split("[… ", 1)
        tail = rest.split("whole …]", 1)[1]
        assert text.startswith(head.removesuffix("\n"))
        assert text.endswith(tail.removeprefix("\n"))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), max_size=8))
def test_the_smallest_trim_that_reaches_a_message_counts(trims):
    cut = Cut()
    for start, end, largest in trims:
        cut = cut.with_compaction(
            {"strategy": "trim", "start_seq": start, "end_seq": end, "largest": largest, "at_seq": 9}
        )
    assert (cut.end_seq, cut.mask_end, cut.count) == (0, 0, len(trims))
    for seq in range(1, 10):
        reach = [largest for start, end, largest in trims if start <= seq <= end]
        assert cut.largest_of(seq) == min(reach, default=None)
