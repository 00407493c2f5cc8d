"""Registries, values and the tree of errors."""

import inspect
import re

import pytest

from agent import errors
from agent.errors import ConfigError, MakimonoError
from agent.registry import Registry
from agent.values import TaskKey, Usage


def test_a_registry_loads_on_first_use_and_takes_a_dotted_path():
    registry = Registry("thing", {"path": "pathlib:Path"})
    assert registry.load("path").__name__ == "Path"
    assert registry.load("collections:OrderedDict").__name__ == "OrderedDict"
    assert registry.load("collections.OrderedDict").__name__ == "OrderedDict"
    assert registry.names() == ["path"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pat", r"thing: 'pat' is not known; known are path, or a dotted path; did you mean 'path'\?"),
        ("nowhere:Thing", "cannot be loaded"),
        ("pathlib:Nothing", "cannot be loaded"),
    ],
)
def test_what_is_not_known_is_answered_with_what_is(name, said):
    with pytest.raises(ConfigError, match=said):
        Registry("thing", {"path": "pathlib:Path"}).load(name)


def test_a_task_key_reads_the_seeds_mapping_and_names_what_is_missing():
    key = TaskKey.of(
        {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": 27, "uuid": "u"}
    )
    assert key.to_dict()["task_id"] == "27"
    assert key.instance == ""
    assert TaskKey.of(key) is key
    assert TaskKey.of(key.to_dict()) == key
    assert str(key) == "github:o/r#27"
    with pytest.raises(ValueError, match="task key lacks owner, task_id"):
        TaskKey.of({"task_source": "github", "repo": "r", "task_type": "issue", "owner": ""})


def test_usage_survives_its_record():
    assert Usage.of(Usage(5, 3, 2).to_dict()) == Usage(5, 3, 2)
    assert Usage.of({"prompt_tokens": None}) == Usage()


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    drawn = set(re.findall(r"(?:[├└]── |^    )([A-Z][A-Za-z]+)", errors.__doc__, re.MULTILINE))
    classes = {name for name, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, MakimonoError)}
    assert drawn == classes


def test_every_error_has_its_own_code_and_an_exit_code_of_the_command_line():
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, MakimonoError)]
    codes = [error.code for error in classes]
    assert len(set(codes)) == len(codes)
    assert {error.exit_code for error in classes} <= {1, 2, 3}
