"""A text is counted once, however often it is asked for, as long as it is among the newest."""

import pytest

from agent.tokens import counter_for
from agent.tokens.memo import KEPT, Memo


class Asked:
    """A count that remembers what it was asked."""

    def __init__(self):
        self.texts = []

    def __call__(self, text):
        self.texts.append(text)
        return len(text)


def test_a_text_is_counted_once():
    asked = Asked()
    memo = Memo(asked)
    assert [memo(text) for text in ("ab", "", "abc", "a\ud800", "ab", "", "a\ud800")] == [2, 0, 3, 2, 2, 0, 2]
    assert asked.texts == ["ab", "", "abc", "a\ud800"]


def test_the_newest_are_kept_and_no_more_than_twice_as_many():
    asked = Asked()
    memo = Memo(asked)
    for number in range(10 * KEPT):
        memo(f"text {number}")
    del asked.texts[:]
    for number in range(10 * KEPT - 1, 0, -1):
        memo(f"text {number}")
    again = 10 * KEPT - 1 - len(asked.texts)
    assert KEPT <= again <= 2 * KEPT
    assert asked.texts[0] == f"text {10 * KEPT - 1 - again}"


def test_what_is_in_use_stays_however_many_others_come():
    asked = Asked()
    memo = Memo(asked)
    for number in range(10 * KEPT):
        memo("the system prompt")
        memo(f"text {number}")
    assert asked.texts.count("the system prompt") == 1


@pytest.mark.parametrize("model", ["phi4", "llama3", "gpt-4o"])
def test_two_counters_of_a_vocabulary_share_what_was_counted(model, monkeypatch):
    first, second = counter_for(model), counter_for(model)
    text = f"Is this text counted again for {model}? " * 40
    known = first.count(text)
    monkeypatch.setattr("agent.tokens.byteclass.total", None)
    monkeypatch.setattr("agent.tokens.vocabulary.slices", None)
    assert second.count(text) == known
    with pytest.raises(TypeError):
        second.count(text + ".")
