"""Every tokenizer keeps the contract of agent/tokens/base.py."""

import pytest

from agent.tokens.base import FAMILIES, TOKENIZERS

TEXTS = (
    "",
    "hello world",
    "日本語の文章です。",
    "a\ud800b",
    "\0",
    "<|endoftext|><|im_start|>",
    "<s>[INST]",
    "<｜end▁of▁sentence｜>",
    "👩‍👩‍👧‍👦 é é",
    "x" * 30_000,
    " " * 12_000,
    "\t" * 150_000 + "end",
)


@pytest.fixture(params=[family for family in FAMILIES if family.tokenizer], ids=lambda family: family.name)
def tokenizer(request):
    kind = TOKENIZERS.load(request.param.name)
    if not kind.available():
        pytest.skip("its package is not installed")
    return kind(request.param.name)


def test_any_text_is_counted(tokenizer):
    counts = [tokenizer.count(text) for text in TEXTS]
    assert counts[0] == 0
    assert all(isinstance(count, int) and count > 0 for count in counts[1:])


def test_text_that_spells_a_special_token_costs_more_than_one(tokenizer):
    assert tokenizer.count("<|endoftext|>") > 1


def test_counts_of_pieces_cut_at_newlines_add_up(tokenizer):
    line = "def add(left, right):\n    return left + right\n"
    assert abs(tokenizer.count(line * 4000) - 4000 * tokenizer.count(line)) <= 4000


def test_it_has_a_name_says_that_it_is_exact_and_loads_twice(tokenizer):
    assert tokenizer.name
    assert tokenizer.exact is True
    tokenizer.load()
    tokenizer.load()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_has_an_estimate_for_when_its_tokenizer_is_not_there(family):
    counter = family.estimate()
    assert counter.exact is False
    assert [counter.count(text) > 0 for text in TEXTS] == [False] + [True] * (len(TEXTS) - 1)
