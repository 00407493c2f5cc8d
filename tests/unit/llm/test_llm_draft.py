"""Fragments → answer: ids, names, arguments."""

import sys
from collections import Counter

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.llm.stream_accumulator import DEEPEST, StreamAccumulator, legal_name, read_arguments, usage_of_counts
from agent.values import Usage


def only(draft, taken=()):
    (call,) = draft.answer(taken).calls
    return call


def test_arguments_in_fragments_are_put_together():
    draft = StreamAccumulator()
    draft.add_call_part(0, "call_a", "read_file", '{"pa')
    draft.add_call_part(0, None, None, 'th": "a.py"}')
    assert only(draft) == {"id": "call_a", "name": "read_file", "arguments": {"path": "a.py"}}


def test_parallel_calls_that_are_all_numbered_0_stay_apart():
    draft = StreamAccumulator()
    draft.add_call_part(0, "a", "one", "{}")
    draft.add_call_part(0, "b", "two", "{}")
    assert [(call["id"], call["name"]) for call in draft.answer().calls] == [("a", "one"), ("b", "two")]


def test_fragments_without_an_index_go_to_the_last_call():
    draft = StreamAccumulator()
    draft.add_call_part(None, "a", "one", '{"x":')
    draft.add_call_part(None, None, None, "1}")
    draft.add_call_part(None, "b", "two", "{}")
    assert [call["arguments"] for call in draft.answer().calls] == [{"x": 1}, {}]


def test_a_name_repeated_in_every_fragment_is_taken_once():
    draft = StreamAccumulator()
    draft.add_call_part(0, "a", "one", '{"x":')
    draft.add_call_part(0, "a", "one", "1}")
    assert only(draft)["name"] == "one"


@pytest.mark.parametrize("given_id", ["", None, "has space", "\u0131d", "x" * 5000])
def test_a_missing_or_unfit_id_is_made(given_id):
    draft = StreamAccumulator()
    draft.add_call_part(0, given_id, "one", "{}")
    assert only(draft)["id"].startswith("call_")


def test_ids_are_unique_in_the_answer_and_in_the_conversation():
    draft = StreamAccumulator()
    draft.add_call_part(0, "call_1", "one", "{}")
    draft.add_call_part(1, "call_2", "two", "{}")
    draft.add_call_part(2, "call_2", "three", "{}")
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
    draft = StreamAccumulator()
    draft.add_call_part(0, "a", "one", raw)
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
    draft = StreamAccumulator()
    draft.add_content("a\ud83db\x00c")
    draft.add_call_part(0, "a", "one", '{"x": "\\ud83d"}')
    answer = draft.answer()
    answer.text.encode()
    assert "\x00" not in answer.text
    assert answer.calls[0]["arguments"]["x"] == "\ufffd"


def test_content_parts_and_thinking_are_told_apart():
    draft = StreamAccumulator()
    draft.add_content(
        [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}, {"type": "refusal", "refusal": "no"}]
    )
    assert (draft.answer().text, draft.answer().reasoning) == ("yesno", "hm")


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=5), max_size=4), st.lists(st.integers(1, 7), max_size=20))  # fmt: skip
def test_arguments_survive_any_cutting_into_fragments(arguments, cuts):
    import json

    from agent.store.storable_text import fit_json

    text, draft, start = json.dumps(arguments), StreamAccumulator(), 0
    for size in [*cuts, len(text)]:
        draft.add_call_part(0, "a" if start == 0 else None, "one" if start == 0 else None, text[start : start + size])
        start += size
    assert only(draft)["arguments"] == fit_json(arguments)


@pytest.mark.parametrize("kept", [True, False])
def test_arguments_nested_beyond_all_measure_are_not_run_and_can_be_recorded(kept):
    """orjson writes 254 levels; what it cannot write would end the task as a bug."""
    for depth in (DEEPEST + 1, 300, 900):
        text = '{"title": ' + "[" * depth + "]" * depth + "}"
        draft = StreamAccumulator()
        draft.add_call_part(0, "call_a", "finish", orjson.loads(text) if kept else text)
        call = only(draft)
        assert (call["arguments"], call["invalid"][:13]) == ({}, "more than 100")
    draft = StreamAccumulator()
    draft.add_call_part(0, "call_a", "finish", '{"title": ' + "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1) + "}")
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
    assert usage_of_counts(*said) == taken


# --- calls in odd pieces ---------------------------------------------------------------------------------------

PATH, OTHER = '{"path": "a.py"}', '{"path": "b.py"}'
ONE = [("read_file", {"path": "a.py"})]
TWO = [("read_file", {"path": "a.py"}), ("read_file", {"path": "b.py"})]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # poolsideai/pool#9: another id in each chunk of one call, with or without its name
        ([(0, "a", "read_file", ""), (0, "b", None, PATH[:5]), (0, "c", None, PATH[5:])], ONE),
        ([(0, "a", "read_file", ""), (0, "b", "read_file", PATH[:5]), (0, "c", "read_file", PATH[5:])], ONE),
        # vllm-project/vllm#51697: the whole arguments once more at the end
        ([(0, "a", "read_file", PATH[:5]), (0, None, None, PATH[5:]), (0, None, None, PATH)], ONE),
        ([(0, "a", "read_file", PATH[:5]), (0, None, None, PATH[5:]), (0, "b", "read_file", PATH)], ONE),
        ([(0, "a", "read_file", PATH[:5]), (0, None, None, PATH[5:]), (0, "a", "read_file", {"path": "a.py"})], ONE),
        ([(0, "a", "read_file", PATH[:9]), (0, None, None, PATH)], ONE),
        ([(0, "a", "read_file", "{}"), (0, None, None, PATH)], ONE),
        ([(0, "a", "read_file", PATH + "\n" + PATH)], ONE),
        # each chunk has all that came so far
        ([(0, "a", "read_file", PATH[:3]), (0, "a", "read_file", PATH[:9]), (0, "a", "read_file", PATH)], ONE),
        # parallel calls that are all numbered 0, whole or in pieces, with and without ids
        ([(0, "a", "read_file", PATH), (0, "b", "read_file", OTHER)], TWO),
        ([(0, "a", "read_file", ""), (0, "a", None, PATH), (0, "b", "read_file", ""), (0, "b", None, OTHER)], TWO),
        ([(0, "a", "read_file", ""), (0, None, None, PATH), (0, "b", "read_file", ""), (0, None, None, OTHER)], TWO),
        ([(0, None, "read_file", PATH), (0, None, "read_file", OTHER)], TWO),
        # the name in pieces
        ([(0, "a", "read", ""), (0, None, "_file", ""), (0, None, None, PATH)], ONE),
        # no index
        ([(None, "a", "read_file", PATH[:5]), (None, "a", "read_file", PATH[5:])], ONE),
        ([(None, None, "read_file", PATH[:5]), (None, None, "read_file", PATH[5:])], ONE),
        ([(None, None, "read_file", PATH), (None, None, "read_file", OTHER)], TWO),
        ([(None, "a", "read_file", ""), (None, "b", "read_file", ""), (None, "a", None, PATH)], ONE),
        ([(None, "a", "read_file", PATH[:5]), (None, "a", None, PATH[5:]), (None, "b", "read_file", OTHER)], TWO),
        # an index that counts chunks, one id for several calls, an id that comes last
        ([(0, "a", "read_file", PATH[:5]), (1, "a", None, PATH[5:])], ONE),
        ([(0, "a", "read_file", PATH), (1, "a", "read_file", OTHER)], TWO),
        ([(0, None, "read_file", PATH[:5]), (0, None, None, PATH[5:]), (0, "a", None, "")], ONE),
        # a name in each chunk, the last one empty; an object for a text; nulls
        ([(0, "a", "read_file", PATH), (0, None, "read_file", "")], ONE),
        ([(0, "a", "read_file", {"path": "a.py"})], ONE),
        ([(0, "a", "read_file", None), (0, None, None, None), (0, None, None, PATH)], ONE),
        ([(None, None, "get_time", ""), (None, None, "read_file", PATH)], [("get_time", {}), *ONE]),
        ([(0, "a", "get_time", ""), (0, "b", "read_file", PATH)], [("get_time", {}), *ONE]),
    ],
)
def test_a_call_starts_with_a_new_id_and_a_name(pieces, calls):
    draft = StreamAccumulator()
    for piece in pieces:
        draft.add_call_part(*piece)
    answer = draft.answer()
    assert [(one["name"], one["arguments"]) for one in answer.calls] == calls
    assert not any("invalid" in one for one in answer.calls)
    assert len({one["id"] for one in answer.calls}) == len(calls)


def test_a_long_id_is_kept_because_a_gateway_may_have_put_a_signature_there():
    """BerriAI/litellm puts Gemini's thought signature behind the id."""
    long = "call_1__thought__" + "QUJD" * 300
    draft = StreamAccumulator()
    draft.add_call_part(0, long, "read_file", PATH)
    assert only(draft)["id"] == long


@pytest.mark.parametrize(
    "name",
    [
        "edit_file<|channel|>commentary",  # vllm-project/vllm#32587
        "functions.edit_file",  # ollama/ollama#12132
        "<|start|>edit_file",
        "<|channel|>commentary to=functions.edit_file",
        "default_api:edit_file",
        "tools::edit_file",
        " edit_file\n",
        "edit_file<\uff5ctool\u2581sep\uff5c>",
        "`edit_file`",
        "functions.edit_file<|constrain|>json",
        "edit_file()",
    ],
)
def test_markers_of_chat_formats_are_taken_off_the_name_of_an_offered_tool(name):
    draft = StreamAccumulator()
    draft.add_call_part(0, "a", name, "{}")
    (made,) = draft.answer(offered={"edit_file", "read_file"}).calls
    assert made["name"] == "edit_file"


@pytest.mark.parametrize("name", ["edit_file.old", "edit_file read_file", "my_edit_file", "functions.write", "edit"])
def test_a_name_that_is_no_offered_tool_without_them_stays_what_it_is(name):
    draft = StreamAccumulator()
    draft.add_call_part(0, "a", name, "{}")
    (made,) = draft.answer(offered={"edit_file", "read_file"}).calls
    assert made["name"] == legal_name(name)


# --- reasoning in the text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("<think>\nhm\n</think>\n\nDone.", "Done.", "hm"),
        ("\n<thinking>hm</thinking>Done.", "Done.", "hm"),
        ("<seed:think>hm</seed:think>Done.", "Done.", "hm"),
        ("[THINK]hm[/THINK]Done.", "Done.", "hm"),
        ("\u25c1think\u25b7hm\u25c1/think\u25b7Done.", "Done.", "hm"),
        ("<think>a</think>\n<think>b</think>Done.", "Done.", "a\nb"),
        ("<think></think>Done.", "Done.", ""),
        ("<think>cut off", "", "cut off"),
        ("</think>\n\nDone.", "Done.", ""),
        ("hm, a.py\n</think>\n\nDone.", "Done.", "hm, a.py"),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Done.", "Done.", "hm"),
        ("<|channel|>analysis hm<|end|>Done.", "Done.", "hm"),
    ],
)
def test_reasoning_at_the_beginning_of_a_text_is_told_apart(text, answer, reasoning):
    for size in (1, 5, len(text)):
        draft = StreamAccumulator()
        for start in range(0, len(text), size):
            draft.add_content(text[start : start + size])
        made = draft.answer()
        assert (made.text, made.reasoning) == (answer, reasoning)


@pytest.mark.parametrize(
    "text",
    [
        "The reader takes `<think>` and `</think>` now.",
        "<config>\n<think>1</think>\n</config>",
        "I added this:\n```xml\n</think>\n```\nIt works.",
        "Done. The tag </think> was missing.",
        "<thinker>x</thinker>",
        "[THINKPAD] is a name",
        "a <|channel|>analysis b",
    ],
)
def test_a_text_about_such_tags_keeps_them(text):
    draft = StreamAccumulator()
    draft.add_content(text)
    assert (draft.answer().text, draft.answer().reasoning) == (text, "")


def test_a_fragment_with_an_id_goes_to_the_last_call_with_this_id():
    draft = StreamAccumulator()
    draft.add_call_part(0, None, "one", '{"x":')
    draft.add_call_part(1, "a", "two", '{"y":')
    draft.add_call_part(0, "a", None, "1}")
    draft.add_call_part(None, "a", None, "2}")
    assert [call["arguments"] for call in draft.answer().calls] == [{"x": 1}, {"y": 2}]


def work(calls, fragment):
    """Number of lines of Python that run while an answer with this many calls arrives."""
    draft, lines = StreamAccumulator(), Counter()

    def trace(frame, event, _argument):
        lines[event] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for number in range(calls):
            fragment(draft, number)
    finally:
        sys.settrace(before)
    assert len(draft.calls) == calls
    return lines.total()


@pytest.mark.parametrize(
    "fragment",
    [
        lambda draft, number: draft.add_call_part(number, f"id{number}", "one", "{}"),
        lambda draft, number: draft.add_call_part(None, f"id{number}", "one", f'{{"x":{number}}}'),
        lambda draft, number: draft.add_call_part(number, None, "one", "{}"),
        lambda draft, number: draft.add_call_part(None, None, "one", f'{{"x":{number}}}'),
    ],
    ids=["index and id", "id", "index", "neither"],
)
def test_the_work_for_a_fragment_does_not_grow_with_the_number_of_calls(fragment):
    assert work(400, fragment) < 4.4 * work(100, fragment)
