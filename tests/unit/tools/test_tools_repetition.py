"""The guard against circles."""

import pytest

from agent.tools import Repetition
from agent.values import ToolResult


def see(guard, *steps):
    return [guard.check([{"name": name, "arguments": {"x": name}}], [ToolResult(result)]) for name, result in steps]


def test_the_same_call_with_the_same_result_gets_one_nudge_then_the_end():
    assert see(Repetition(), *[("a", "1")] * 4) == [None, None, "nudge", "stop"]


def test_a_nudge_that_helps_is_the_end_of_it():
    assert see(Repetition(), *[("a", "1")] * 3, ("b", "2"), ("c", "3")) == [None, None, "nudge", None, None]


def test_the_same_circle_again_later_ends_it():
    steps = [*[("a", "1")] * 3, ("b", "2"), *[("a", "1")] * 3]
    assert see(Repetition(), *steps)[-1] == "stop"


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
def test_calls_in_turn_are_caught_when_one_comes_the_third_time(names):
    steps = [(name, "same") for name in names * 3][: 2 * len(names) + 2]
    assert see(Repetition(), *steps) == [None] * 2 * len(names) + ["nudge", "stop"]


def test_polling_with_changing_results_is_no_circle():
    assert set(see(Repetition(), *[("poll", f"{n} of 50") for n in range(50)])) == {None}


def test_many_edits_of_one_file_are_no_circle():
    guard = Repetition()
    seen = {
        guard.check(
            [{"name": "edit_file", "arguments": {"path": "a", "old_text": str(n), "new_text": "x"}}],
            [ToolResult("[edited a]")],
        )
        for n in range(50)
    }
    assert seen == {None}


def test_tests_that_fail_alike_between_different_edits_are_no_circle():
    steps = []
    for number in range(20):
        steps += [("test", "1 failed in 0.12s"), (f"edit {number}", "edited")]
    assert set(see(Repetition(), *steps)) == {None}


def test_measured_times_do_not_hide_a_circle():
    steps = [("test", f"1 failed in 0.{n}s\nwhole: outputs/000{n}.txt at 0x7f0000{n}000") for n in range(1, 4)]
    assert see(Repetition(), *steps)[-1] == "nudge"


def test_groups_are_seen_call_by_call():
    guard = Repetition()
    calls = [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]
    results = [ToolResult("1"), ToolResult("2")]
    assert [guard.check(calls, results) for _ in range(4)] == [None, None, "nudge", "stop"]


def test_one_group_of_equal_calls_is_nudged_before_it_is_stopped():
    calls = [{"name": "a", "arguments": {}}] * 6
    assert Repetition().check(calls, [ToolResult("1")] * 6) == "nudge"


def test_nudges_do_not_go_on_for_ever():
    guard = Repetition()
    verdicts = [see(guard, *[(name, "1")] * 3)[-1] for name in "abcd"]
    assert verdicts == ["nudge", "nudge", "nudge", "stop"]


def test_it_is_restored_from_the_records():
    guard = Repetition()
    guard.restore([{"tool": "a", "args": {"x": "a"}, "result": "1", "status": "success"}] * 2)
    assert see(guard, ("a", "1"), ("a", "1")) == ["nudge", "stop"]


def test_memory_is_bounded():
    guard = Repetition()
    see(guard, *[(str(n), "x" * 1000) for n in range(500)])
    assert len(guard._row) <= 17
