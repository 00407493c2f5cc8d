"""What the forges share: times in HTTP, kept answers, cursors, the branch an issue asks to start from."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import requests

from agent import clock
from agent.forge import http
from agent.forge.base_branch import base_of
from agent.forge.kept import KeptAnswers
from agent.forge.talk import Cursor, digest

DATE = "Sat, 31 Jan 2026 09:15:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "37"}, 37),
        ({"retry-after": " 0 "}, 0),
        ({"retry-after": "Sat, 31 Jan 2026 09:16:30 GMT", "date": DATE}, 90),
        ({"retry-after": "Sat, 31 Jan 2026 09:14:00 GMT", "date": DATE}, 0),
        ({"retry-after": "Sat, 31 Jan 2026 09:15:10 GMT"}, 10),  # without Date our own clock counts
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "٣"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_servers_clock(headers, seconds):
    with clock.use(clock.FakeClock(datetime(2026, 1, 31, 9, 15, tzinfo=UTC))):
        assert http.retry_after(headers) == seconds


def test_what_never_left_is_told_from_what_may_have_arrived():
    with pytest.raises(requests.exceptions.ConnectionError) as refused:
        requests.get("http://127.0.0.1:1/", timeout=5)
    assert http.unsent(refused.value)
    assert http.unsent(requests.exceptions.ConnectTimeout())
    assert not http.unsent(requests.exceptions.ReadTimeout())
    assert not http.unsent(requests.exceptions.ConnectionError("cut"))
    assert "ca_file" in http.why(requests.exceptions.SSLError("self-signed"))


def test_kept_answers_go_when_there_is_no_room_the_longest_unused_first():
    kept = KeptAnswers(size=200)
    kept.put("a", "1", {"link": "x"}, b"first")
    kept.put("b", "2", {}, b"second")
    assert (kept.etag("a"), kept.etag("c")) == ("1", None)
    assert kept.get("a") == ({"link": "x"}, b"first")
    kept.put("c", "3", {}, bytes(range(256)))
    assert (kept.get("c"), kept.etag("a")) == (None, "1")  # what has no room at all pushes nothing out
    kept = KeptAnswers(size=40)
    for name in "ab":
        kept.put(name, name, {}, name.encode() * 3)
    kept.get("a")
    kept.put("c", "c", {}, b"ccc")
    kept.put("d", "d", {}, b"ddd")
    assert kept.etag("b") is None
    assert kept.etag("d") == "d"
    assert kept.used <= 40
    kept.put("d", "e", {}, b"eee")
    assert kept.get("d") == ({}, b"eee")
    kept.clear()
    assert (kept.used, kept.get("d")) == (0, None)


def test_a_cursor_is_read_as_it_was_written_and_rubbish_is_the_beginning():
    cursor = Cursor("2026-01-31T09:15:00.000000Z", {"1": digest("x")}, (3, 4))
    assert Cursor.of(cursor.text()) == cursor
    assert Cursor.of(Cursor().text()) == Cursor()
    for rubbish in (
        None,
        "",
        "x",
        "[]",
        "{}",
        '{"t":1,"d":[],"p":[]}',
        '{"t":"noon","d":{},"p":[]}',
        '{"t":"","d":{},"p":["a"]}',
    ):
        assert Cursor.of(rubbish) == Cursor()


def test_digests_tell_texts_apart_also_odd_ones():
    assert digest("a") != digest("b")
    assert digest("\ud800") != digest("")
    assert len(digest("日本語")) == 12


@pytest.mark.parametrize(
    ("body", "labels", "expected"),
    [
        ("Fix it\n\nbase: release/1\n", (), ("Fix it", "release/1")),
        ("Base: `develop`\r\n\r\nFix it", (), ("Fix it", "develop")),
        ("base: main\nand\nbase: other", (), ("and\nbase: other", "main")),
        ("Fix\nbase: x\nit", (), ("Fix\nbase: x\nit", None)),
        ("base: two words", (), ("base: two words", None)),
        ("base: a:b", (), ("base: a:b", None)),
        ("", ("bug", "base: v2"), ("", "v2")),
        ("base: v3", ("base:v2",), ("", "v3")),
        ("", (), ("", None)),
    ],
)
def test_the_base_branch_is_the_first_or_last_line_or_a_label(body, labels, expected):
    assert base_of(body, labels) == expected
