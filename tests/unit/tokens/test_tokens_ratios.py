"""What reports of usage teach about the estimate of a model."""

import random

import pytest

from agent.tokens import MemoryRatios


def told(ratios, pairs):
    for estimated, reported in pairs:
        ratios.learn("m", estimated, reported)
    return ratios.get("m")


@pytest.mark.parametrize("true", [0.14, 0.18, 0.3, 0.55, 0.58, 1.72, 2.9, 3.4, 5.0, 7.5])
def test_the_ratio_of_any_plausible_tokenizer_is_learnt_in_ten_calls(true):
    rng = random.Random(true)
    calls, size = [], 2000
    for _ in range(10):
        calls.append((size, round(size * true * rng.uniform(0.97, 1.03))))
        size += rng.choice((200, 500, 1500, 4000))
    assert told(MemoryRatios(), calls) == pytest.approx(true, rel=0.05)


def test_what_is_once_learnt_far_from_one_is_followed_at_once():
    ratios = MemoryRatios()
    assert told(ratios, [(1000, 300), (1200, 360), (1400, 420), (1600, 480)]) == pytest.approx(0.3)
    assert ratios.learn("m", 5000, 2000) == pytest.approx(0.35)


@pytest.mark.parametrize("seed", range(20))
def test_reports_of_what_was_not_cached_teach_nothing(seed):
    """An older Ollama: the first prompt whole, then only what came since the request before."""
    rng = random.Random(seed)
    ratios, size, pairs = MemoryRatios(), 4000, [(4000, 4000)]
    for _ in range(200):
        new = rng.choice((60, 300, 300, 900, 2500))
        size += new
        pairs.append((size, round(new * rng.uniform(0.9, 1.1))))
    assert told(ratios, pairs) == 1.0


def test_a_long_prompt_that_a_gateway_adds_is_no_ratio():
    assert told(MemoryRatios(), [(size, size + 12_000) for size in range(3000, 5900, 200)]) == 1.0


@pytest.mark.parametrize("reported", [0, 1, 12, 9_000_000])
def test_a_place_holder_or_a_count_of_something_else_teaches_nothing(reported):
    assert told(MemoryRatios(), [(1000 + 200 * turn, reported) for turn in range(20)]) == 1.0


def test_a_short_request_teaches_nothing():
    assert told(MemoryRatios(), [(199, 300)] * 10) == 1.0


def test_the_same_request_again_and_again_is_no_proof_of_a_ratio_far_from_one():
    assert told(MemoryRatios(), [(1000, 300)] * 10) == 1.0


def test_the_first_three_are_averaged_and_later_ones_weigh_three_tenths():
    ratios = MemoryRatios()
    assert told(ratios, [(1000, 1500), (1000, 1100), (1000, 1300)]) == pytest.approx(1.3)
    assert ratios.learn("m", 1000, 2300) == pytest.approx(1.6)


def test_models_are_apart():
    ratios = MemoryRatios()
    ratios.learn("a", 1000, 1500)
    assert ratios.get("b") == 1.0


def test_the_first_report_teaches_as_far_from_the_estimate_as_known_vocabularies_are():
    ratios = MemoryRatios()
    assert ratios.learn("m", 3000, 1230, (1300, 5200)) == pytest.approx(0.41)
    assert ratios.reports("m") == 1
    far = MemoryRatios()
    assert far.learn("m", 3000, 800, (1300, 5200)) == 1.0
    assert far.learn("m", 3000, 1230) == 1.0
    assert far.reports("m") == 0
