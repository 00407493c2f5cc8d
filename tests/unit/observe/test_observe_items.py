"""One bad item never ends a loop; what all items share does."""

import pytest

from agent.errors import (
    AnswerOdd,
    ForgeLimited,
    ForgeUnreachable,
    IssueUnreadable,
    LedgerError,
    RecordRefused,
    RowUnreadable,
)
from agent.observe import log
from agent.observe.error_tolerant_loop import IN_A_ROW, ItemLoop


def walk(items, errors):
    """The names that were handled, of a loop in which each item raises its error (None: none)."""
    handled = []
    for name, error in errors.items():
        with items.handling(name):
            if error is not None:
                raise error
            handled.append(name)
    items.finish()
    return handled


@pytest.fixture
def said():
    return []


@pytest.fixture
def items(said):
    return ItemLoop(lambda name, why: said.append((name, why)))


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), ValueError("odd"), RecursionError(), IssueUnreadable("no"), AnswerOdd("a"), RowUnreadable("r")],
)
def test_the_others_are_handled_and_the_reason_is_said_once(items, said, error):
    assert walk(items, {"a": error, "b": None}) == walk(items, {"a": error, "b": None}) == ["b"]
    ((name, why),) = said
    assert name == "a"
    assert why


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (IssueUnreadable("no front matter"), False),
        (PermissionError(13, "not permitted"), False),
        (KeyError("x"), True),
        (RecordRefused("role is 'x'"), True),
    ],
)
def test_the_log_has_the_traceback_of_a_mistake_of_this_program(items, tmp_path, error, logged):
    log.setup(tmp_path / "log", stderr=False)
    try:
        walk(items, {"a": error})
    finally:
        log.close()
    text = (tmp_path / "log").read_text()
    assert ("Traceback" in text and '"bug"' in text) is logged


def test_another_reason_is_said_and_one_that_comes_back_too(items, said):
    for error in (ValueError("one"), ValueError("two"), None, ValueError("two")):
        walk(items, {"a": error})
    assert ["one" in why for _, why in said] == [True, False, False]


def test_what_all_share_is_raised_at_the_end_since_one_item_may_provoke_it_alone(items, said):
    handled = []
    for name in "abc":
        with items.handling(name):
            if name == "a":
                raise LedgerError(name)
            handled.append(name)
    assert handled == ["b", "c"]
    with pytest.raises(LedgerError):
        items.finish()
    assert walk(items, {"a": None}) == ["a"], "the next loop begins anew"
    assert said == []


def test_where_nobody_answers_the_rest_is_not_tried(items):
    tried = []

    def go():
        for name in "abcdefgh":
            with items.handling(name):
                tried.append(name)
                raise ForgeUnreachable(name)

    with pytest.raises(ForgeUnreachable):
        go()
    assert len(tried) == IN_A_ROW


def test_a_host_that_asks_to_slow_down_is_left_alone_at_once(items):
    with pytest.raises(ForgeLimited), items.handling("a"):
        raise ForgeLimited("slow", retry_after=1.0)


def test_a_stop_of_the_process_is_nobodys_item(items):
    with pytest.raises(KeyboardInterrupt), items.handling("a"):
        raise KeyboardInterrupt
