"""`agent.store.jsonl`: what an append promises and what an opening repairs."""

import os

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ContextError, DiskError
from agent.store import jsonl
from agent.store.jsonl import DamagedLines, JsonlFile, last_record, records
from agent.store.jsonl import tail as end_of


def fill(path, count):
    file = JsonlFile(path)
    for number in range(1, count + 1):
        file.append({"seq": number, "text": f"line {number}"})
    file.sync()
    file.close()


def seqs(path):
    return [record["seq"] for _, record in records(path)]


def test_a_missing_file_reads_as_empty_and_is_made_by_the_first_append(tmp_path):
    path = tmp_path / "a.jsonl"
    file = JsonlFile(path)
    assert (file.count, file.next_id(), file.last(), list(file.records())) == (0, 1, None, [])
    assert not path.exists()
    assert file.append({"seq": 1, "text": "日本"}) == 0
    assert path.read_bytes() == '{"seq":1,"text":"日本"}\n'.encode()
    assert path.stat().st_mode & 0o777 == 0o600


def test_append_returns_the_offset_and_numbers_go_on_after_reopening(tmp_path):
    path = tmp_path / "a.jsonl"
    fill(path, 3)
    file = JsonlFile(path)
    assert (file.count, file.next_id()) == (3, 4)
    offset = file.append({"seq": 4})
    assert file.at(offset) == {"seq": 4} == file.last()
    assert offset == path.stat().st_size - len(b'{"seq":4}\n')


def test_a_line_that_was_damaged_meanwhile_is_not_read_as_the_next_record(tmp_path):
    path = tmp_path / "a.jsonl"
    file = JsonlFile(path)
    first, second = file.append({"seq": 1, "text": "a"}), file.append({"seq": 2, "text": "b"})
    path.write_bytes(path.read_bytes().replace(b'{"seq":1', b'!"seq":1', 1))
    assert file.at(first) is None
    assert file.at(second) == {"seq": 2, "text": "b"}


def test_a_number_out_of_order_is_refused_and_nothing_is_written(tmp_path):
    path = tmp_path / "a.jsonl"
    fill(path, 2)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="3 is next"):
        JsonlFile(path).append({"seq": 7})
    assert path.read_bytes() == before


@pytest.mark.parametrize("tail", [b"{", b'{"seq":4,"te', b'{"seq":4}', b"\0" * 5000, b"\xff\xfe"])
def test_a_torn_tail_is_cut_back_to_the_last_newline_and_kept(tmp_path, tail):
    path = tmp_path / "a.jsonl"
    fill(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    file = JsonlFile(path)
    assert path.read_bytes() == whole
    assert (tmp_path / "a.jsonl.torn").read_bytes() == tail + b"\n"
    assert "torn tail" in file.damaged[0]
    file.append({"seq": 4})
    assert seqs(path) == [1, 2, 3, 4]


def test_a_second_torn_tail_is_kept_beside_the_first(tmp_path):
    path = tmp_path / "a.jsonl"
    fill(path, 1)
    for tail in (b"one", b"two"):
        with path.open("ab") as file:
            file.write(tail)
        JsonlFile(path).close()
    assert (tmp_path / "a.jsonl.torn").read_bytes() == b"one\ntwo\n"


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"seq":1')
    file = JsonlFile(path)
    assert (file.count, path.stat().st_size) == (0, 0)


@pytest.mark.parametrize("broken", [b"\0\0\0\0", b"{not json", b"[1]", b'{"other":1}', b'{"seq":"x"}', b'{"seq":true}'])
def test_broken_lines_inside_are_skipped_and_reported(tmp_path, broken):
    path = tmp_path / "a.jsonl"
    fill(path, 2)
    with path.open("ab") as file:
        file.write(broken + b'\n{"seq":3}\n' + broken + b"\n")
    file = JsonlFile(path)
    assert file.count == 3
    assert [record["seq"] for _, record in file.records()] == [1, 2, 3]
    assert len(file.damaged) == 2
    file.append({"seq": 4})
    assert seqs(path) == [1, 2, 3, 4]


def test_reading_changes_nothing_and_leaves_out_an_unfinished_last_line(tmp_path):
    path = tmp_path / "a.jsonl"
    fill(path, 2)
    with path.open("ab") as file:
        file.write(b'{"seq":3}')
    before = path.read_bytes()
    assert seqs(path) == [1, 2]
    assert last_record(path)["seq"] == 2
    assert path.read_bytes() == before
    assert not (tmp_path / "a.jsonl.torn").exists()


def test_a_line_longer_than_a_block_is_read_from_both_ends(tmp_path):
    path = tmp_path / "a.jsonl"
    file = JsonlFile(path)
    file.append({"seq": 1, "text": "x" * 300_000})
    file.append({"seq": 2, "text": "y" * 300_000})
    file.close()
    assert JsonlFile(path).count == 2
    assert last_record(path)["text"][0] == "y"


def test_the_end_of_a_file_is_read_until_it_is_enough_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "FIRST_TAIL", 1000)
    path = tmp_path / "f.jsonl"
    assert end_of(path, lambda _found: False) == ([], True)
    lines = [b'{"seq":%d,"text":"%s"}\n' % (number, b"x" * 80) for number in range(1, 201)]
    lines[10] = b"not JSON\n"
    lines[190] = b"\0\0\0\n"
    path.write_bytes(b"".join(lines) + b'{"seq":201,"te')
    damage = DamagedLines(path)
    found, whole = end_of(path, lambda found: len(found) >= 20, damage=damage)
    assert not whole
    assert [one["seq"] for one in found][-9:] == list(range(192, 201))
    assert 20 <= len(found) <= 45, "twice as much as is needed at most"
    assert len(damage.found) == 1, "the damaged line near the end, once, although it was read twice"
    found, whole = end_of(path, lambda _found: False)
    assert whole
    assert [one["seq"] for one in found] == [number for number in range(1, 201) if number not in (11, 191)]
    found, whole = end_of(path, lambda _found: False, most=2000)
    assert (len(found) < 45, whole) == (True, False)
    path.write_bytes(b'{"seq":1,"text":"' + b"x" * 5000)
    assert end_of(path, lambda _found: True) == ([], False), "one unfinished line without an end"


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    path = tmp_path / "a.jsonl"
    fill(path, 1)
    before = path.read_bytes()
    pid = os.fork()
    if pid == 0:  # the limit on a file's size cannot be raised again, so it is set in a child
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            file = JsonlFile(path)
            try:
                file.append({"seq": 2, "text": "x" * 10_000})
            except DiskError as error:
                fine = "a.jsonl" in str(error) and path.read_bytes() == before
                file.append({"seq": 2})
                code = 0 if fine and seqs(path) == [1, 2] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_symlink_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(DiskError):
        JsonlFile(tmp_path / "a.jsonl")


def test_nothing_is_added_after_closing(tmp_path):
    file = JsonlFile(tmp_path / "a.jsonl")
    file.append({"seq": 1})
    file.close()
    with pytest.raises(ContextError, match="ended"):
        file.append({"seq": 2})


def test_refresh_takes_in_what_another_instance_appended(tmp_path):
    one, two = JsonlFile(tmp_path / "a.jsonl"), JsonlFile(tmp_path / "a.jsonl")
    one.append({"seq": 1})
    assert two.refresh()
    assert not two.refresh()
    two.append({"seq": 2})
    assert seqs(tmp_path / "a.jsonl") == [1, 2]


def test_surrogates_nul_and_odd_values_become_legal_json(tmp_path):
    file = JsonlFile(tmp_path / "a.jsonl")
    file.append(
        {
            "seq": 1,
            "a": "x\udcb0y",
            "b": float("nan"),
            "c": {1: {2}},
            "d": 10**30,
            "e": tmp_path,
            "f": "\ud83d\ude00",
        }
    )
    line = (tmp_path / "a.jsonl").read_bytes()
    record = orjson.loads(line)
    assert (record["a"], record["b"], record["c"], record["d"]) == ("x\ufffdy", None, {"1": [2]}, str(10**30))
    assert (record["e"], record["f"]) == (str(tmp_path), "😀")


def test_durability_is_one_of_three(tmp_path):
    with pytest.raises(ValueError, match="turn, message, none"):
        JsonlFile(tmp_path / "a.jsonl", durability="always")


@given(cut=st.integers(0, 400), junk=st.binary(max_size=40))
def test_any_cut_and_any_junk_leave_a_prefix_that_can_be_appended_to(tmp_path_factory, cut, junk):
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    fill(path, 12)
    path.write_bytes(path.read_bytes()[:cut] + junk)
    file = JsonlFile(path)
    kept = [record["seq"] for _, record in file.records()]
    assert kept[: file.count] == list(range(1, len(kept) + 1)) or junk.count(b"\n")
    file.append({"seq": file.next_id(), "text": "new"})
    assert file.last()["text"] == "new"
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_a_link_in_place_of_a_file_is_neither_waited_for_nor_followed(tmp_path, kind):
    path, other = tmp_path / "messages.jsonl", tmp_path / "other.jsonl"
    other.write_text('{"seq": 1}\n')
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(other)
    with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
        list(jsonl.records(path))
    with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
        last_record(path)
