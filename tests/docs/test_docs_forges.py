"""docs/forges.md names the test of each fault and of each thing that users report; all of them are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "forges.md").read_text(encoding="utf-8")
OF_A_FORGE = (6, 8, 9, 16, 17, 18, 19, 20, 21, 24, 25)


def entries(text):
    """The entries of the list in a section, whose text follows its heading."""
    section = text.partition("\n## ")[0]
    return re.split(r"(?m)^- \*{0,2}", section)[1:]


def test_every_test_that_the_page_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    there = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there |= set(re.findall(r"^ *def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(named) > 60
    assert sorted(named - there) == []


def test_every_row_of_the_field_facts_that_touches_a_forge_has_its_tests():
    _, _, rest = TEXT.partition("## What users of such agents report")
    rows = {item.partition("**")[0].removeprefix("row "): item for item in entries(rest) if item.startswith("row ")}
    assert tuple(map(int, rows)) == OF_A_FORGE
    assert all("`test_" in tests for tests in rows.values())


def test_every_fault_has_a_test():
    _, _, rest = TEXT.partition("## Faults of a host")
    rows = entries(rest)
    assert len(rows) >= 18
    assert [row for row in rows if "`test_" not in row] == []


def test_the_page_on_limits_has_the_totals_of_the_table_of_requests():
    """tests/flow/test_flow_forge_requests.py compares that table with a whole run."""
    _, _, rest = TEXT.partition("### A task of three turns\n")
    rows = [line.strip("|").split("|") for line in rest.partition("\n#")[0].splitlines() if line.startswith("|")]
    totals = {row[0].strip(): [cell.strip() for cell in row[1:3]] for row in rows if "in all" in row[0]}
    further, first = totals["in all, each further task"], totals["in all, the first task"]
    short = (ROOT / "docs" / "forges_limits.md").read_text(encoding="utf-8")
    said = [f"{one} requests ({other} for the first task)" for one, other in zip(further, first, strict=True)]
    assert f"| a task of three turns | {said[0]} | {said[1]} |" in short
