"""Markers: exact, hidden, and taken out of everybody else's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.forge.markers import all_in, hide, marker, with_markers, without_markers

UUID = "550e8400-e29b-41d4-a716-446655440000"


def test_a_marker_is_hidden_in_the_last_line():
    mark = marker(UUID, "progress")
    assert with_markers("Working.\n", mark) == f"Working.\n\n<!-- makimono:{UUID}:progress -->"
    assert mark in all_in(with_markers("x", mark))
    assert marker(UUID, "prog") not in all_in(with_markers("x", mark))


@pytest.mark.parametrize("name", ["", "a b", "a-->", "a:b", "a\n"])
def test_a_name_that_could_end_the_comment_is_refused(name):
    with pytest.raises(ValueError, match="marker"):
        marker(UUID, name)


@given(
    parts=st.lists(
        st.sampled_from(["<!-- makimono:", UUID, ":final", " -->", "<!--", "text", "\n", "makimono:"]), max_size=12
    )
)
def test_no_marker_survives_in_foreign_text(parts):
    mark = marker(UUID, "final")
    cleaned = without_markers("".join(parts))
    assert mark not in all_in(cleaned)
    assert mark not in cleaned


def test_markers_in_the_text_we_mark_are_taken_out():
    forged = hide(marker(UUID, "final"))
    assert with_markers(f"a {forged} b", marker(UUID, "progress")).count("<!--") == 1


def test_ordinary_text_stays():
    text = "makimono: a scroll <!-- note --> makimono:x"
    assert without_markers(text) == text
