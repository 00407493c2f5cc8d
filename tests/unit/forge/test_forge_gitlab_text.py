"""Text for GitLab: nothing in it is carried out, whatever a model or a person wrote."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.forge import gitlab_text as text
from agent.forge.marks import marked, marker

MARK = marker("0badcafe-0000-4000-8000-000000000001", "final")
PIECES = st.lists(
    st.sampled_from(
        ["/close", "/label ~x", "/shrug", " ", "\t", "\n", "\r", "```", "~~~", "> ", "`", "a", "/usr/bin/x", "\\"]
    )
)


def carried_out(written):
    """Lines that GitLab would read as quick actions; it takes no notice of what Markdown shows as code here."""
    return re.findall(r"^[ \t]*/[a-z_]+(?:[ \t].*)?$", written.replace("\r", ""), re.MULTILINE)


@given(PIECES.map("".join))
@settings(max_examples=300, deadline=None)
def test_no_line_is_left_that_gitlab_would_carry_out(written):
    assert carried_out(text.plain(written)) == []


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_other_text_stays_as_it_is(written):
    shown = text.plain(written)
    assert text.plain(shown) == shown
    if "/" not in written and "\r" not in written and "\0" not in written:
        assert shown == written


@pytest.mark.parametrize(
    "line", ["/usr/bin/env: no such file", "see /close", "a/b", "//close", "/", "/ close", "https://x.y/close"]
)
def test_paths_and_mentions_are_not_touched(line):
    assert text.plain(line) == line


def test_a_cut_says_so_and_keeps_the_marker():
    shown = text.fit(marked("x" * 500, MARK), 300)
    assert 299 <= len(shown) <= 300
    assert "cut" in shown
    assert shown.endswith(f"<!-- {MARK} -->")
    assert len(text.fit("y" * 500, 300)) == 299
    for size in range(200, 260):
        shown = text.fit("a\n/close/x/y\n" * 100, size)
        assert len(shown) <= size
        assert carried_out(shown) == []
    assert text.fit("short", 300) == "short"


@pytest.mark.parametrize(
    ("given_title", "bare"),
    [
        ("Draft: x", "x"),
        ("draft:x", "x"),
        ("[Draft] (draft) Draft: x", "x"),
        ("Drafting the plan", "Drafting the plan"),
        ("Fix draft: x", "Fix draft: x"),
        ("Draft:", "Untitled"),
        ("a\n b\t c", "a b c"),
    ],
)
def test_a_title_is_one_line_that_alone_decides_whether_it_is_a_draft(given_title, bare):
    assert text.title(given_title, draft=False) == bare
    assert text.title(given_title, draft=True) == f"Draft: {bare}"


def test_a_long_title_is_cut():
    shown = text.title("日" * 400, draft=True)
    assert len(shown) == 255
    assert shown.endswith("…")
