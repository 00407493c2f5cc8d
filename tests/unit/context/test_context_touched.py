"""Files of a running task that another program saves, cuts or removes: nothing is lost and the view stays derived."""

import os
from pathlib import Path

import orjson
import pytest

from agent.context import TaskContextManager
from agent.errors import RecordRefused


@pytest.fixture
def open_task(config, counter, key):
    made = []

    def make():
        made.append(TaskContextManager(key, "550e8400-e29b-41d4-a716-446655440000", config, counter=counter))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


def edit(path, change=lambda text: text):
    """Save a file as `sed -i` and most editors do: a new file in the place of the old one."""
    other = path.with_name(path.name + ".edited")
    other.write_text(change(path.read_text()))
    os.replace(other, path)


@pytest.fixture
def told(open_task):
    manager = open_task()
    said = []
    manager.noticed = said.append
    store = manager.get_message_store()
    store.add_message("system", "You are an agent.")
    store.add_message("user", "Mend it.")
    return manager, store, said


def contents(path):
    return [orjson.loads(line).get("content") for line in path.read_bytes().splitlines()]


def test_a_view_that_was_edited_or_removed_is_derived_again_and_grows_on(told):
    _manager, store, said = told
    for number, harm in enumerate(
        (edit, Path.unlink, lambda path: path.write_text(""), lambda path: os.truncate(path, 9))
    ):
        harm(store.current_path)
        store.add_message("assistant", f"answer {number}")
        store.add_message("user", f"go on {number}")
        assert contents(store.current_path) == contents(store.messages_path)
        harm(store.current_path)
        assert contents(store.get_current_context_file())[-1] == f"go on {number}"
    assert len(said) == 8
    assert all(line.startswith("current.jsonl: changed or removed") for line in said)


def test_facts_that_an_editor_saved_as_it_had_read_them_lose_nothing(told):
    _manager, store, said = told
    before = store.messages_path.read_text()
    for number in range(4):
        store.add_message("assistant", f"answer {number}")
        store.add_message("user", f"go on {number}")
    edit(store.messages_path, lambda _: before.replace("Mend it.", "Mend it well."))
    assert store.add_message("assistant", "last") == 11
    texts = contents(store.messages_path)
    assert texts[:3] == ["You are an agent.", "Mend it well.", "answer 0"]
    assert texts[-1] == "last"
    assert len(texts) == 11
    assert contents(store.current_path) == texts
    assert said == [
        "messages.jsonl: changed by another program; read again, 8 records that it lacked added again",
    ]
    store.messages_path.unlink()
    store.add_message("user", "and more")
    assert len(contents(store.messages_path)) == 12
    assert "removed by another program" in said[-1]


def test_numbers_never_go_back_when_facts_were_cut_off(told):
    _manager, store, said = told
    for number in range(3):
        store.add_message("assistant", f"answer {number}")
        store.add_message("user", f"go on {number}")
    size = store.messages_path.stat().st_size
    os.truncate(store.messages_path, size - 30)  # in place: nobody has the rest
    assert store.add_message("assistant", "last") == 9
    assert [orjson.loads(line)["seq"] for line in store.messages_path.read_bytes().splitlines()] == [*range(1, 8), 9]
    assert "is lost" in said[0]
    assert contents(store.current_path)[-1] == "last"


def test_every_other_file_of_facts_is_read_again(told):
    manager, _, said = told
    effects, tools = manager.get_effect_store(), manager.get_tool_store()
    effects.done("first", {"id": 1})
    tools.add_tool_call("read_file", {}, "x", "success", 1)
    edit(effects.path, lambda text: " " * 7 + "\n" + text)
    edit(tools.path)
    assert effects.receipt("first") == {"id": 1}
    assert effects.done("second", {"id": 2}) == {"id": 2}
    assert tools.add_tool_call("read_file", {}, "y", "success", 1) == 2
    tools.path.unlink()
    assert tools.add_tool_call("read_file", {}, "z", "success", 1) == 3
    assert [record["seq"] for record in tools.records()] == [1, 2, 3]
    assert len(said) == 3


CALL = {"id": "call_a", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}


def save_in_place(path, text):
    """As nano, VS Code and a redirection of the shell save: into the same inode."""
    with path.open("r+") as file:
        file.truncate(0)
        file.write(text)


def test_a_call_whose_result_an_editor_overwrote_gets_one_and_the_task_goes_on(told):
    manager, store, said = told
    store.add_message("assistant", None, tool_calls=[CALL])
    before = store.messages_path.read_text()
    seq = manager.get_tool_store().add_tool_call("read_file", {}, "x = 1", "success", 1)
    store.add_message("tool", "x = 1", "read_file", tool_call_id="call_a", tool_seq=seq)
    save_in_place(store.messages_path, before)
    store.add_message("assistant", "I have seen it.")
    assert contents(store.messages_path)[-2:] == ["x = 1", "I have seen it."]
    assert contents(store.current_path) == contents(store.messages_path)
    assert "is lost" in said[0]


def test_the_result_of_a_call_that_an_editor_overwrote_is_left_out(told):
    _manager, store, _said = told
    before = store.messages_path.read_text()
    store.add_message("assistant", None, tool_calls=[CALL, CALL | {"id": "call_b"}])
    save_in_place(store.messages_path, before)
    for call in ("call_a", "call_b"):
        assert store.add_message("tool", "x = 1", "read_file", tool_call_id=call) == 3
    with pytest.raises(RecordRefused, match="no open call"):
        store.add_message("tool", "x = 1", "read_file", tool_call_id="call_a")
    store.add_message("user", "Go on.")
    assert contents(store.current_path) == ["You are an agent.", "Mend it.", "Go on."]


def test_places_before_a_compaction_that_an_editor_moved_are_looked_for_again(told):
    _manager, store, _said = told
    for number in range(6):
        store.add_message("assistant", f"answer {number}")
        store.add_message("user", f"go on {number}")
    store.compact(strategy="summary", end_seq=10, summary="Nothing yet.", summary_tokens=3)
    view = contents(store.current_path)
    for change in (
        lambda text: text.replace("answer 1", "the answer number 1"),
        lambda text: text.replace("answer number 1", "1"),
    ):
        save_in_place(store.messages_path, change(store.messages_path.read_text()))
        store.add_message("assistant", "more")
        store.add_message("user", "and more")
        view += ["more", "and more"]
        assert contents(store.current_path) == view
    assert store.damaged == []
