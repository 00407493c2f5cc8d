"""The names that docs/design/index.md promises can be imported from the packages that it names."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "design" / "index.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## Names and signatures\n")[1].split("\n## ")[0]


def promised():
    """(package, name, parameters in parentheses or "") of each name in the list of the section."""
    for item in re.findall(r"(?ms)^- (`agent\.[\w.]+`:.*?)(?=^- |^$|\Z)", SECTION):
        package, *names = re.findall(r"`([^`]+)`", item)
        each = names.pop() if names[-1].startswith("(") else ""
        for text in names:
            name, _, parameters = text.partition("(")
            yield package, name, parameters.rstrip(")") or each.strip("()")


@pytest.mark.parametrize(("package", "name", "parameters"), list(promised()))
def test_a_name_of_the_design_can_be_imported_and_takes_what_it_says(package, name, parameters):
    thing = getattr(importlib.import_module(package), name)
    wanted = [one.strip() for one in parameters.split(",") if one.strip()]
    assert wanted == (named_parameters(thing)[: len(wanted)] if wanted else [])


def named_parameters(thing):
    """The parameters of a function, or of the first constructor of a class that does not only pass them on."""
    makers = (
        [vars(one)["__init__"] for one in thing.__mro__ if "__init__" in vars(one)] if isinstance(thing, type) else []
    )
    names = [[name for name in inspect.signature(one).parameters if name != "self"] for one in makers or [thing]]
    return next(each for each in names if each != ["args", "kwargs"])


def test_the_list_is_read_as_a_whole():
    found = list(promised())
    assert {package for package, _, _ in found} == set(re.findall(r"(?m)^- `(agent\.[\w.]+)`", SECTION))
    assert ("agent.llm", "OllamaClient", "config, message_store, context_dir") in found
