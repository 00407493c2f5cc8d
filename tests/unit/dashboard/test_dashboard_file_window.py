"""Windows of JSONL files: the same records as a whole reading, at the cost of the window."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from agent.dashboard import file_window
from agent.dashboard.file_window import newest, offset_of, read_before, read_bytes, read_from, sampled


def line(seq, size=0, **more):
    return json.dumps({"seq": seq, "text": "x" * size, **more}).encode() + b"\n"


def write(path, lines):
    path.write_bytes(b"".join(lines))
    return path


def seqs(window):
    return [record["seq"] for record in window.records]


@pytest.mark.parametrize("size", [0, 300, 70_000])
def test_each_number_is_found_whatever_the_size_of_the_lines(tmp_path, size):
    path = write(tmp_path / "a.jsonl", [line(seq, size if seq % 3 else 5) for seq in range(1, 61)])
    for seq in range(1, 61):
        assert seqs(read_from(path, offset_of(path, seq), 2)) == [seq, seq + 1][: 61 - seq]
    assert offset_of(path, 61) == path.stat().st_size
    assert offset_of(path, 0) == 0


@pytest.mark.parametrize("count", [1, 2, 7, 59, 60, 500])
def test_the_last_lines_are_the_last_lines(tmp_path, count):
    path = write(tmp_path / "a.jsonl", [line(seq, 3000) for seq in range(1, 61)])
    assert seqs(read_before(path, count)) == list(range(1, 61))[-count:]
    end = offset_of(path, 31)
    assert seqs(read_before(path, count, end=end)) == list(range(1, 31))[-count:]


def test_the_newest_record_is_in_a_window_of_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(file_window, "MOST_BYTES", 1000)
    monkeypatch.setattr(file_window, "LONGEST_LINE", 400)
    rest = [line(seq) for seq in range(3, 10)]
    for size in (*range(320, 390), 800, 1500, 3000):
        for before in ([line(1, size)], [line(1), line(2, size)], [line(1, 600), line(2, size)]):
            window = read_before(write(tmp_path / "a.jsonl", [*before, *rest, line(10, 300)]), 60)
            assert seqs(window)[-8:] == list(range(3, 11))
            assert window.end == window.size
        assert seqs(read_before(write(tmp_path / "a.jsonl", [line(1, size), line(2, 300)]), 60))[-1] == 2


def test_an_unfinished_last_line_is_left_out(tmp_path):
    path = write(tmp_path / "a.jsonl", [line(1), line(2), b'{"seq": 3, "text": "unfini'])
    assert seqs(read_before(path, 2)) == [1, 2]
    assert newest(path)["seq"] == 2
    assert seqs(read_from(path, 0, 10)) == [1, 2]
    assert read_from(path, 0, 10).damage == ()


def test_damaged_lines_are_named_and_the_others_are_read(tmp_path):
    path = write(tmp_path / "a.jsonl", [line(1), b"\0\0\0\n", b"[]\n", line(4), b"nonsense\n", line(6)])
    window = read_from(path, 0, 10)
    assert seqs(window) == [1, 4, 6]
    assert [
        "NUL bytes" in window.damage[0],
        "not a JSON object" in window.damage[1],
        "not JSON" in window.damage[2],
    ] == [
        True,
        True,
        True,
    ]
    assert seqs(read_from(path, offset_of(path, 5), 1)) == [6]


def test_a_line_that_is_too_long_is_passed_over_without_being_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(file_window, "LONGEST_LINE", 10_000)
    path = write(tmp_path / "a.jsonl", [line(1), line(2, 200_000), line(3)])
    window = read_from(path, 0, 10)
    assert seqs(window) == [1, 3]
    assert "too long" in window.damage[0]
    assert seqs(read_from(path, offset_of(path, 3), 1)) == [3]


def test_around_a_very_long_line_everything_is_found_and_the_line_is_read_few_times(tmp_path, monkeypatch):
    monkeypatch.setattr(file_window, "LONGEST_LINE", 10_000)
    monkeypatch.setattr(file_window, "LARGE_BLOCK", 100_000)
    monkeypatch.setattr(file_window, "MOST_BYTES", 200_000)
    size = 30 << 20
    for between in (b"\0" * size + b"\n", line(51, size)):
        path = write(tmp_path / "a.jsonl", [*map(line, range(1, 51)), between, *map(line, range(52, 101))])
        before = _read_bytes()
        assert [seqs(read_from(path, offset_of(path, seq), 1)) for seq in (1, 50, 52, 100)] == [[1], [50], [52], [100]]
        assert _read_bytes() - before < 2 * 4 * size
        window = read_before(path, 60)
        assert seqs(window) == [*range(41, 51), *range(52, 101)]
        assert "too long to be shown" in window.damage[0]
        assert newest(path)["seq"] == 100
        before = _read_bytes()
        assert set(seqs(sampled(path, 300))) <= set(range(1, 101))
        assert _read_bytes() - before < 2 * size
    torn = write(tmp_path / "b.jsonl", [line(1), b"x" * 500_000])
    assert seqs(read_before(torn, 5)) == [1]


def test_a_missing_file_is_empty(tmp_path):
    path = tmp_path / "none.jsonl"
    assert read_before(path, 5).records == read_from(path, 0, 5).records == sampled(path, 5).records == ()
    assert offset_of(path, 1) == 0


def test_another_number_that_never_decreases_is_found_too(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"".join(json.dumps({"id": n, "at_seq": n // 3 * 10}).encode() + b"\n" for n in range(1, 9000)))
    found = read_from(path, offset_of(path, 500, key="at_seq", id_key="id"), 3, id_key="id").records
    assert [one["id"] for one in found] == [150, 151, 152]


def test_a_sample_is_spread_over_the_file(tmp_path):
    path = write(tmp_path / "a.jsonl", [line(seq, 100) for seq in range(1, 5001)])
    found = seqs(sampled(path, 50))
    assert 40 <= len(found) <= 50
    assert found == sorted(found)
    assert found[0] == 1
    assert max(b - a for a, b in pairwise(found)) < 250


def test_a_window_of_a_large_file_reads_little(tmp_path):
    path = tmp_path / "big.jsonl"
    with path.open("wb") as out:
        for seq in range(1, 20_001):
            out.write(line(seq, 2000))
    assert path.stat().st_size > 38 << 20
    before = _read_bytes()
    assert seqs(read_before(path, 60))[-1] == 20_000
    assert seqs(read_from(path, offset_of(path, 9_000), 60))[0] == 9_000
    assert _read_bytes() - before < 6 << 20


def _read_bytes():
    text = Path(f"/proc/{os.getpid()}/io").read_text()
    return int(text.partition("rchar: ")[2].split()[0])


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "device"])
def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(tmp_path, kind):
    path, secret = tmp_path / "messages.jsonl", tmp_path / "secret.jsonl"
    secret.write_text('{"seq": 1, "content": "of another file"}\n')
    makes = {
        "pipe": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(secret),
        "folder": path.mkdir,
        "device": lambda: path.symlink_to("/dev/zero"),
    }
    makes[kind]()
    for read in (
        lambda: read_from(path, 0, 1),
        lambda: read_before(path, 1),
        lambda: offset_of(path, 1),
        lambda: sampled(path, 1),
        lambda: read_bytes(path, 1),
    ):
        with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
            read()
