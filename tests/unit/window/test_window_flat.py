"""What a compaction reads does not grow with the history: counted in records, not in time."""

from dataclasses import replace

import orjson
import pytest

from agent.context import ToolStore
from agent.store import jsonl


@pytest.fixture
def parsed(monkeypatch):
    """How many records were parsed since it was asked last."""
    count, real = [0], jsonl.parse

    def counting(line, id_key):
        count[0] += 1
        return real(line, id_key)

    monkeypatch.setattr(jsonl, "parse", counting)

    def since():
        found, count[0] = count[0], 0
        return found

    return since


def turns(task, tools, number, start):
    """Some turns, each a recorded call with its result."""
    for index in range(start, start + number):
        path = f"src/f{index}.py"
        arguments = {"path": path}
        call = {"id": f"call_{index}", "name": "read_file", "arguments": arguments}
        task.store.add_message("assistant", f"I read {path}.", tool_calls=[call])
        seq = tools.add_tool_call("read_file", arguments, "x = 1\n" * 60, "success", 1)
        task.store.add_message("tool", "x = 1\n" * 60, "read_file", tool_call_id=call["id"], tool_seq=seq)


@pytest.mark.parametrize("strategy", ["summary", "hybrid", "sliding_window"])
def test_a_compaction_reads_what_is_new_and_what_is_in_the_view(new_task, parsed, strategy):
    task = new_task(strategy=strategy).begin()
    tools = ToolStore(task.folder)
    costs = []
    for number in range(400):
        turns(task, tools, 1, number)
        task.window.plan()
        if task.window.needs_compaction():
            parsed()
            task.window.compact()
            costs.append(parsed())
    early, late = max(costs[3:9]), max(costs[-6:])
    assert len(costs) > 20
    assert late <= 1.2 * early, costs
    (_, newest) = next(jsonl.backwards(task.folder / "compactions.jsonl", id_key="id"))
    while newest["carried"] is None:  # a mask says nothing again
        newest = orjson.loads((task.folder / "compactions.jsonl").read_bytes().splitlines()[newest["id"] - 2])
    assert newest["carried"]["read"][-1] == f"src/f{newest['tools'] - 1}.py"
    assert len(newest["carried"]["read"]) == 50

    again = new_task(folder=task.folder, strategy=strategy)
    kept, whole = task.store.index, again.store.index
    assert all(f"call_{number}" in whole.ids for number in range(390, 400) if f"call_{number}" in kept.ids)
    assert replace(kept, ids=whole.ids) == whole, "what is carried on is what the whole file says"
    known = task.compressor._carried(task.store.last_seq)
    assert again.compressor._carried(task.store.last_seq) == known


def test_what_is_carried_is_what_the_whole_history_says(new_task):
    """Plan, files and question, after compactions by this process and by one that took the task up."""
    task = new_task(strategy="summary").begin()
    tools = ToolStore(task.folder)
    tools.add_tool_call("update_plan", {"items": [{"text": "look", "status": "done"}]}, "ok", "success", 1)
    tools.add_tool_call("write_file", {"path": "./b.py", "content": "x"}, "ok", "success", 1)
    tools.add_tool_call("read_file", {"path": "gone.py"}, "no", "error", 1)
    turns(task, tools, 8, 0)
    assert task.compressor.compress() == 1
    turns(task, tools, 8, 8)
    again = new_task(folder=task.folder, strategy="summary")
    tools = ToolStore(task.folder)
    tools.add_tool_call("write_file", {"path": "src/f3.py", "content": "x"}, "ok", "success", 1)
    for one in (task, again):
        carried = one.compressor._carried(task.store.last_seq)
        assert carried["plan"] == [{"text": "look", "status": "done"}]
        assert carried["changed"] == ["b.py", "src/f3.py"]
        assert carried["read"] == [f"src/f{number}.py" for number in range(16) if number != 3]


def test_a_call_is_found_by_its_number_without_reading_them_all(tmp_path, parsed):
    tools = ToolStore(tmp_path)
    for number in range(1, 3001):
        tools.add_tool_call("run", {}, f"{number} " * (1 + number % 90), "success", 1)
    parsed()
    for number in (1, 2, 77, 1500, 2999, 3000):
        assert tools.result(number).startswith(f"{number} ")
    assert parsed() < 6 * 500
    assert tools.result(3001) is None
    assert tools.result(0) is None
