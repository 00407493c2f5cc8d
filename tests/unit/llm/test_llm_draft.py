"""Fragments → answer: ids, names, arguments."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.llm.draft import DEEPEST, Draft, counted, legal_name, read_arguments
from agent.values import Usage


def only(draft, taken=()):
    (call,) = draft.answer(taken).calls
    return call


def test_arguments_in_fragments_are_put_together():
    draft = Draft()
    draft.fragment(0, "call_a", "read_file", '{"pa')
    draft.fragment(0, None, None, 'th": "a.py"}')
    assert only(draft) == {"id": "call_a", "name": "read_file", "arguments": {"path": "a.py"}}


def test_parallel_calls_that_are_all_numbered_0_stay_apart():
    draft = Draft()
    draft.fragment(0, "a", "one", "{}")
    draft.fragment(0, "b", "two", "{}")
    assert [(call["id"], call["name"]) for call in draft.answer().calls] == [("a", "one"), ("b", "two")]


def test_fragments_without_an_index_go_to_the_last_call():
    draft = Draft()
    draft.fragment(None, "a", "one", '{"x":')
    draft.fragment(None, None, None, "1}")
    draft.fragment(None, "b", "two", "{}")
    assert [call["arguments"] for call in draft.answer().calls] == [{"x": 1}, {}]


def test_a_name_repeated_in_every_fragment_is_taken_once():
    draft = Draft()
    draft.fragment(0, "a", "one", '{"x":')
    draft.fragment(0, "a", "one", "1}")
    assert only(draft)["name"] == "one"


@pytest.mark.parametrize("given_id", ["", None, "has space", "x" * 65])
def test_a_missing_or_unfit_id_is_made(given_id):
    draft = Draft()
    draft.fragment(0, given_id, "one", "{}")
    assert only(draft)["id"].startswith("call_")


def test_ids_are_unique_in_the_answer_and_in_the_conversation():
    draft = Draft()
    draft.fragment(0, "call_1", "one", "{}")
    draft.fragment(1, "call_2", "two", "{}")
    draft.fragment(2, "call_2", "three", "{}")
    ids = [call["id"] for call in draft.answer(taken={"call_1"}).calls]
    assert len(set(ids)) == 3
    assert "call_1" not in ids
    assert ids[1] == "call_2"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("", {}),
        ("   ", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"text": "two\nlines\tand a tab"}', {"text": "two\nlines\tand a tab"}),
    ],
)
def test_lossless_repairs_are_made(raw, value):
    assert read_arguments(raw) == value


@pytest.mark.parametrize(
    "raw", ['{"path": "a.p', "[1]", "7", '{"a": NaN}', "{'a': 1}", '{"a":1}{"b":2}', "[" * 100_000]
)
def test_what_would_be_a_guess_is_kept_as_invalid(raw):
    draft = Draft()
    draft.fragment(0, "a", "one", raw)
    call = only(draft)
    assert call["arguments"] == {}
    assert call["invalid"] == raw[:2000]


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("read_file", "read_file"),
        (" functions.read file ", "functions_read_file"),
        ("", "unnamed"),
        ("x" * 99, "x" * 64),
    ],
)
def test_names_are_what_every_wire_takes_back(name, legal):
    assert legal_name(name) == legal


def test_lone_surrogates_and_nul_never_reach_the_store():
    draft = Draft()
    draft.say("a\ud83db\x00c")
    draft.fragment(0, "a", "one", '{"x": "\\ud83d"}')
    answer = draft.answer()
    answer.text.encode()
    assert "\x00" not in answer.text
    assert answer.calls[0]["arguments"]["x"] == "\ufffd"


def test_content_parts_and_thinking_are_told_apart():
    draft = Draft()
    draft.say(
        [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}, {"type": "refusal", "refusal": "no"}]
    )
    assert (draft.answer().text, draft.answer().reasoning) == ("yesno", "hm")


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=5), max_size=4), st.lists(st.integers(1, 7), max_size=20))  # fmt: skip
def test_arguments_survive_any_cutting_into_fragments(arguments, cuts):
    import json

    from agent.store.text import fit_json

    text, draft, start = json.dumps(arguments), Draft(), 0
    for size in [*cuts, len(text)]:
        draft.fragment(0, "a" if start == 0 else None, "one" if start == 0 else None, text[start : start + size])
        start += size
    assert only(draft)["arguments"] == fit_json(arguments)


@pytest.mark.parametrize("kept", [True, False])
def test_arguments_nested_beyond_all_measure_are_not_run_and_can_be_recorded(kept):
    """orjson writes 254 levels; what it cannot write would end the task as a bug."""
    for depth in (DEEPEST + 1, 300, 900):
        text = '{"title": ' + "[" * depth + "]" * depth + "}"
        draft = Draft()
        draft.fragment(0, "call_a", "finish", orjson.loads(text) if kept else text)
        call = only(draft)
        assert (call["arguments"], call["invalid"][:13]) == ({}, "more than 100")
    draft = Draft()
    draft.fragment(0, "call_a", "finish", '{"title": ' + "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1) + "}")
    assert "invalid" not in only(draft)


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ((100, 20, 10), Usage(100, 20, 10)),
        ((10**30, 10**30, 0), None),
        ((100, 10**30, -1), Usage(100, 0, 0)),
        ((-5, -5, 0), None),
        (("many", 2, 0), None),
        ((None, 2, 0), None),
        ((5, None, 900), Usage(5, 0, 5)),
    ],
)
def test_counts_that_can_be_none_are_not_taken(said, taken):
    assert counted(*said) == taken
