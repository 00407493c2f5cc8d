"""Compactions: what they record, in which order, and what `recreate_current_context` takes."""

import orjson
import pytest

from agent.context import CompactionStore, MessageStore, SummaryStore
from agent.context.carry_over_text import GO_ON
from agent.errors import RecordRefused
from agent.tools.run_command import exit_line
from agent.values import Finished, Usage


@pytest.fixture
def store(tmp_path, config, counter):
    store = MessageStore(tmp_path, config, counter=counter)
    store.add_message("system", "rules")
    store.add_message("user", "task")
    for number in range(3, 10):
        store.add_message("assistant" if number % 2 else "user", f"message {number}")
    yield store
    store.close()


def rows(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def said(store):
    return [(line["role"], line["content"]) for line in rows(store.current_path)]


def newest(store, count, path):
    path.write_bytes(b"".join(store.current_path.read_bytes().splitlines(keepends=True)[-count:]) if count else b"")
    return path


def test_the_seeds_way_puts_the_summary_behind_rules_and_task(store, tmp_path):
    store.recreate_current_context("what was", 8, newest(store, 3, tmp_path / "unsummarized.jsonl"))
    assert said(store) == [
        ("system", "rules"),
        ("user", "task"),
        ("assistant", "what was"),
        ("user", "What the person said last, word for word:\nmessage 6\n\n" + GO_ON),
        ("assistant", "message 7"),
        ("user", "message 8"),
        ("assistant", "message 9"),
    ]
    (summary,) = rows(tmp_path / "summaries.jsonl")
    original = sum(len(f"message {number}") for number in range(3, 7))
    assert {
        key: summary[key] for key in ("id", "start_seq", "end_seq", "summary", "original_tokens", "summary_tokens")
    } == {
        "id": 1,
        "start_seq": 1,
        "end_seq": 6,
        "summary": "what was",
        "original_tokens": original,
        "summary_tokens": 8,
    }
    assert summary["ratio"] == round(8 / original, 3)
    copy = rows(tmp_path / "messages.jsonl")[-1]
    assert (copy["seq"], copy["role"], copy["kind"], copy["content"], copy["tokens"]) == (
        10,
        "assistant",
        "summary",
        "what was",
        8,
    )
    assert store.count_messages() == 10
    (compaction,) = rows(tmp_path / "compactions.jsonl")
    assert (compaction["strategy"], compaction["start_seq"], compaction["end_seq"]) == ("summary", 1, 6)
    assert (compaction["summary_id"], compaction["at_seq"]) == (1, 10)
    assert compaction["tokens_after"] == store.get_current_token_count()


def test_when_a_person_speaks_first_nothing_is_put_between(store, tmp_path):
    store.recreate_current_context("what was", 8, newest(store, 2, tmp_path / "kept.jsonl"))
    assert said(store)[2:] == [("assistant", "what was"), ("user", "message 8"), ("assistant", "message 9")]


def test_what_is_carried_stands_in_front_of_the_words_of_a_person(store, tmp_path):
    path = newest(store, 2, tmp_path / "kept.jsonl")
    store.recreate_current_context("what was", 8, path, carried={"plan": ["finish"]})
    assert said(store)[2:] == [
        ("assistant", "what was"),
        ("user", "Plan:\n- finish\n\nmessage 8"),
        ("assistant", "message 9"),
    ]
    # and the view's own lines are taken again by the next compaction
    store.add_message("user", "more")
    store.recreate_current_context("all of it", 9, newest(store, 3, path), carried={"plan": ["finish"]})
    assert said(store)[2:] == [
        ("assistant", "all of it"),
        ("user", "Plan:\n- finish\n\nmessage 8"),
        ("assistant", "message 9"),
        ("user", "more"),
    ]


def test_with_nothing_kept_the_next_message_decides_what_stands_before_it(store, tmp_path):
    store.recreate_current_context("what was", 8, newest(store, 0, tmp_path / "kept.jsonl"))
    assert said(store)[2] == ("assistant", "what was")
    assert said(store)[3][0] == "user"
    assert said(store)[3][1].endswith(GO_ON)
    store.add_message("user", "a comment", kind="comment")
    assert said(store)[2:] == [("assistant", "what was"), ("user", "a comment")]


def test_start_follows_the_end_of_the_last_one_and_the_newest_summary_is_seen(store, tmp_path):
    path = tmp_path / "kept.jsonl"
    store.recreate_current_context("first", 5, newest(store, 4, path))
    for number in range(11, 15):
        store.add_message("user" if number % 2 else "assistant", f"message {number}")
    store.recreate_current_context("second", 6, newest(store, 2, path))
    assert [(s["start_seq"], s["end_seq"]) for s in rows(tmp_path / "summaries.jsonl")] == [(1, 5), (6, 12)]
    contents = [content for _, content in said(store)]
    assert "second" in contents
    assert "first" not in contents
    assert store.totals().compactions == 2


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"role": "assistant", "content": "never said"}], "is not message 9"),
        ([{"role": "user", "content": "message 8"}], "is not message 9"),
        (
            [{"role": "assistant", "content": "message 7"}, {"role": "assistant", "content": "message 9"}],
            "is not message 8",
        ),
        ([{"role": "user", "content": "x"}] * 20, "is not message"),
        (["text"], "not a JSON object"),
    ],
)
def test_lines_that_are_not_the_newest_messages_are_refused_and_nothing_is_written(store, tmp_path, lines, words):
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    before = {name.name: name.read_bytes() for name in tmp_path.iterdir() if name.is_file()}
    with pytest.raises(RecordRefused, match=words):
        store.recreate_current_context("summary", 1, path)
    assert {name.name: name.read_bytes() for name in tmp_path.iterdir() if name.is_file()} == before


def test_more_lines_than_messages_are_refused(store, tmp_path):
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b'{"role":"user","content":"earlier"}\n' + store.current_path.read_bytes())
    with pytest.raises(RecordRefused, match="more lines"):
        store.recreate_current_context("summary", 1, path)
    with pytest.raises(RecordRefused, match="does not exist"):
        store.recreate_current_context("summary", 1, tmp_path / "missing.jsonl")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_summary_is_never_recorded(store, tmp_path, text):
    before = store.messages_path.read_bytes()
    with pytest.raises(RecordRefused, match="empty"):
        store.recreate_current_context(text, 0, newest(store, 2, tmp_path / "kept.jsonl"))
    assert store.messages_path.read_bytes() == before
    assert store.summaries.count_summaries() == 0


def test_lines_written_by_another_encoder_are_the_same_lines(store, tmp_path):
    import json

    path = tmp_path / "kept.jsonl"
    path.write_text(json.dumps({"content": "message 9", "role": "assistant"}))
    store.recreate_current_context("summary", 7, path)
    assert said(store)[-1] == ("assistant", "message 9")


def test_a_cut_inside_a_group_moves_back_to_its_beginning(store, tmp_path):
    calls = [{"id": f"c{number}", "name": "read", "arguments": {}} for number in range(10)]
    store.add_message("assistant", None, tool_calls=calls)
    for number in range(10):
        store.add_message("tool", f"result {number}", tool_call_id=f"c{number}")
    store.recreate_current_context("summary", 7, newest(store, 6, tmp_path / "kept.jsonl"))
    assert rows(tmp_path / "compactions.jsonl")[0]["end_seq"] == 9
    assert [line["role"] for line in rows(store.current_path)] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ] + ["tool"] * 10


def test_an_open_call_stays(store):
    store.add_message(
        "assistant",
        None,
        tool_calls=[{"id": "a", "name": "f", "arguments": {}}, {"id": "b", "name": "f", "arguments": {}}],
    )
    store.add_message("tool", "A", tool_call_id="a")
    store.compact(strategy="reset", end_seq=store.last_seq)
    assert store.open_calls() == [{"id": "b", "name": "f"}]
    store.add_message("tool", "B", tool_call_id="b")
    assert [line["role"] for line in rows(store.current_path)][-3:] == ["assistant", "tool", "tool"]


def test_a_mask_replaces_long_results_by_where_they_are(store):
    store.add_message("assistant", None, tool_calls=[{"id": name, "name": "f", "arguments": {}} for name in "abcd"])
    for name, text, output, seq in (
        ("a", "x" * 500, "outputs/0001.txt", None),
        ("b", "y" * 500, None, 41),
        ("c", "short", None, 42),
        ("d", "z" * 500, None, None),
    ):
        store.add_message("tool", text, tool_call_id=name, output=output, tool_seq=seq)
    before = store.get_current_token_count()
    forecast = store.forecast(strategy="mask", end_seq=store.last_seq)
    store.compact(strategy="mask", end_seq=store.last_seq)
    shown = [line["content"] for line in rows(store.current_path)[-4:]]
    assert "outputs/0001.txt" in shown[0]
    assert "tools:41" in shown[1]
    assert shown[2:] == ["short", "z" * 500]
    assert store.get_current_token_count() == forecast < before
    assert store.totals().compactions == 1


@pytest.mark.parametrize(
    ("done", "stays"),
    [
        (Finished(0, b"", 1.0), "exit code 0"),
        (Finished(1, b"", 1.0), "exit code 1"),
        (Finished(-9, b"", 1.0), "exit code -9"),
        (Finished(137, b"", 1.0), "exit code 137"),
        (Finished(-15, b"", 120.0, timed_out=True), "ended after 120 s"),
    ],
)
def test_a_mask_leaves_how_a_command_ended_and_takes_no_words_of_a_file_for_it(store, done, stays):
    calls = [{"id": name, "name": name, "arguments": {}} for name in ("run_command", "read_file")]
    store.add_message("assistant", None, tool_calls=calls)
    result = f"[{exit_line(done, 120.0)}]\n" + "FAILED tests/test_total.py\n" * 40
    for number, call in enumerate(calls):
        store.add_message("tool", result, tool_call_id=call["id"], tool_seq=number + 7)
    forecast = store.forecast(strategy="mask", end_seq=store.last_seq)
    store.compact(strategy="mask", end_seq=store.last_seq)
    shown = [line["content"] for line in rows(store.current_path)[-2:]]
    assert shown == [
        f'[{stays}; left out; read_output("tools:7") shows it]',
        '[left out; read_output("tools:8") shows it]',
    ]
    assert store.get_current_token_count() == forecast


def test_a_window_leaves_out_and_says_nothing_a_reset_keeps_the_words_of_a_person(store):
    store.compact(strategy="window", end_seq=6)
    assert said(store)[2:] == [("assistant", "message 7"), ("user", "message 8"), ("assistant", "message 9")]
    store.compact(strategy="reset", end_seq=8, carried={"plan": ["finish"]})
    assert [role for role, _ in said(store)] == ["system", "user", "assistant", "user", "assistant"]
    assert "left out" in said(store)[2][1]
    assert said(store)[3][1].startswith("Plan:\n- finish\n\nWhat the person said last, word for word:\nmessage 8")


def test_a_window_may_keep_the_summary_in_force(store):
    store.compact(strategy="summary", end_seq=4, summary="what was")
    store.compact(strategy="window", end_seq=6, keep_summary=True)
    assert said(store)[2] == ("assistant", "what was")
    store.compact(strategy="window", end_seq=8)
    assert ("assistant", "what was") not in said(store)


def test_the_cost_of_a_summary_counts(store):
    store.compact(strategy="summary", end_seq=4, summary="what was", usage=Usage(500, 50))
    assert (store.totals().llm_calls, store.totals().usage) == (5, Usage(500, 50))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"strategy": "forget", "end_seq": 3}, "allowed are"),
        ({"strategy": "summary", "end_seq": 3}, "text of a summary"),
        ({"strategy": "mask", "end_seq": 3, "summary": "x"}, "text of a summary"),
        ({"strategy": "window", "end_seq": 2}, "left out already"),
    ],
)
def test_what_cannot_be_a_compaction_is_refused(store, arguments, words):
    store.compact(strategy="window", end_seq=4)
    with pytest.raises(RecordRefused, match=words):
        store.compact(**arguments)
    with pytest.raises(RecordRefused, match=words):
        store.forecast(**arguments)


def test_a_compaction_that_another_instance_commits_is_taken_in(store, tmp_path):
    CompactionStore(tmp_path).add(strategy="window", start_seq=1, end_seq=6)
    assert store.get_current_token_count() == len("rulestask") + 3 * len("message 7")
    assert len(said(store)) == 5


def test_a_crash_before_the_commit_changes_nothing_that_is_seen(store, tmp_path, config, counter):
    before = store.current_path.read_bytes()
    SummaryStore(tmp_path).add_summary(1, 6, "lost", 10, 4)
    store.append_copy(
        {"seq": 10, "role": "assistant", "content": "lost", "timestamp": "", "tokens": 4, "kind": "summary"}
    )
    (tmp_path / ".current.jsonl.123.tmp").write_bytes(b"half")
    store.close()
    again = MessageStore(tmp_path, config, counter=counter)
    assert again.current_path.read_bytes() == before
    assert again.repairs == []
    assert not (tmp_path / ".current.jsonl.123.tmp").exists()
    again.close()


def test_a_crash_after_the_commit_is_finished_by_the_next_opening(store, tmp_path, config, counter):
    store.compact(strategy="window", end_seq=6)
    wanted = store.current_path.read_bytes()
    store.close()
    (tmp_path / "current.jsonl").write_bytes(b"".join([b'{"role":"system","content":"rules"}\n'] * 9))
    again = MessageStore(tmp_path, config, counter=counter)
    assert again.current_path.read_bytes() == wanted
    again.close()
