"""The rates of hard words: what is a comment, what is a word, what is a hit, and which line each one is on."""

import io
import tokenize
import tomllib
from pathlib import Path

import pytest

from scripts.measures import prose, source_text

ROOT = Path(__file__).resolve().parents[2]

MODULE = '''\
#!/usr/bin/env python3
"""Whoever calls this, whatever for, is told.

A drawing is no sentence:
    a ──▶ whatever
"""

import os  # noqa: F401 - it was kept

LIMIT = 3
"""How many words are
never asked for."""

# The first line of a comment is
# kept with the second one.
text = "whoever, whatever, whose: a value is no prose"


def run(said: str) -> str:
    """`said` is code, and so is https://example.org/told; an answer stands."""
    return said  # type: ignore[return-value]
'''

PAGE = """\
# Words

The file is kept.  ``whose`` is code, and [a link](kept/told.md) has a target.

```sh
whoever --told
```

Somebody was then asked.
"""

SETTINGS = """\
[tool.prose]
limits = {who = 1000, told = 1000, is_told = 1000}
goal = {who = 0.5, told = 1000, is_told = 1000}
"""


@pytest.fixture
def repository(tmp_path):
    for name, text in {
        "agent/top.py": '"""Nothing hard in here at all."""\n',
        "agent/room/module.py": MODULE,
        "agent/room/demo_data/other.py": "# whoever\n",
        "README.md": PAGE,
        "docs/deep/page.md": "Whose page?\n",
        "CHANGELOG.md": "whoever\n",
        "pyproject.toml": SETTINGS,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def hits(blocks):
    return sorted((hit.line, hit.group, hit.words) for block in blocks for hit in prose.hits(block))


def test_hits_of_a_module_are_in_comments_and_docstrings_alone_each_with_its_line(repository):
    assert hits(prose.places(repository)["room"]) == [
        (2, "is_told", "is told"),
        (2, "told", "told"),
        (2, "who", "Whoever"),
        (2, "who", "whatever"),
        (5, "who", "whatever"),
        (8, "is_told", "was kept"),
        (8, "told", "kept"),
        (11, "is_told", "are never asked"),
        (11, "told", "words"),
        (14, "is_told", "is kept"),
        (15, "told", "kept"),
        (20, "told", "stands"),
    ]


def test_hits_of_a_page_are_outside_of_code_and_targets(repository):
    found = prose.places(repository)
    assert hits(found["README.md"]) == [
        (1, "told", "Words"),
        (3, "is_told", "is kept"),
        (3, "told", "kept"),
        (9, "is_told", "was then asked"),
    ]
    assert "CHANGELOG.md" not in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It isn't kept.", ["is_told", "told"]),
        ("They were only asked.", ["is_told"]),
        ("It is no longer kept.", ["is_told", "told"]),
        ("She told them.", ["told"]),
        ("It keeps what it says.", []),
        ("The password of a storyteller", []),
    ],
)
def test_forms_of_be_and_the_words_themselves(text, expected):
    assert sorted(hit.group for hit in prose.hits(source_text.Block("a.md", 1, text))) == expected


def test_rates_are_per_thousand_words_without_code():
    measured = prose.rates([source_text.Block("a.py", 1, "Whoever asks `this one` well-known thing tells it.")])
    assert measured.words == 6
    assert measured.groups == {"who": pytest.approx(1000 / 6), "told": 0, "is_told": 0}
    assert measured.any_form == pytest.approx(1000 / 6)
    assert prose.rates([]) == prose.Rates(0, dict.fromkeys(prose.GROUPS, 0.0), 0.0)


def test_sentences_are_cut_at_full_stops_and_items_and_know_their_lines():
    text = 'One sentence of a\nblock, e.g. this.  "Another one" is here.\n\n* an item of a list\n* Too short.\n  ├── a drawn tree'
    assert list(source_text.sentences(source_text.Block("a.py", 10, text))) == [
        (10, "One sentence of a block, e.g. this."),
        (11, '"Another one" is here.'),
        (13, "* an item of a list"),
    ]


def test_a_sample_is_the_same_for_a_seed_and_another_for_another(repository):
    blocks = [source_text.Block("a.py", line, f"This is sentence {line}.") for line in range(1, 100)]
    drawn = prose.sample(blocks, 10, "1")
    assert drawn == prose.sample(blocks, 10, "1") != prose.sample(blocks, 10, "2")
    assert len(set(drawn)) == 10
    few = prose.sample(prose.of_agent(prose.places(repository)), 100, "1")
    assert "agent/top.py:1: Nothing hard in here at all." in few
    assert "agent/room/module.py:14: The first line of a comment is kept with the second one." in few


def test_check_holds_the_limits_and_goal_the_goal(repository, capsys):
    assert prose.main(["--check"], repository) == 0
    assert "lower its limit from 1000 to" in capsys.readouterr().out
    assert prose.main(["--goal"], repository) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("who: ")
    assert "goal allows 0.5" in line
    (repository / "pyproject.toml").write_text("[tool]\n", encoding="utf-8")
    assert prose.main(["--check"], repository) == 1
    assert capsys.readouterr().out.count("add one") == 3


def test_a_rate_at_its_limit_is_held_and_leaves_nothing_to_lower():
    measured = prose.Rates(1000, {"who": 2.0, "told": 1.91, "is_told": 0.0}, 0)
    limits = {"who": 2.0, "told": 2.0, "is_told": 0.1}
    assert prose.over(measured, limits, "agent/", "limits") == []
    assert [line.split(":")[0] for line in prose.slack(measured, limits)] == ["is_told"]


@pytest.mark.parametrize(
    ("place", "paths"),
    [
        ("room", {"agent/room/module.py"}),
        ("room/module.py", {"agent/room/module.py"}),
        ("agent/room/", {"agent/room/module.py"}),
        ("docs", {"docs/deep/page.md"}),
        ("agent", {"agent/room/module.py"}),
        ("pages", {"README.md", "docs/deep/page.md"}),
    ],
)
def test_hits_of_a_place_are_listed_with_their_lines(repository, capsys, place, paths):
    assert prose.main(["--hits", place], repository) == 0
    assert {line.split(":")[0] for line in capsys.readouterr().out.splitlines()} == paths


def test_a_place_that_is_not_there_is_an_error(repository, capsys):
    assert prose.main(["--hits", "roof"], repository) == 2
    assert "there is no 'roof'" in capsys.readouterr().err


def test_the_table_has_each_place_the_totals_and_the_numbers_of_pyproject(repository, capsys):
    assert prose.main([], repository) == 0
    rows = {line.split("  ")[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert list(rows)[1:] == ["room", "top", "agent", "limits", "goal", "README.md", "docs/deep/page.md", "pages"]
    assert rows["top"] == ["6", "0.00", "0.00", "0.00", "0.00"]
    assert rows["goal"] == ["0.50", "1000.00", "1000.00"]


def test_pyproject_has_a_limit_and_a_goal_for_each_group():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["prose"]
    assert set(settings["limits"]) == set(settings["goal"]) == set(prose.GROUPS)
    assert all(settings["limits"][group] >= settings["goal"][group] for group in prose.GROUPS)


def test_comments_are_found_as_python_finds_them():
    text = 'a = "# no"  # one\n# two\nb = """\n# no \\""" # no """\nc = r\'\\\' # no\'\n    # three\nd = f"{a!r:#x}"  # four\n'
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    wanted = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    assert [(line, said) for line, said, _ in source_text.comments(text)] == wanted
    assert [alone for _, _, alone in source_text.comments(text)] == [False, True, True, False]
