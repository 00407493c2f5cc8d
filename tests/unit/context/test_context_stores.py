"""`SummaryStore`, `ToolStore`, `CompactionStore`, `EffectStore`: the small files of a task."""

import orjson
import pytest

from agent.context import CompactionStore, EffectStore, SummaryStore, ToolStore
from agent.errors import RecordRefused


def rows(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_summaries_are_numbered_and_the_newest_is_found(tmp_path):
    store = SummaryStore(tmp_path)
    assert (store.get_latest_summary(), store.count_summaries()) == (None, 0)
    assert store.add_summary(10, 50, "Fixed auth bug...", 12000, 800) == 1
    assert store.add_summary(51, 90, "Second", 0, 7) == 2
    first = rows(tmp_path / "summaries.jsonl")[0]
    timestamp = first.pop("timestamp")
    assert timestamp.endswith("Z")
    assert first == {
        "id": 1,
        "start_seq": 10,
        "end_seq": 50,
        "summary": "Fixed auth bug...",
        "original_tokens": 12000,
        "summary_tokens": 800,
        "ratio": 0.067,
    }
    assert store.get_latest_summary()["summary"] == "Second"
    assert store.get_latest_summary()["ratio"] == 0.0
    assert SummaryStore(tmp_path).count_summaries() == 2


def test_two_instances_of_one_process_number_on(tmp_path):
    one, two = SummaryStore(tmp_path), SummaryStore(tmp_path)
    assert [one.add_summary(1, 2, "a", 1, 1), two.add_summary(3, 4, "b", 1, 1), one.add_summary(5, 6, "c", 1, 1)] == [
        1,
        2,
        3,
    ]


def test_tool_calls_are_recorded_as_the_seed_has_them(tmp_path):
    store = ToolStore(tmp_path)
    assert store.add_tool_call("github_get_file_contents", {"path": "main.py"}, "...", "success", 233.6) == 1
    assert store.add_tool_call("f", {}, None, "error", 1, error="no such file", output="outputs/0001.txt") == 2
    first, second = rows(tmp_path / "tools.jsonl")
    first.pop("timestamp")
    assert first == {
        "seq": 1,
        "tool": "github_get_file_contents",
        "args": {"path": "main.py"},
        "result": "...",
        "status": "success",
        "duration_ms": 234,
    }
    assert (second["error"], second["output"]) == ("no such file", "outputs/0001.txt")
    assert store.count_tool_calls() == 2
    assert (store.result(1), store.result(2), store.result(3)) == ("...", None, None)
    assert [record["seq"] for record in store.records()] == [1, 2]
    with pytest.raises(RecordRefused, match="success and error"):
        store.add_tool_call("f", {}, "", "maybe", 1)


def test_the_newest_calls_are_read_from_the_end(tmp_path):
    store = ToolStore(tmp_path)
    for number in range(8):
        store.add_tool_call("f", {"n": number}, "x" * 30_000, "success", 1)
    assert [record["args"]["n"] for record in store.recent(3)] == [5, 6, 7]
    assert len(store.recent()) == 8
    assert store.last()["seq"] == 8
    assert (store.newest_of("f"), store.newest_of("g"), ToolStore(tmp_path).newest_of("f")) == (8, 0, 8)


def test_compactions_name_what_they_did(tmp_path):
    store = CompactionStore(tmp_path)
    heard = []
    store.committed = lambda: heard.append(store.count())
    assert store.add(strategy="mask", start_seq=1, end_seq=5, tokens_before=100, tokens_after=50) == 1
    assert store.add(strategy="summary", start_seq=1, end_seq=9, summary_id=1, carried={"plan": []}) == 2
    assert heard == [1, 2]
    assert [record["strategy"] for record in store.all()] == ["mask", "summary"]
    cut = store.cut()
    assert (cut.mask_end, cut.end_seq, cut.summary_id, cut.count) == (5, 9, 1, 2)
    for arguments in ({"strategy": "other"}, {"strategy": "summary"}):
        with pytest.raises(RecordRefused):
            store.add(start_seq=1, end_seq=2, **arguments)


def test_an_effect_happens_once(tmp_path):
    done = []

    def do():
        done.append(1)
        return {"id": 7}

    store = EffectStore(tmp_path)
    assert store.receipt("comment") is None
    assert store.once("comment", lambda: None, do, body="hello") == {"id": 7}
    assert store.once("comment", lambda: pytest.fail("it is recorded"), do) == {"id": 7}
    assert EffectStore(tmp_path).once("comment", lambda: None, do) == {"id": 7}
    assert done == [1]
    assert [(row["name"], row["state"]) for row in rows(tmp_path / "effects.jsonl")] == [
        ("comment", "intent"),
        ("comment", "receipt"),
    ]
    assert rows(tmp_path / "effects.jsonl")[0]["detail"] == {"body": "hello"}


def test_after_a_crash_between_intent_and_receipt_the_marker_is_looked_for(tmp_path):
    store = EffectStore(tmp_path)
    with pytest.raises(ConnectionError):
        store.once("push", lambda: None, lambda: (_ for _ in ()).throw(ConnectionError()))
    again = EffectStore(tmp_path)
    assert (again.pending(), again.receipt("push")) == (["push"], None)
    assert again.once("push", lambda: {"sha": "found"}, lambda: pytest.fail("it was done")) == {"sha": "found"}
    assert again.pending() == []


def test_a_torn_receipt_is_no_receipt(tmp_path):
    store = EffectStore(tmp_path)
    store.once("label", lambda: None, lambda: {"ok": True})
    path = tmp_path / "effects.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    again = EffectStore(tmp_path)
    assert again.pending() == ["label"]
    assert again.once("label", lambda: {"ok": "seen"}, lambda: pytest.fail("it was done")) == {"ok": "seen"}


def test_a_new_effect_is_looked_up_only_after_an_intent(tmp_path):
    store = EffectStore(tmp_path)
    with pytest.raises(ConnectionError):
        store.once(
            "pull", lambda: pytest.fail("it is new"), lambda: (_ for _ in ()).throw(ConnectionError()), is_new=True
        )
    again = EffectStore(tmp_path)
    assert again.once("pull", lambda: {"id": 7}, lambda: pytest.fail("it was done"), is_new=True) == {"id": 7}


def test_receipts_of_many_effects_are_told_apart(tmp_path):
    store = EffectStore(tmp_path)
    for number in range(5):
        store.intend(f"e{number}", n=number)
        store.done(f"e{number}", {"n": number})
    store.done("e1", {"n": "newer"})
    again = EffectStore(tmp_path)
    assert [again.receipt(f"e{number}")["n"] for number in range(5)] == [0, "newer", 2, 3, 4]
