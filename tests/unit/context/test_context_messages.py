"""`MessageStore`: what an append records, what it refuses, what a reopening mends."""

import os
import subprocess
import sys

import orjson
import pytest

from agent.context import MessageStore
from agent.errors import ContextError, DiskError, RecordRefused
from agent.tokens.counters import PER_MESSAGE
from agent.values import Usage


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "task"
    path.mkdir()
    return path


@pytest.fixture
def open_store(folder, config, counter):
    stores = []

    def make():
        stores.append(MessageStore(folder, config, counter=counter))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store):
    return open_store()


def rows(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def view(store):
    return rows(store.current_path)


def call(identifier, name="read_file", **arguments):
    return {"id": identifier, "name": name, "arguments": arguments}


def test_a_new_store_has_empty_files(store):
    assert store.messages_path.parent == store.current_path.parent
    assert store.current_path.read_bytes() == b""
    assert (store.count_messages(), store.last_seq, store.get_current_token_count()) == (0, 0, 0)
    assert store.last() is None
    assert store.repairs == []


def test_the_seeds_four_messages_are_recorded_in_both_forms(store):
    assert store.add_message("system", "You are an AI...") == 1
    assert store.add_message("user", "Fix the bug...") == 2
    assert store.add_message("assistant", "I'll help...", tool_calls=[call("call_1", "github_get_file")]) == 3
    assert store.add_message("tool", "{...}", tool_name="github_get_file") == 4
    records = rows(store.messages_path)
    assert [(r["seq"], r["role"], r["content"]) for r in records] == [
        (1, "system", "You are an AI..."),
        (2, "user", "Fix the bug..."),
        (3, "assistant", "I'll help..."),
        (4, "tool", "{...}"),
    ]
    assert [r.get("kind") for r in records] == ["system", "task", None, None]
    assert records[3]["tool_name"] == "github_get_file"
    assert records[0]["tokens"] == 16
    assert records[0]["timestamp"][10] == "T"
    assert records[0]["timestamp"].endswith("Z")
    assert len(records[0]["timestamp"]) == 27
    assert view(store) == [
        {"role": "system", "content": "You are an AI..."},
        {"role": "user", "content": "Fix the bug..."},
        {
            "role": "assistant",
            "content": "I'll help...",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "github_get_file", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "{...}"},
    ]
    assert store.count_messages() == 4
    assert store.get_current_token_count() == sum(r["tokens"] for r in records)


def test_arguments_of_calls_are_counted(store):
    store.add_message("user", "t")
    store.add_message("assistant", None, tool_calls=[call("a", text="x" * 40_000)])
    assert store.last()["tokens"] > 40_000


def test_usage_and_finish_reason_are_kept_and_summed(store):
    store.add_message("user", "task")
    store.add_message("assistant", "one", usage=Usage(100, 10, 60), finish_reason="stop")
    store.add_message("user", "more")
    store.add_message("assistant", "two", usage={"prompt_tokens": 120, "completion_tokens": 5}, finish_reason="length")
    assert store.last()["finish_reason"] == "length"
    assert store.last()["usage"] == {"prompt_tokens": 120, "completion_tokens": 5, "cached_tokens": 0}
    totals = store.totals()
    assert (totals.llm_calls, totals.usage, totals.tokens) == (2, Usage(220, 15, 60), 235)


def test_tokens_in_use_are_the_last_report_and_an_estimate_of_what_came_since(store, open_store):
    store.add_message("system", "1234")
    store.add_message("user", "12345")
    assert store.tokens_in_use() == 9
    store.add_message("assistant", "123", usage=Usage(1000, 5020, reasoning=5000), tool_calls=[call("a", "f")])
    assert store.tokens_in_use() == 1020
    store.add_message("tool", "1234567", tool_call_id="a")
    assert store.tokens_in_use() == 1020 + 7 + PER_MESSAGE
    assert open_store().tokens_in_use() == store.tokens_in_use()


def test_after_a_compaction_the_report_counts_no_more(store, open_store):
    store.add_message("user", "task")
    store.add_message("assistant", "answer", usage=Usage(1000, 20))
    store.compact(strategy="mask", end_seq=2)
    assert store.tokens_in_use() == store.get_current_token_count() == len("taskanswer")
    assert open_store().tokens_in_use() == len("taskanswer")


@pytest.mark.parametrize(
    ("role", "content", "recorded"),
    [("tool", None, "(no output)"), ("tool", "", "(no output)"), ("tool", "\n", "(no output)"), ("tool", "0", "0")],
)
def test_a_tool_result_is_never_empty(store, role, content, recorded):
    store.add_message("user", "t")
    store.add_message("assistant", "", tool_calls=[call("a")])
    store.add_message(role, content)
    assert view(store)[-1]["content"] == recorded == store.last()["content"]


def test_an_empty_user_message_gets_words(store):
    store.add_message("user", "  ")
    assert view(store) == [{"role": "user", "content": "(empty message)"}]


@pytest.mark.parametrize("content", [None, "", "   ", "text"])
def test_content_is_null_only_beside_calls(store, content):
    store.add_message("user", "t")
    store.add_message("assistant", content, tool_calls=[call("a")])
    assert view(store)[-1]["content"] == ("text" if content == "text" else None)


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_answer_with_nothing_in_it_is_recorded_but_not_sent(store, open_store, content):
    store.add_message("user", "t")
    store.add_message("assistant", content, usage=Usage(50, 0), finish_reason="stop")
    assert store.count_messages() == 2
    assert len(view(store)) == 1
    assert (store.totals().llm_calls, store.totals().prompt) == (1, 50)
    before = store.current_path.read_bytes()
    again = open_store()
    assert again.current_path.read_bytes() == before
    assert again.totals() == store.totals()
    assert again.tokens_in_use() == store.tokens_in_use() == 50


def test_surrogates_and_nul_are_replaced_once_at_entry(store):
    store.add_message("user", "a\ud800b\0c\ud83d\ude00")
    store.add_message("assistant", None, tool_calls=[call("a", "f", path="x\udcff\0")])
    store.add_message("tool", "\0", tool_call_id="a")
    assert view(store)[0]["content"] == "a\ufffdb\ufffdc😀"
    for data in (store.messages_path.read_bytes(), store.current_path.read_bytes()):
        data.decode()
        assert b"\\u0000" not in data
        assert b"\\ud" not in data


@pytest.mark.parametrize(
    ("role", "content", "more", "words"),
    [
        ("developer", "x", {}, "allowed are"),
        ("function", "x", {}, "allowed are"),
        ("user", None, {}, "null"),
        ("user", {"a": 1}, {}, "must be text"),
        ("user", b"x", {}, "must be text"),
        ("user", "x", {"kind": "system"}, "does not go with"),
        ("user", "x", {"kind": "other"}, "allowed are"),
        ("user", "x", {"tool_calls": [{"id": "a", "name": "f", "arguments": {}}]}, "only an assistant"),
        ("tool", "x", {}, "no open call"),
        ("tool", "x", {"tool_call_id": "a"}, "no open call"),
    ],
)
def test_what_would_make_the_view_illegal_is_refused_and_nothing_is_written(store, role, content, more, words):
    store.add_message("user", "t")
    before = store.messages_path.read_bytes(), store.current_path.read_bytes()
    with pytest.raises(RecordRefused, match=words):
        store.add_message(role, content, **more)
    assert (store.messages_path.read_bytes(), store.current_path.read_bytes()) == before
    assert store.add_message("assistant", "goes on") == 2


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_nothing_stands_between_calls_and_their_results(store, role):
    store.add_message("system", "s")
    store.add_message("user", "t")
    store.add_message("assistant", None, tool_calls=[call("a"), call("b")])
    store.add_message("tool", "one", tool_call_id="a")
    with pytest.raises(RecordRefused, match=r"read_file \(b\)"):
        store.add_message(role, "x", kind="nudge" if role == "user" else None)
    store.add_message("tool", "two", tool_call_id="b")
    with pytest.raises(RecordRefused, match="no open call"):
        store.add_message("tool", "again", tool_call_id="b")


def test_a_result_without_an_id_answers_the_oldest_call_of_its_name_else_the_oldest(store):
    store.add_message("user", "t")
    store.add_message("assistant", None, tool_calls=[call("a", "one"), call("b", "two"), call("c", "two")])
    assert store.open_calls() == [{"id": "a", "name": "one"}, {"id": "b", "name": "two"}, {"id": "c", "name": "two"}]
    store.add_message("tool", "1", tool_name="two")
    store.add_message("tool", "2", tool_name="unheard of")
    store.add_message("tool", "3")
    assert [r["tool_call_id"] for r in view(store)[2:]] == ["b", "a", "c"]
    assert rows(store.messages_path)[-1]["tool_name"] == "two"
    assert store.open_calls() == []


def test_ids_that_repeat_or_are_missing_become_unique_and_results_still_find_them(store, open_store):
    store.add_message("user", "t")
    for _ in range(2):
        store.add_message("assistant", None, tool_calls=[call("call_0"), call("call_0"), call(""), call(None)])
        store.add_message("tool", "1", tool_call_id="call_0")
        store.add_message("tool", "2", tool_call_id="call_0")
        store.add_message("tool", "3")
        store.add_message("tool", "4")
    made = [entry["id"] for line in view(store) for entry in line.get("tool_calls", ())]
    assert len(set(made)) == 8
    assert made[0] == "call_0"
    assert [line["tool_call_id"] for line in view(store) if line["role"] == "tool"] == made
    again = open_store()
    again.add_message("assistant", None, tool_calls=[call("call_0")])
    assert again.open_calls()[0]["id"] not in made
    again.add_message("tool", "x", tool_call_id="call_0")


def test_names_and_arguments_become_legal(store):
    store.add_message("user", "t")
    store.add_message(
        "assistant",
        None,
        tool_calls=[
            {"id": "a", "name": "functions.read file/" + "x" * 99, "arguments": {}},
            {"id": "b", "name": "", "arguments": '{"path": "x"}'},
            {"id": "c", "name": "f", "arguments": '{"path": "x'},
            {"id": "d", "name": "f", "arguments": "[1]"},
            {"id": "e", "name": "f", "arguments": {"n": float("nan"), "big": 10**30}},
            {"id": "f", "name": "f", "arguments": {}, "invalid": "was cut"},
            {"id": "g", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        ],
    )
    entries = view(store)[-1]["tool_calls"]
    assert entries[0]["function"]["name"] == ("functions_read_file_" + "x" * 99)[:64]
    assert entries[1]["function"] == {"name": "unknown", "arguments": '{"path": "x"}'}
    assert entries[2]["function"]["arguments"] == entries[3]["function"]["arguments"] == "{}"
    assert orjson.loads(entries[4]["function"]["arguments"]) == {"n": None, "big": str(10**30)}
    assert entries[6]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert all(set(entry) == {"id", "type", "function"} for entry in entries)
    kept = store.last()["tool_calls"]
    assert ["invalid" in entry for entry in kept] == [False, False, True, True, False, True, False]


def test_calls_without_a_result_are_answered_when_the_task_is_opened_again(store, open_store):
    store.add_message("user", "t")
    store.add_message("assistant", None, tool_calls=[call("a", "one"), call("b", "two")])
    store.add_message("tool", "done", tool_call_id="a")
    again = open_store()
    assert again.open_calls() == []
    assert view(again)[-1]["tool_call_id"] == "b"
    assert "interrupted, outcome unknown" in view(again)[-1]["content"]
    assert again.last()["tool_name"] == "two"
    assert len(again.repairs) == 1
    assert open_store().repairs == []


@pytest.mark.parametrize("harm", ["missing", "shorter", "torn", "longer", "other", "link"])
def test_a_view_that_is_not_what_the_facts_say_is_derived_again(store, open_store, tmp_path, harm):
    for number in range(6):
        store.add_message("user" if number % 2 == 0 else "assistant", f"message {number}")
    wanted = store.current_path.read_bytes()
    if harm == "missing":
        store.current_path.unlink()
    elif harm == "link":
        (tmp_path / "elsewhere").write_bytes(wanted)
        store.current_path.unlink()
        store.current_path.symlink_to(tmp_path / "elsewhere")
    else:
        lines = wanted.splitlines(keepends=True)
        harmed = {
            "shorter": wanted[: len(wanted) - len(lines[-1])],
            "torn": wanted[:-3],
            "longer": wanted + lines[0],
            "other": wanted.replace(b"message 3", b"MESSAGE 3"),
        }[harm]
        store.current_path.write_bytes(harmed)
    again = open_store()
    assert again.current_path.read_bytes() == wanted
    assert not again.current_path.is_symlink()
    assert any("derived again" in repair for repair in again.repairs)
    assert again.get_current_token_count() == store.get_current_token_count()
    again.add_message("user", "message 6")
    assert len(view(again)) == 7


def test_a_torn_last_message_is_gone_from_both_files(store, open_store):
    store.add_message("user", "one")
    store.add_message("assistant", "two")
    data = store.messages_path.read_bytes()
    store.messages_path.write_bytes(data[:-5])
    again = open_store()
    assert view(again) == [{"role": "user", "content": "one"}]
    assert again.add_message("assistant", "three") == 2
    assert any("torn" in repair for repair in again.repairs)


def test_broken_lines_inside_are_skipped_and_the_view_stays_legal(store, open_store):
    store.add_message("user", "task")
    store.add_message("assistant", None, tool_calls=[call("a"), call("b")])
    store.add_message("tool", "A", tool_call_id="a")
    store.add_message("tool", "B", tool_call_id="b")
    store.add_message("assistant", None, tool_calls=[call("c")])
    store.add_message("tool", "C", tool_call_id="c")
    store.add_message("assistant", "end")
    lines = store.messages_path.read_bytes().splitlines(keepends=True)
    lines[3] = b"\0" * (len(lines[3]) - 1) + b"\n"  # the result of b
    lines[4] = b'{"seq": broken\n'  # the answer with call c
    store.messages_path.write_bytes(b"".join(lines))
    again = open_store()
    assert [(line["role"], line.get("tool_call_id")) for line in view(again)] == [
        ("user", None),
        ("assistant", None),
        ("tool", "a"),
        ("tool", "b"),
        ("assistant", None),
    ]
    assert "damaged" in view(again)[3]["content"]
    assert len(again.damaged) == 2
    assert again.last_seq == 7


def test_records_whose_role_or_content_is_wrong_are_reported_and_left_out(store, open_store):
    store.add_message("user", "task")
    with store.messages_path.open("ab") as file:
        file.write(
            b'{"seq":2,"role":"alien","content":"x"}\n{"seq":3,"role":"user","content":7}\n{"seq":4,"role":"user"}\n'
        )
    again = open_store()
    assert view(again) == [{"role": "user", "content": "task"}]
    assert len(again.damaged) == 3
    assert again.add_message("assistant", "goes on") == 5


def test_later_system_prompts_and_briefings_wait_for_a_compaction(store, open_store):
    store.add_message("system", "old rules", kind="system")
    store.add_message("user", "old briefing", kind="task")
    store.add_message("assistant", "working")
    before = store.current_path.read_bytes()
    store.add_message("system", "new rules", kind="system")
    store.add_message("user", "new briefing", kind="task")
    assert store.current_path.read_bytes() == before == open_store().current_path.read_bytes()
    store.add_message("assistant", "still working")
    store.compact(strategy="summary", end_seq=3, summary="what was")
    assert [line["content"] for line in view(store)[:3]] == ["new rules", "new briefing", "what was"]
    assert [line["content"] for line in view(store)[4:]] == ["still working"]


def test_the_head_comes_first_whatever_was_said_before(store, open_store):
    store.add_message("user", "a nudge", kind="nudge")
    store.add_message("user", "the task", kind="task")
    store.add_message("system", "the rules")
    assert [line["content"] for line in view(store)] == ["the rules", "the task", "a nudge"]
    assert open_store().repairs == []


def test_comments_and_nudges_are_user_messages(store):
    store.add_message("user", "task", kind="task")
    store.add_message("assistant", "x")
    store.add_message("user", "a comment", kind="comment")
    store.add_message("assistant", "y")
    store.add_message("user", "a nudge", kind="nudge")
    assert [line["role"] for line in view(store)] == ["user", "assistant"] * 2 + ["user"]


def test_context_jsonl_is_the_view_and_the_lines_given(store, tmp_path):
    store.add_message("user", "task")
    assert store.get_current_context_file() == store.current_path
    extra = tmp_path / "extra.jsonl"
    extra.write_bytes(b'{"role":"assistant","content":"x"}')
    joined = store.get_current_context_file(extra)
    assert joined.name == "context.jsonl"
    assert joined.read_bytes() == store.current_path.read_bytes() + extra.read_bytes() + b"\n"
    missing = store.get_current_context_file(tmp_path / "missing.jsonl")
    assert missing.read_bytes() == store.current_path.read_bytes()


def test_records_can_be_read_from_any_number(store):
    for number in range(5):
        store.add_message("user" if number % 2 == 0 else "assistant", str(number))
    assert [record["content"] for record in store.records(3)] == ["2", "3", "4"]
    assert [record["seq"] for record in store.records()] == [1, 2, 3, 4, 5]


def test_a_write_that_fails_leaves_neither_line(folder, config, counter):
    pid = os.fork()
    if pid == 0:  # a limit on file sizes cannot be raised again
        code = 1
        try:
            import resource
            import signal

            store = MessageStore(folder, config, counter=counter)
            store.add_message("user", "task")
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
            before = store.messages_path.read_bytes(), store.current_path.read_bytes()
            try:
                # messages.jsonl goes over the limit; its record is larger than the line of the view
                store.add_message("assistant", "x" * 800)
                store.add_message("assistant", "x" * 2000)
            except DiskError:
                after = store.messages_path.read_bytes(), store.current_path.read_bytes()
                code = 0 if len(after[0].splitlines()) == len(after[1].splitlines()) else 2
                code = code or (0 if after[0].startswith(before[0]) and after[0].endswith(b"\n") else 3)
                count = store.count_messages()
                store.add_message("assistant", "y")
                code = code or (0 if store.count_messages() == count + 1 else 4)
                code = code or (0 if MessageStore(folder, config, counter=counter).repairs == [] else 5)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_nothing_is_added_to_a_closed_store(store):
    store.add_message("user", "task")
    store.close()
    with pytest.raises(ContextError):
        store.add_message("assistant", "x")


def test_memory_does_not_grow_with_the_history(tmp_path):
    code = """
import resource, sys
from agent.context import MessageStore
class One:
    name = "one"; exact = True
    def count(self, text): return 1
config = {"context_storage": {"base_dir": sys.argv[1], "durability": "none"},
          "llm": {"provider": "openai", "openai": {"model": "m", "context_length": 1000, "api_key": "k"}}}
def work(count):
    store = MessageStore(sys.argv[1], config, counter=One())
    for number in range(count // 2):
        store.add_message("assistant", None, tool_calls=[{"id": f"call_{number}", "name": "f", "arguments": {}}])
        store.add_message("tool", "x" * 16000)
    store.compact(strategy="mask", end_seq=10)
    store.close()
    MessageStore(sys.argv[1], config, counter=One()).close()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
first = work(64)
print(work(2000) - first)
"""
    (tmp_path / "m").mkdir()
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 2048  # KiB; the history is 16 MB
