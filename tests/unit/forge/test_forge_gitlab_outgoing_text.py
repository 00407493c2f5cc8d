"""Text for GitLab: nothing in it is carried out, whatever a model or a person wrote."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from length import either

from agent.forge.gitlab import outgoing_text
from agent.forge.markers import marker, with_markers

MARK = marker("0badcafe-0000-4000-8000-000000000001", "final")
PIECES = st.lists(
    st.sampled_from(
        ["/close", "/label ~x", "/shrug", " ", "\t", "\n", "\r", "```", "~~~", "> ", "`", "a", "/usr/bin/x", "\\"]
    )
)


def carried_out(written):
    """Lines that GitLab would read as quick actions: its parser leaves out blocks of code between two fences."""
    outside = re.sub(r"^```.+?\n```$", "", written.replace("\r", ""), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^[ \t]*/[a-z_]+(?:[ \t].*)?$", outside, re.MULTILINE)


@given(PIECES.map("".join))
@example("```\n/close\n```")
@example("```\n/close\n```\n/close")
@settings(max_examples=either(75, 300), deadline=None)
def test_no_line_is_left_that_gitlab_would_carry_out(written):
    assert carried_out(outgoing_text.escape_quick_actions(written)) == []


@given(st.text())
@settings(max_examples=either(25, 100), deadline=None)
def test_other_text_stays_as_it_is(written):
    shown = outgoing_text.escape_quick_actions(written)
    assert outgoing_text.escape_quick_actions(shown) == shown
    if "/" not in written and "\r" not in written and "\0" not in written:
        assert shown == written


@pytest.mark.parametrize(
    "line", ["/usr/bin/env: no such file", "see /close", "a/b", "//close", "/", "/ close", "https://x.y/close"]
)
def test_paths_and_mentions_are_not_touched(line):
    assert outgoing_text.escape_quick_actions(line) == line


def test_a_cut_says_so_and_keeps_the_marker():
    shown = outgoing_text.truncate(with_markers("x" * 500, MARK), 300)
    assert 299 <= len(shown) <= 300
    assert "cut" in shown
    assert shown.endswith(f"<!-- {MARK} -->")
    assert len(outgoing_text.truncate("y" * 500, 300)) == 299
    for size in range(200, 260):
        shown = outgoing_text.truncate("a\n/close/x/y\n" * 100, size)
        assert len(shown) <= size
        assert carried_out(shown) == []
    assert outgoing_text.truncate("short", 300) == "short"


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
    assert outgoing_text.draft_title(given_title, draft=False) == bare
    assert outgoing_text.draft_title(given_title, draft=True) == f"Draft: {bare}"


def test_a_long_title_is_cut():
    shown = outgoing_text.draft_title("日" * 400, draft=True)
    assert len(shown) == 255
    assert shown.endswith("…")
