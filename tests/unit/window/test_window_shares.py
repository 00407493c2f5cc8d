"""The division of the window: budgets for sums, on any window."""

import pytest

from agent.window.budgets import LEAST, Shares
from agent.window.limits import WindowLimits

CARRIED = ("comments", "state", "failures", "notes", "files", "summary")


def limits(window):
    return WindowLimits.from_window([("w", window)])


@pytest.mark.parametrize("window", [4_096, 6_144, 8_192, 16_384, 32_768, 131_072, 1_000_000])
def test_all_that_is_carried_leaves_a_fifth_of_the_way_to_the_mark_for_the_newest_messages(window):
    head = min(2_000, window // 2)
    shares = Shares.for_window(limits(window), head)
    carried = sum(getattr(shares, name) for name in CARRIED)
    assert carried <= 0.82 * (limits(window).compress_at - head) + len(CARRIED) * LEAST * (window < 8_000)


def test_comments_are_an_eighth_of_the_window_and_at_most_20_000_tokens():
    assert Shares.for_window(limits(131_072), 4_000).comments == 131_072 // 8
    assert Shares.for_window(limits(1_000_000), 4_000).comments == 20_000


def test_a_larger_window_never_gives_a_smaller_budget():
    before = Shares.for_window(limits(2_048), 1_000)
    for window in range(3_072, 300_000, 1_024):
        now = Shares.for_window(limits(window), 1_000)
        for name in Shares.__slots__:
            assert getattr(now, name) >= getattr(before, name), (name, window)
        before = now


def test_nothing_is_divided_below_what_can_be_read():
    shares = Shares.for_window(limits(2_048), 10_000)
    assert min(getattr(shares, name) for name in Shares.__slots__) >= LEAST
