"""Markers: exact, hidden, and taken out of everybody else's text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.forge.markers import all_in, hide, is_signed, marker, signed, with_markers, without_markers
from agent.values import Public

UUID = "550e8400-e29b-41d4-a716-446655440000"
MARK = marker(UUID, "progress")


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


def test_markers_count_only_at_the_end_each_alone_in_its_line():
    text = with_markers(Public("x"), MARK, f"{MARK}-2")
    assert all_in(text) == (MARK, f"{MARK}-2")
    assert all_in(text.replace("\n", "\r\n") + "\n\n  ") == (MARK, f"{MARK}-2")
    for other in (f"{text}\n\nand I say", f"x <!-- {MARK} -->", f"> x\n>\n> <!-- {MARK} -->", f"<!-- {MARK} --> x"):
        assert all_in(other) == ()
        assert not is_signed(other)


@pytest.mark.parametrize("text", [with_markers(Public("x"), MARK), "x", "", "> a\n\nb"])
def test_a_signed_text_is_signed_once_and_also_without_its_tags(text):
    done = signed(text, 1000)
    assert signed(done, 1000) == done
    assert all_in(done) == all_in(text)
    for bare in (done, re.sub(r"<!--.*?-->", "", done), re.sub(r"<[^>]*>", "", done)):
        assert is_signed(bare)
    assert not is_signed("\n".join(f"> {line}" for line in done.split("\n")))
    assert not is_signed(f"{done}\n\nand I say")


def test_the_line_of_the_program_is_left_out_where_there_is_no_room():
    text = with_markers(Public("x"), MARK)
    assert signed(text, len(text)) == text
    assert is_signed(text)
