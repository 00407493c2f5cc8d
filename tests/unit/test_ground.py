"""Registries, values and the tree of errors."""

import builtins
import inspect
import re

import pytest

from agent import errors
from agent.errors import ConfigError, MakimonoError
from agent.plugin_guard import PluginGuard
from agent.registry import Registry
from agent.values import TaskKey, Usage
from scripts.measures import source_text, syntax
from scripts.measures.house import OWN_ERRORS, House
from scripts.measures.source_text import ROOT


def test_a_registry_loads_on_first_use_and_takes_a_dotted_path(tmp_path):
    registry = Registry("thing", {"path": "pathlib:Path"})
    assert registry.load("path").__name__ == "Path"
    with pytest.raises(ConfigError, match="not known"):
        registry.load("agent.values:TaskKey")  # without a guard only registered names count
    guard = PluginGuard(tmp_path)
    assert registry.load("agent.values:TaskKey", guard) is TaskKey
    assert registry.load("agent.values.TaskKey", guard) is TaskKey
    assert registry.names() == ["path"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pat", r"thing: 'pat' is not known; known are path, or a dotted path; did you mean 'path'\?"),
        ("nowhere:Thing", "cannot be loaded"),
        ("agent.values:Nothing", "cannot be loaded"),
    ],
)
def test_what_is_not_known_is_answered_with_what_is(name, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        Registry("thing", {"path": "pathlib:Path"}).load(name, PluginGuard(tmp_path))


def test_a_task_key_reads_the_seeds_mapping_and_names_what_is_missing():
    key = TaskKey.from_mapping(
        {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": 27, "uuid": "u"}
    )
    assert key.to_dict()["task_id"] == "27"
    assert key.instance == ""
    assert TaskKey.from_mapping(key) is key
    assert TaskKey.from_mapping(key.to_dict()) == key
    assert str(key) == "github:o/r#27"
    with pytest.raises(ValueError, match="task key lacks owner, task_id"):
        TaskKey.from_mapping({"task_source": "github", "repo": "r", "task_type": "issue", "owner": ""})


def test_usage_survives_its_record():
    assert Usage.from_dict(Usage(5, 3, 2).to_dict()) == Usage(5, 3, 2)
    assert Usage.from_dict({"prompt_tokens": None}) == Usage()


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    drawn = set(re.findall(r"(?:[├└]── |^    )([A-Z][A-Za-z]+)", errors.__doc__, re.MULTILINE))
    classes = {name for name, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, MakimonoError)}
    assert drawn == classes


OUTSIDE = {
    "AnswerTooLarge": "raised through the library `requests`, whose errors its callers translate",
    "HostChanged": "the same",
    "ForbiddenHost": "pydantic collects ValueError",
    "Stopped": "not an error: how a job of memory ends whose process is told to end",
    "NothingToDo": "not an error: how a compaction ends that has too few messages",
    "Flooded": "raised in a stream of the SDK of MCP; the client makes the result of the call of it",
    "WaitStopped": "not an error: how a wait for an MCP server ends when the task has to stop",
    "Diverged": "not an error: how a follower finds that memory.db and the shared log differ; the room catches it",
    "_FailedSafe": "not an error: how a deliberation ends without a decision; it becomes the decision FAILED_SAFE",
    "_DuplicateKey": "raised through the reader of JSON, whose errors the room makes a `NoVote` of",
    "RefusedError": "of one HTTP request; the endpoint for webhooks makes a status of it",
    "_ChangedMeanwhileError": "not an error: how a rewrite of a file ends that begins again",
}
"""Classes of exceptions that are not of the tree, each with the reason."""


def test_every_class_of_an_exception_is_in_the_tree_or_has_a_reason():
    modules = syntax.parsed(source_text.modules(ROOT), ROOT)
    foreign = {name for name in vars(builtins) if name.endswith(("Error", "Exception"))} | {"RequestException"}
    while more := {name for name, bases in modules.bases.items() if bases & foreign} - foreign:
        foreign |= more
    outside = foreign - modules.own - set(vars(builtins)) - {"RequestException"}
    assert outside == set(OUTSIDE)


def test_at_least_nine_of_ten_errors_that_are_raised_are_of_the_tree():
    judged = House().judged()
    own = sum(one.kind == "own" for one in judged)
    assert 100 * own >= OWN_ERRORS * len(judged), "scripts/measure_house errors lists the others"


def test_every_error_has_its_own_code_and_an_exit_code_of_the_command_line():
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, MakimonoError)]
    codes = [error.code for error in classes]
    assert len(set(codes)) == len(codes)
    assert {error.exit_code for error in classes} <= {1, 2, 3}
