"""The list of mutants is of this program: a text that is gone would make `scripts/crash --mutants` say nothing."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_text_that_a_mutant_changes_stands_in_its_file_once():
    spec = importlib.util.spec_from_file_location("mutants_listed", ROOT / "tests" / "crash" / "mutants.py")
    listed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(listed)
    wrong = {one.name: (ROOT / one.file).read_text(encoding="utf-8").count(one.old) for one in listed.MUTANTS}
    assert {name: count for name, count in wrong.items() if count != 1} == {}
    page = (ROOT / "tests" / "crash" / "README.md").read_text(encoding="utf-8")
    page = " ".join(page.replace("`", "").split())
    assert [one.name for one in listed.MUTANTS if one.name not in page] == []
