"""`agent.store.configured_ledger`: one place opens ledgers, whichever it is, and nobody else asks for its name."""

import re
from pathlib import Path

import pytest

import agent
from agent.errors import ConfigError
from agent.store.configured_ledger import LedgerKind, entry_of, is_local

TOP = Path(agent.__file__).parent
NAMES = r"""["'](?:sqlite|postgres\w*)(?::(?://)?)?["']"""
COMPARED = re.compile(
    rf"[=!]=\s*{NAMES}|{NAMES}\s*[=!]=|\bin\s*\([^)]*{NAMES}|startswith\(\(?{NAMES}|taskqueue\.ledger\s*[=!]="
)


def test_no_module_asks_which_ledger_it_is():
    found = [
        f"{path.relative_to(TOP)}: {line.strip()}"
        for path in sorted(TOP.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if COMPARED.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'if settings.taskqueue.ledger == "sqlite":',
        'return settings.taskqueue.ledger != "sqlite" or there',
        'postgres = settings.taskqueue.ledger.startswith("postgresql:")',
        'if address not in ("", "sqlite"):',
        "if 'postgresql' == kind:",
    ],
)
def test_the_rule_finds_such_a_question(line):
    assert COMPARED.search(line)


def plain(base_dir, address):
    """A function that says nothing of itself."""


def of(entry, address="package.module:name", base_dir=Path("/base")):
    return LedgerKind(base_dir, address, entry)


def test_what_a_plug_in_leaves_out_is_as_little_as_can_be_relied_on():
    kind = of(plain)
    assert (kind.is_local, kind.exists(), kind.title) == (False, True, "ledger")
    assert kind.preload == ()  # each process checks a plug-in before it imports it
    assert kind.where == "package.module:name"


def test_an_address_of_a_plug_in_is_shown_without_its_password():
    kind = of(plain, "package.module:name://me:secret@db.example/rows")
    assert kind.where == "package.module:name://me:********@db.example/rows"


def test_a_function_that_returns_no_ledger_is_named():
    with pytest.raises(ConfigError, match=r"package\.module:name returned NoneType, which has no `db`"):
        of(plain).open()


@pytest.mark.parametrize(("address", "local"), [("sqlite", True), ("postgresql://db.example/x", False)])
def test_ours_are_known_by_name_and_by_scheme(address, local):
    assert is_local(address) is local
    assert of(entry_of(address), address).is_local is local


def test_an_unknown_name_is_said_with_those_that_are_known():
    with pytest.raises(
        ConfigError, match=r"'sqlight' is not known; known are postgresql, sqlite.*did you mean 'sqlite'"
    ):
        entry_of("sqlight")
