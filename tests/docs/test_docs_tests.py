"""What tests/README.md and tests/fast.txt name is there, and what is there is named."""

import ast
import re
import subprocess
from pathlib import Path

import length

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
README = (TESTS / "README.md").read_text(encoding="utf-8")
PLAIN = {"conftest.py"}
"""Known to everybody who knows pytest."""


def first_cells(heading):
    """The first cells of the table below a heading, without the markup."""
    rows = README.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    cells = [row.split("|")[1].strip() for row in rows if row.startswith("|")][2:]
    return [re.sub(r"^\[(.*)\]\(.*\)$", r"\1", cell).strip("`") for cell in cells]


def test_each_helper_module_is_named_once():
    named = first_cells("Helper modules")
    assert sorted(named) == sorted({path.name for path in TESTS.glob("*.py")} - PLAIN)


def test_each_folder_is_named_once():
    there = {f"{path.name}/" for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))}
    assert sorted(first_cells("Folders")) == sorted(there)


def fast_paths():
    """The lines of tests/fast.txt without comments."""
    return [line for line in (TESTS / "fast.txt").read_text().splitlines() if line and not line.startswith("#")]


def test_each_path_of_the_fast_run_is_there():
    paths = [line.removeprefix("!") for line in fast_paths()]
    assert [path for path in paths if not (ROOT / path.partition("::")[0]).exists()] == []
    assert len(paths) == len(set(paths)) > 40


def test_each_test_that_the_fast_run_names_is_there():
    for path, _, name in (line.removeprefix("!").partition("::") for line in fast_paths() if "::" in line):
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path} has no test {name}"


def test_each_path_that_the_fast_run_leaves_out_is_one_that_it_would_take():
    taken = [line for line in fast_paths() if not line.startswith("!")]
    left = [line.removeprefix("!").partition("::")[0] for line in fast_paths() if line.startswith("!")]
    assert [path for path in left if not any(f"{path}/".startswith(f"{one}/") for one in taken)] == []


def test_each_room_has_tests_in_the_fast_run():
    rooms = [path.parent.name for path in (ROOT / "agent").glob("*/__init__.py")]
    paths = [line.partition("::")[0] for line in fast_paths() if not line.startswith("!")]
    without = [
        room
        for room in sorted(rooms)
        if not any(f"{path}/".startswith((f"tests/unit/{room}/", f"tests/unit/test_{room}.py/")) for path in paths)
    ]
    assert without == [], "add the test file of each room's central module to tests/fast.txt"
    assert len(rooms) > 20


def test_files_that_run_by_turns_are_there_and_three_turns_take_all_of_them(monkeypatch):
    lines = (TESTS / "by_turns.txt").read_text(encoding="utf-8").splitlines()
    files = {line for line in lines if line and not line.startswith("#")}
    assert [file for file in files if not (TESTS.parent / file).is_file()] == []
    monkeypatch.setattr(length, "LONG", False)
    left = []
    for count in range(length.TURNS):
        done = subprocess.CompletedProcess([], 0, f"{count}\n", "")
        monkeypatch.setattr(length.subprocess, "run", lambda *_, done=done, **__: done)
        left.append(length.not_this_turn())
    assert all(one < files for one in left)
    assert set.intersection(*left) == set()
    assert set.union(*(files - one for one in left)) == files


RETURN = re.compile(r"(?m)^ +return(?: *#.*)?$")


def early_returns(source):
    """(line, name of the test) of each `return` without a value in a test; property tests (`@given`) may return, since
    their examples cannot be left out beforehand."""
    tests = [one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
    for test in tests:
        if not any("given" in ast.unparse(one) for one in test.decorator_list):
            yield from ((line, test.name) for line in returns_of(test))


def returns_of(function):
    """The lines of the `return` statements of a function without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Return):
            yield child.lineno
        elif not isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            yield from returns_of(child)


def test_no_test_returns_early_in_a_branch():
    """A case that a test cannot check is left out of its parameters."""
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, source in sorted(sources.items())
        if RETURN.search(source)
        for line, name in early_returns(source)
    ] == []


def test_an_early_return_is_found():
    source = "@given(1)\ndef test_a():\n    return\n\ndef test_b():\n    def f():\n        return\n    if f():\n        return\n"
    assert list(early_returns(source)) == [(9, "test_b")]
