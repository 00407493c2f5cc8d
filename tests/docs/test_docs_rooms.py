"""The contracts of pyproject.toml name every room."""

import tomllib
from pathlib import Path

from scripts.measures.house import House

TOP = Path(__file__).resolve().parents[2]
LINTER = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]


def rooms():
    """Every package below `agent` that has more than one module."""
    for init in sorted((TOP / "agent").rglob("__init__.py")):
        folder = init.parent
        if "demo_data" not in folder.parts and folder.name != "agent" and len(list(folder.glob("*.py"))) > 1:
            yield ".".join(folder.relative_to(TOP).parts)


def test_no_room_is_left_out_of_the_contract_against_circles():
    contract = next(one for one in LINTER["contracts"] if one["type"] == "acyclic_siblings")
    assert contract["ancestors"] == sorted(rooms())


def test_every_module_at_the_top_has_a_floor():
    contract = next(one for one in LINTER["contracts"] if one["type"] == "layers")
    assert contract["exhaustive"], "lint-imports then refuses a module that is in no layer"
    assert "exhaustive_ignores" not in contract


def test_no_import_closes_a_circle_also_not_through_a_package():
    assert House().circles() == []


def test_imports_for_types_count_as_imports():
    assert not LINTER.get("exclude_type_checking_imports")
