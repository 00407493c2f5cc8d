"""What the forges share: times in HTTP, kept answers, cursors, the branch an issue asks to start from."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from datetime import UTC, datetime

import pytest
import requests

from agent import clock
from agent.forge import http
from agent.forge.base_branch import base_of
from agent.forge.comment_cursor import CommentCursor, digest
from agent.forge.etag_cache import EtagCache, condition

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
    assert http.was_not_sent(refused.value)
    assert http.was_not_sent(requests.exceptions.ConnectTimeout())
    assert not http.was_not_sent(requests.exceptions.ReadTimeout())
    assert not http.was_not_sent(requests.exceptions.ConnectionError("cut"))
    assert not http.was_not_sent(requests.exceptions.SSLError(ssl.SSLEOFError(8, "EOF occurred")))


def answered_with(what):
    """What `requests` raises for a server that says `what` and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(what)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(requests.exceptions.RequestException) as caught:
            requests.get(f"http{'s' if what else ''}://127.0.0.1:{server.getsockname()[1]}/", timeout=60)
        thread.join()
    return caught.value


def test_a_person_reads_words_and_no_pools():
    with pytest.raises(requests.exceptions.ConnectionError) as refused:
        requests.get("http://127.0.0.1:1/", timeout=5)
    assert http.failure_text(refused.value) == "no connection (Connection refused)"
    assert http.may_pass(refused.value)
    cut = answered_with(b"")
    assert http.failure_text(cut) == "the connection was cut before an answer came"
    assert not http.was_not_sent(cut)
    plain = answered_with(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert http.failure_text(plain) == "TLS failed: it does not speak TLS on this port; check base_url"
    assert http.was_not_sent(plain)
    assert not http.may_pass(plain)
    moved = http.HostChanged("it redirects to another host; set base_url")
    assert (http.failure_text(moved), http.was_not_sent(moved), http.may_pass(moved)) == (str(moved), True, False)
    assert http.failure_text(requests.exceptions.ReadTimeout()) == "no answer in time"
    assert http.failure_text(requests.exceptions.ConnectTimeout()) == "it did not take the connection in time"


def keep(answers, name, etag, body, headers=None):
    """An answer 200 to a GET of `name`."""
    body = json.dumps(body).encode()
    answers.decode("GET", name, None, None, 200, {"etag": etag, **(headers or {})}, body, "GET")


def found(answers, name):
    """(the condition's ETag, the body that a 304 gives) of what is kept under `name`; None for nothing."""
    kept = answers.find("GET", name, None)
    if kept is None:
        return None
    answer = answers.decode("GET", name, None, kept, 304, {}, b"", "GET")
    return condition(kept)["If-None-Match"], answer.data


def test_kept_answers_go_when_there_is_no_room_the_longest_unused_first():
    answers = EtagCache(size=40)
    for name in "abcd":
        keep(answers, name, name.upper(), name * 3)
        assert found(answers, "a") == ("A", "aaa")
    assert (found(answers, "b"), found(answers, "d")) == (None, ("D", "ddd"))
    assert answers.used <= 40
    keep(answers, "e", "E", "".join(map(chr, range(32, 96))))
    assert (found(answers, "e"), found(answers, "a")) == (
        None,
        ("A", "aaa"),
    )  # without room at all, it pushes nothing out
    keep(answers, "d", "F", "fff")
    assert found(answers, "d") == ("F", "fff")
    answers.clear()
    assert (answers.used, found(answers, "d")) == (0, None)


def test_an_answer_is_kept_with_the_headers_that_matter():
    answers = EtagCache()
    keep(answers, "a", "A", 1, {"link": "x", "date": "today"})
    assert answers.decode("GET", "a", None, answers.find("GET", "a", None), 304, {}, b"", "GET").headers == {
        "link": "x"
    }


def test_a_change_is_never_conditional():
    answers = EtagCache()
    keep(answers, "a", "A", 1)
    assert answers.find("POST", "a", None) is None
    assert condition(None) == {}


@pytest.mark.parametrize("meanwhile", ["newer", "forgotten"])
def test_a_304_is_about_what_was_asked_with_whatever_others_did_in_between(meanwhile):
    answers = EtagCache()
    keep(answers, "a", "A", "old")
    kept = answers.find("GET", "a", None)
    if meanwhile == "newer":
        keep(answers, "a", "B", "new")
    else:
        answers.clear()
    assert answers.decode("GET", "a", None, kept, 304, {}, b"", "GET").data == "old"


def test_kept_answers_are_for_many_threads():
    answers = EtagCache(size=60)
    wrong = []

    def use(number):
        for turn in range(400):
            name = "abcdef"[(number + turn) % 6]
            keep(answers, name, f"{number}-{turn}", f"{number}-{turn}")
            seen = found(answers, name)
            if seen is not None and seen[0] != seen[1]:
                wrong.append(seen)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert answers.used <= 60


def test_a_cursor_is_read_as_it_was_written_and_rubbish_is_the_beginning():
    cursor = CommentCursor("2026-01-31T09:15:00.000000Z", {"1": digest("x")}, (3, 4))
    assert CommentCursor.parse(cursor.text()) == cursor
    assert CommentCursor.parse(CommentCursor().text()) == CommentCursor()
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
        assert CommentCursor.parse(rubbish) == CommentCursor()


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
