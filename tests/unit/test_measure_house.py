"""The figures of the house: what counts as a broken citation, an own error, a circle, a callable, a definition."""

import ast

import pytest

from scripts.measures import citations, house, syntax
from scripts.measures.source_text import Block

ERRORS = """
class MakimonoError(Exception): ...
class ConfigError(MakimonoError): ...
class Private(ConfigError): ...
class Elsewhere(Exception): ...
def refusal() -> ConfigError: ...
def either() -> ConfigError | Elsewhere: ...
def perhaps() -> ConfigError | None: ...
def unknown(): ...
"""


def kinds(source, function="def f(self, error):"):
    """(class or expression, kind) of each raise in the body of a function."""
    text = f"from agent.errors import either, refusal\nfrom agent import errors\nclass C:\n {function}\n  {source}\n"
    modules = syntax.Modules({"agent/errors.py": ast.parse(ERRORS), "agent/a.py": ast.parse(text)})
    return [(one.what, one.kind) for one in syntax.raises(modules) if one.path == "agent/a.py"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("raise ConfigError('x') from None", "own"),
        ("raise errors.Private", "own"),
        ("raise refusal()", "own"),
        ("raise errors.perhaps()", "own"),
        ("raise Elsewhere", "foreign"),
        ("raise _Hidden", "foreign"),
        ("raise ValueError('x')", "foreign"),
        ("raise either()", "foreign"),
        ("raise unknown()", "foreign"),
        ("raise KeyError(1)", "foreign"),
        ("raise", "again"),
        ("raise error", "again"),
        ("raise self.errors[0]", "again"),
        ("raise first or error", "again"),
        ("raise NotImplementedError", "demanded"),
        ("raise typer.Exit(2)", "demanded"),
    ],
)
def test_each_raise_is_own_foreign_demanded_or_again(source, kind):
    assert [found for _, found in kinds(source)] == [kind]


def test_an_error_that_a_protocol_demands_is_demanded_in_its_method_alone():
    assert kinds("raise KeyError(1)", "def __getitem__(self, key):") == [("KeyError", "demanded")]
    assert kinds("raise AttributeError(1)", "def __getattr__(self, name):") == [("AttributeError", "demanded")]
    assert kinds("raise AttributeError(1)", "def __getitem__(self, name):") == [("AttributeError", "foreign")]


def test_a_value_error_is_demanded_where_pydantic_calls_or_what_it_calls():
    source = """
@field_validator("a")
def decorated(value): raise ValueError
def wrapped(value): return helper(value)
def helper(value): raise ValueError
def other(value): raise ValueError
Kind = Annotated[str, AfterValidator(wrapped)]
"""
    modules = syntax.Modules({"agent/a.py": ast.parse(source)})
    assert [one.kind for one in syntax.raises(modules)] == ["demanded", "demanded", "foreign"]


def test_callables_and_definitions_are_counted():
    source = """
def take(a: Callable[[], int], *, b: "Callable[[], int] | None" = None, c: int = 0):
    def inner():
        def innermost(): ...
    return lambda: inner
class Take:
    def __init__(self): ...
    def _take(self): ...
"""
    modules = syntax.Modules({"agent/a.py": ast.parse(source)})
    counts = {title: len(found) for title, found in syntax.callables(modules).items()}
    assert counts == {"parameters": 2, "lambdas": 1, "nested functions": 2}
    found = {name: len(places) for name, places in syntax.definitions(modules).items()}
    assert found == {"take": 2, "Take": 1, "inner": 1, "innermost": 1}
    assert next(iter(found)) == "take"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs" / "design").mkdir(parents=True)
    (tmp_path / "docs" / "design" / "turn.md").write_text(
        "# The turn\n\n## 5. Ask\n\n### 5.1 Once `more`\n\n### FR-4 It fits\n"
    )
    (tmp_path / "docs" / "wire.md").write_text("# Wire\n\n## Prompt caches\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "(seed 002, 4.1)",
        "the seeds' mapping",
        "Order (design: section 2)",
        "with the order of design section 2",
        "the design (section 10)",
        "Security facts: section 4.4",
        "(facts on wires, section 1)",
        "the public\nfact: it is so",
        "too long (FR-5)",
        "docs/durability.md, section 3",
        "../docs/durability.md says so",
        "wire.md section 1",
        "`docs/design/turn.md`, sections 5 and 6",
        "docs/design/turn.md, 5.2.",
        "docs/design/turn.md, 5.1 and\n5.2",
        "docs/wire.md, FR-4",
        'docs/wire.md, "Usage"',
        "[caches](docs/wire.md#caches)",
    ],
)
def test_what_a_reader_of_the_repository_cannot_follow_is_broken(root, text):
    assert [found.line for found in citations.broken(Block("agent/a.py", 7, text), root)] == [7]


@pytest.mark.parametrize(
    "text",
    [
        "by design: one process",
        "seeds of a generator",
        "facts are appended",
        "it fits (FR-4)",
        "docs/design/turn.md, sections 5 and 5.1",
        "(docs/design/turn.md, 5 and\n5.1)",
        "docs/design/turn.md, FR-4.",
        'docs/design/turn.md, "5.1 Once more"',
        "[caches](docs/wire.md#prompt-caches)",
        "[once](docs/design/turn.md#51-once-more)",
        "the tracker has `issues/1.md`",
    ],
)
def test_what_he_can_follow_is_not(root, text):
    assert list(citations.broken(Block("agent/a.py", 7, text), root)) == []


def test_pages_of_the_design_may_name_what_they_are_made_of(root):
    assert list(citations.broken(Block("docs/design/turn.md", 1, "What seed 002 asks"), root)) == []


def test_a_circle_is_found_through_imports_in_functions_and_for_types(tmp_path, monkeypatch):
    room = tmp_path / "ringed" / "room"
    room.mkdir(parents=True)
    for folder in (room, room.parent):
        (folder / "__init__.py").touch()
    (room / "a.py").write_text("def f():\n    from ringed.room import b\n")
    (room / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ringed.room import c\n")
    (room / "c.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert house.House().circles("ringed") == []
    (room / "c.py").write_text("from ringed.room import a\n")
    assert len(house.House().circles("ringed")) == 1


def test_a_module_that_imports_its_package_closes_a_circle_if_the_package_imports_it(tmp_path, monkeypatch):
    room = tmp_path / "looped" / "room"
    room.mkdir(parents=True)
    (room.parent / "__init__.py").touch()
    (room / "__init__.py").write_text("VERSION = 1\n")
    (room / "a.py").write_text("def f():\n    from looped.room import VERSION\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert house.House().circles("looped") == []
    (room / "b.py").write_text("from looped.room import a\n")
    (room / "__init__.py").write_text("VERSION = 1\nfrom looped.room.b import a\n")
    assert house.House().circles("looped") == ["looped.room: looped.room.a -> looped.room"]


def test_the_path_is_what_the_head_of_architecture_names(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "loop.py").write_text("a\nb\n")
    (tmp_path / "agent" / "other.py").write_text("a\n")
    (tmp_path / "README.md").write_text("a\n")
    (tmp_path / "ARCHITECTURE.md").write_text("# A\n\nRead `agent/loop.py`.\n\n## B\n\n`agent/other.py`\n")
    assert house.House(tmp_path).reading_path() == {"README.md": 1, "ARCHITECTURE.md": 7, "agent/loop.py": 2}
    (tmp_path / "ARCHITECTURE.md").write_text("# A\n\n## B\n\n`agent/loop.py`\n")
    with pytest.raises(ValueError, match=r"ARCHITECTURE\.md names no"):
        house.House(tmp_path).reading_path()


def test_each_module_of_the_handlers_chain_is_there_and_the_chain_is_short():
    found = house.House()
    assert min(found.lines(house.HANDLER | house.BY_ERROR).values()) > 0
    assert sum((found.reading_path() | found.lines(house.HANDLER)).values()) <= house.HANDLER_LINES


def test_what_the_handler_reaches_is_every_module_of_its_room_that_it_imports_at_run_time():
    reached = house.House().reached()
    assert {*house.HANDLER, *house.BY_ERROR} < {*reached}
    assert "agent/worker/work_tree_start.py" in reached, "through preparation.py"
    assert "agent/worker/attempt.py" not in reached, "it imports the handler"
    assert {one.rpartition("/")[0] for one in reached} == {"agent/worker"}


def test_the_sheet_has_a_line_for_each_module_and_says_that_a_reader_judges(capsys):
    assert house.main(["names"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert "No program can judge" in head
    assert any(row.startswith("[ ] loop.py: The loop over") for row in rows)
    assert len(rows) == len(house.House().modules.trees)


def test_a_part_that_is_not_there_is_an_error(capsys):
    with pytest.raises(SystemExit):
        house.main(["roof"])
    assert "there is no part 'roof'; known are path, names," in capsys.readouterr().err
