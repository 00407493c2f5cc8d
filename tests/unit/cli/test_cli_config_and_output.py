"""How arguments are taken apart, and how output is written."""

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.cli import tables
from agent.cli.config_and_output import CliState, take_global_options, write
from agent.errors import UsageError


@pytest.mark.parametrize(
    "argv",
    [
        ["--config", "a.yaml", "--json", "tasks", "--limit", "1"],
        ["tasks", "--limit", "1", "--config=a.yaml", "--json"],
        ["tasks", "--json", "--limit", "1", "--config", "a.yaml"],
    ],
)
def test_config_and_json_may_stand_anywhere(argv):
    state = CliState()
    assert take_global_options(argv, state) == ["tasks", "--limit", "1"]
    assert state.json
    assert state.config == Path("a.yaml")


def test_behind_two_dashes_everything_is_an_argument():
    state = CliState()
    assert take_global_options(["show", "--", "--json"], state) == ["show", "--", "--json"]
    assert not state.json


def test_config_without_a_path_is_a_usage_error():
    with pytest.raises(UsageError, match="needs a path"):
        take_global_options(["tasks", "--config"], CliState())


def test_a_reader_who_goes_away_ends_the_output_and_nothing_else():
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "w") as stream:
        assert not write(stream, "nobody reads this")
        assert write(stream, "this goes nowhere, without an error")


def test_a_closed_output_is_no_error():
    assert not write(None, "text")


def test_a_document_is_streamed_as_one_valid_json(capsys):
    state = CliState(json=True)
    state.print_json_items({"a": 1, "b": [1, 2]}, "items", iter([{"n": 1}, {"n": 2}]))
    assert json.loads(capsys.readouterr().out) == {"a": 1, "b": [1, 2], "items": [{"n": 1}, {"n": 2}]}
    state.print_json_items({"a": 1}, "items", ())
    assert json.loads(capsys.readouterr().out) == {"a": 1, "items": []}


def test_json_is_harmless_on_a_terminal_and_says_the_same(capsys):
    value = {"title": "\x1b[31m \x9b2J \u202e \U000e0041 合計 \x7f"}
    CliState(json=True).print_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == value
    assert not any(sign in out for sign in ("\x1b", "\x9b", "\u202e", "\U000e0041", "\x7f"))
    assert "合計" in out


def test_half_a_character_does_not_break_json(capsys):
    @dataclass
    class Finding:
        found: str

    CliState(json=True).print_json({"one": Finding("a\udcffb"), "path": Path("x")})
    assert json.loads(capsys.readouterr().out) == {"one": {"found": "a\ufffdb"}, "path": "x"}


def test_columns_are_aligned_by_the_cells_of_a_terminal():
    lines = list(tables.aligned(("name", "n", "last"), [["合計", "1", "x"], ["a", "1,000", "y"]], right=(1,)))
    assert lines == ["name      n  last", "合計      1  x", "a     1,000  y"]


def test_a_cell_is_one_harmless_line():
    assert tables.cell("a\nb\t\x1b[2Jc\r\n") == "a b c"
    assert tables.cell(None) == ""


def test_a_stream_that_is_no_terminal_is_none():
    from agent.cli.config_and_output import is_terminal

    assert not is_terminal(None)
    assert not is_terminal(io.StringIO())
