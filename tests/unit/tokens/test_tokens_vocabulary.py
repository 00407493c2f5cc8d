"""tiktoken without a network, and input that is meant to break it."""

import threading
from pathlib import Path

import pytest
import tiktoken_ext.openai_public as published
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import HostError
from agent.tokens import counter_for, preload
from agent.tokens import openai as openai_tokens
from agent.tokens.vocabulary import LONG_RUN, SLICE, slices

newest = counter_for("gpt-4o")


def test_known_texts_have_known_counts():
    assert newest.count("hello world") == 2
    assert newest.count("こんにちは") == 1
    assert counter_for("gpt-4").count("こんにちは") == 1
    assert counter_for("gpt-4").count("日本語の文章") == 6
    assert newest.count("") == 0


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_pattern_and_hash_are_the_ones_that_tiktoken_publishes(name):
    constants = str(published.ENCODING_CONSTRUCTORS[name].__code__.co_consts)
    assert openai_tokens.SHA256[name] in constants
    for alternative in openai_tokens.PATTERNS[name].split("|"):
        assert alternative in Path(published.__file__).read_text()


def test_the_hashes_are_those_of_the_public_facts():
    assert openai_tokens.SHA256["cl100k_base"].startswith("223921b7")
    assert openai_tokens.SHA256["cl100k_base"].endswith("b2a7")
    assert openai_tokens.SHA256["o200k_base"].startswith("446a9538")
    assert len(openai_tokens.vocabulary_file("cl100k_base")) == 1_681_126


def test_a_vocabulary_with_another_hash_is_refused(monkeypatch):
    monkeypatch.setitem(openai_tokens.SHA256, "cl100k_base", "0" * 64)
    with pytest.raises(HostError, match=r"cl100k_base.*expected 0000"):
        openai_tokens.vocabulary_file("cl100k_base")


def test_case_33_text_that_spells_a_special_token_is_text():
    assert newest.count("<|endoftext|>") > 1
    assert counter_for("gpt-4").count("a <|endofprompt|> b") > 3


def test_case_46_lone_surrogates_are_counted():
    assert newest.count("a\ud800b") == newest.count("a�b")


def test_nul_is_counted():
    assert newest.count("\0") == 1


def test_case_31_long_runs_of_one_character_are_linear():
    assert 10_000 < newest.count("a" * 100_000) < 20_000
    assert newest.count("-" * 100_000) > 100


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_a_million_blanks_do_not_reach_the_regex_engine(blank):
    assert newest.count("x" + blank * 1_000_800 + "y") == pytest.approx(1_000_800 / 60, rel=0.01)


def test_runs_just_below_the_mark_are_read_in_linear_time():
    text = ("x" + " " * (LONG_RUN - 1)) * 20
    assert newest.count(text) > 1000


@given(st.text(st.sampled_from("ab \n"), max_size=60), st.integers(1, 5000), st.sampled_from([" ", "\n", "z"]))
def test_slices_are_the_text_and_none_is_too_long(text, times, blank):
    whole = (text * times)[: 3 * SLICE] + blank * (times * 30)
    pieces = list(slices(whole))
    assert "".join(pieces) == whole
    assert all(len(piece) <= SLICE for piece in pieces)


def test_a_slice_ends_behind_a_newline_so_that_counts_add_up():
    text = "def f(a, b):\n    return a + b\n" * 8000
    assert newest.count(text) == 8000 * newest.count("def f(a, b):\n    return a + b\n")


def test_the_vocabulary_is_read_once_also_by_many_threads():
    openai_tokens.O200k("gpt-4o").load()
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(counter_for("gpt-5").count("hello"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 8


def test_preload_gives_the_counter_and_needs_no_network():
    assert preload("gpt-4o").exact
    assert preload("some-model").count("hello") >= 1
