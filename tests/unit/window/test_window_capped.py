"""A text within a number of tokens, for every sign that there is and for counters of any price."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from length import either

from agent.tokens import counter_for
from agent.window.head_tail import head_and_tail

LAST = 0x10FFFF
BLOCK = 0x100
SURROGATES = range(0xD800, 0xE000)
STEPS = 60


class Counting:
    """Counts how often it is asked."""

    def __init__(self, count):
        self.count, self.asked = count, 0

    def __call__(self, text):
        self.asked += 1
        return self.count(text)


@pytest.mark.parametrize("model", ["phi4", "gpt-4o"])
def test_every_block_of_unicode_is_cut_to_what_was_asked_in_few_steps(model):
    for start in range(0, LAST + 1, BLOCK):
        if start in SURROGATES:
            continue
        text = "".join(map(chr, range(start, start + BLOCK)))
        for most in (0, 7):
            count = Counting(counter_for(model).count)
            found = head_and_tail(text, most, count)
            assert counter_for(model).count(found) <= most, hex(start)
            assert count.asked < STEPS, hex(start)


@given(
    text=st.text(max_size=400).map(lambda part: part * 9),
    price=st.sampled_from([1, 4, 97, 10_000]),
    most=st.integers(0, 3000),
)
@settings(max_examples=either(50, 200), deadline=None)
def test_it_ends_whatever_a_sign_costs(text, price, most):
    count = Counting(lambda part: price * len(part))
    found = head_and_tail(text, most, count)
    assert price * len(found) <= most
    assert count.asked < STEPS
    if price * len(text) <= most:
        assert found == text


def test_beginning_and_end_stay_and_the_note_says_how_much_is_gone():
    text = "FIRST line\n" + "x = 1\n" * 2000 + "LAST line"
    found = head_and_tail(text, 60, counter_for("phi4").count)
    assert found.startswith("FIRST line")
    assert found.endswith("LAST line")
    [gone] = [int(word) for word in found.split("[… ")[1].split()[:1]]
    head, tail = found.split(f"\n[… {gone} characters left out …]\n")
    assert len(head) + gone + len(tail) == len(text)
