"""What every built-in tool promises (agent/tools/base.py), held against each entry of the registry."""

import json
import os
import re

import pytest
from jsonschema import Draft202012Validator

from agent.tools import Toolbox
from agent.tools.base import TOOLS
from agent.values import Finished

VALID = {
    "list_files": {},
    "read_file": {"path": "a.txt"},
    "search_text": {"pattern": "x"},
    "edit_file": {"path": "a.txt", "old_text": "x", "new_text": "y"},
    "write_file": {"path": "b.txt", "content": "x"},
    "run_command": {"command": "true"},
    "read_output": {"name": "tools:1"},
    "update_plan": {"items": []},
    "ask_user": {"question": "Which?"},
    "finish": {"title": "t", "summary": "s"},
}
WRONG = [
    None,
    7,
    -1,
    "",
    "x" * 100_000,
    "\0",
    "\udcff",
    "../x",
    "/etc/passwd",
    [],
    {},
    [[[]]],
    True,
    "outputs/0001.txt",
]


@pytest.fixture
def box(tmp_path):
    tree = tmp_path / "workspace"
    tree.mkdir()
    (tree / "a.txt").write_text("x\n")
    os.mkfifo(tree / "pipe")
    return Toolbox(
        root=tree,
        context_dir=tmp_path,
        run=lambda command, timeout, spool: Finished(0, b"", 0.0),
        redact=str,
        clean=str,
        lookup={1: "recorded"}.get,
    )


def test_there_is_a_valid_call_for_each_tool_here():
    assert set(VALID) == set(TOOLS.entries)


@pytest.mark.parametrize("name", TOOLS.entries)
def test_the_name_is_the_registered_one_and_the_description_is_one_short_line(box, name):
    tool = box.tools[name]
    assert tool.name == name
    assert "\n" not in tool.description
    assert 10 < len(tool.description) <= 120


@pytest.mark.parametrize("name", TOOLS.entries)
def test_the_parameters_are_a_valid_closed_schema(box, name):
    parameters = box.tools[name].parameters
    Draft202012Validator.check_schema(parameters)
    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False
    assert set(parameters["required"]) <= set(parameters["properties"])
    assert json.loads(json.dumps(parameters)) == parameters


@pytest.mark.parametrize("name", TOOLS.entries)
def test_a_valid_call_succeeds_with_a_text_that_every_store_takes(box, name):
    result = box.run(name, VALID[name])
    assert result.status == "success", result.content
    assert result.content
    assert result.error is None
    assert result.duration_ms >= 0
    result.content.encode()


@pytest.mark.parametrize("name", TOOLS.entries)
def test_wrong_arguments_of_any_kind_are_answered_and_never_raised(box, name):
    for argument in [*box.tools[name].parameters["properties"], "unknown"]:
        for value in WRONG:
            result = box.run(name, VALID[name] | {argument: value})
            assert result.status in ("success", "error")
            assert len(result.content.encode()) <= 16_000
            assert not re.search(r"failed inside|Traceback", result.content), (argument, value, result.content)
            if result.status == "error":
                assert result.error


@pytest.mark.parametrize(
    "name", sorted(TOOLS.entries.keys() - {"edit_file"})
)  # it changes the file, so its second call fails
def test_the_same_call_gives_the_same_text(box, name):
    box.run(name, VALID[name])
    assert box.run(name, VALID[name]).content == box.run(name, VALID[name]).content
