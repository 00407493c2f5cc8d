"""The view is checked line by line, once."""

import os

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from length import either

from agent.message_reader import lines
from agent.tokens import count_message, counter_for
from agent.window.counted_view import View

SYSTEM = {"role": "system", "content": "You are careful."}
TASK = {"role": "user", "content": "Fix the bug in main.py."}


def call(*ids):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": one, "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
            for one in ids
        ],
    }


def result(one, text="text of the file"):
    return {"role": "tool", "tool_call_id": one, "content": text}


def answer(text="Done."):
    return {"role": "assistant", "content": text}


def user(text="Go on."):
    return {"role": "user", "content": text}


def write(path, *messages, mode="wb"):
    with path.open(mode) as file:
        file.writelines(orjson.dumps(message) + b"\n" for message in messages)
    return path


@pytest.fixture
def view(tmp_path):
    return View(tmp_path / "current.jsonl", counter_for(""))


def test_a_legal_list_is_counted_by_layers(view):
    messages = [SYSTEM, TASK, call("a", "b"), result("b"), result("a"), answer("Seen."), user()]
    write(view.path, *messages)
    seen = view.complete()
    count = [count_message(view.counter, message) for message in messages]
    assert seen.messages == 7
    assert seen.tokens == sum(count)
    assert (seen.head, seen.briefing, seen.tail) == (count[0], count[1], count[6])
    assert seen.offset == view.path.stat().st_size


def test_the_newest_turn_is_the_open_group_with_everything_after_it(view):
    messages = [SYSTEM, TASK, call("a"), result("a"), call("b"), result("b"), user("And this.")]
    write(view.path, *messages)
    assert view.complete().tail == sum(count_message(view.counter, message) for message in messages[4:])


def test_only_new_lines_are_parsed(view):
    write(view.path, SYSTEM, TASK)
    view.read()
    assert view.parsed == 2
    view.read()
    write(view.path, call("a"), result("a"), mode="ab")
    seen = view.complete()
    assert view.parsed == 4
    assert seen.messages == 4


def test_a_half_written_line_is_left_for_the_next_look(view):
    write(view.path, SYSTEM, TASK)
    with view.path.open("ab") as file:
        file.write(b'{"role":"user","con')
    assert view.read().messages == 2
    with view.path.open("ab") as file:
        file.write(b'tent":"x"}\n')
    assert view.read().messages == 3


@pytest.mark.parametrize("same_inode", [True, False])
def test_a_replaced_file_is_read_again(view, same_inode):
    write(view.path, SYSTEM, TASK, answer("a" * 300), user("b" * 300))
    view.read()
    messages = [SYSTEM, TASK, answer("c" * 300), user("d" * 300), answer(), user("e")]
    if same_inode:
        write(view.path, *messages)
    else:
        write(view.path.with_name("new"), *messages).rename(view.path)
    fresh = View(view.path, view.counter)
    assert view.read() == fresh.read()
    assert view.parsed == 4 + 6


def test_a_file_that_became_shorter_is_read_again(view):
    write(view.path, SYSTEM, TASK, answer(), user())
    view.read()
    os.truncate(view.path, 0)
    write(view.path, SYSTEM, TASK)
    assert view.read().messages == 2


def test_what_is_not_legal_is_a_value_error_as_the_seed_has_it(view):
    write(view.path, TASK)
    with pytest.raises(ValueError, match="First message must be system"):
        view.complete()


def test_a_missing_file_is_an_empty_list(view):
    with pytest.raises(ValueError, match="Messages cannot be empty"):
        view.complete()


def test_a_list_that_is_not_legal_is_counted_all_the_same(view):
    messages = [TASK, answer("Seen."), user(), answer("Done.")]
    write(view.path, *messages)
    assert view.read().tokens == sum(count_message(view.counter, message) for message in messages)
    assert view.read().briefing == count_message(view.counter, TASK)
    assert View(view.path.with_name("nowhere"), view.counter).read().tokens == 0


groups = st.lists(st.sampled_from([1, 2, 4, "answer", "user"]), max_size=12)
"""How many calls a group has, or one plain message."""


def messages_of(kind, number):
    ids = [f"{number}_{place}" for place in range(kind)] if isinstance(kind, int) else []
    return [call(*ids), *map(result, ids)] if ids else [answer() if kind == "answer" else user()]


@settings(max_examples=either(15, 30), deadline=None)
@given(groups, st.lists(st.integers(0, 40), max_size=4))
def test_reading_in_steps_comes_to_the_same_as_reading_at_once(tmp_path_factory, body, stops):
    messages = [
        SYSTEM,
        TASK,
        *(message for number, kind in enumerate(body) for message in messages_of(kind, number)),
        user("last"),
    ]
    path = tmp_path_factory.mktemp("view") / "current.jsonl"
    stepwise = View(path, counter_for(""))
    write(path)
    at = 0
    for stop in [*sorted(stop for stop in stops if stop < len(messages)), len(messages)]:
        write(path, *messages[at:stop], mode="ab")
        at = stop
        stepwise.read()
    whole = View(path, counter_for(""))
    assert stepwise.complete() == whole.complete()
    assert stepwise.parsed == len(messages)


@settings(max_examples=either(20, 40), deadline=None)
@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=20))
def test_lines_come_with_the_offset_behind_them(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("lines") / "f"
    data = b"".join(line + b"\n" for line in content)
    path.write_bytes(data + b"half")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = list(lines(descriptor, 0, len(data) + 4))
    finally:
        os.close(descriptor)
    assert [line for _, line in found] == [line for line in content if line.strip()]
    assert all(data[behind - len(line) - 1 : behind] == line + b"\n" for behind, line in found)
