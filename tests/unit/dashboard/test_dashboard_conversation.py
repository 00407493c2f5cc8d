"""Parts of a conversation: the records of other files that are shown beside its messages."""

import json

from agent.dashboard import conversation, file_window, task_parts


def test_a_compaction_is_shown_only_where_it_was_made(tmp_path):
    messages = [{"seq": seq, "role": "user", "content": str(seq)} for seq in range(1, 121)]
    messages[99] = {"seq": 100, "role": "assistant", "tool_calls": [{"id": "a"}]}
    messages[100] = {"seq": 101, "role": "tool", "tool_call_id": "a", "content": "found"}
    compactions = [{"id": 1, "at_seq": 101, "strategy": "summary"}]
    for name, records in (("messages.jsonl", messages), ("compactions.jsonl", compactions)):
        (tmp_path / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def places(shown):
        return [one["seq"] for one in shown["entries"] if one.get("compactions")]

    assert places(conversation.part(tmp_path, start=1)) == []
    assert places(conversation.part(tmp_path)) == [100]
    assert places(conversation.part(tmp_path, before=102)) == [100]
    assert not conversation.message(tmp_path, 5)["entry"]["compactions"]


def test_lines_that_are_too_long_to_be_shown_can_be_paged_past(tmp_path, monkeypatch):
    monkeypatch.setattr(file_window, "LONGEST_LINE", 10_000)
    monkeypatch.setattr(file_window, "MOST_BYTES", 40_000)
    texts = {seq: "x" * 15_000 if 10 < seq <= 40 else "short" for seq in range(1, 121)}
    for name in ("messages.jsonl", "requests.jsonl"):
        lines = [json.dumps({"seq": seq, "role": "user", "content": text}) for seq, text in texts.items()]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    shown, seen = conversation.part(tmp_path), []
    while True:
        seen = [one["seq"] for one in shown["entries"]] + seen
        if not shown["has_older"]:
            break
        shown = conversation.part(tmp_path, before=shown["first"])
    assert seen == [*range(1, 11), *range(41, 121)]
    assert any("too long to be shown" in one for one in shown["damage"])
    forward = conversation.part(tmp_path, start=11)
    assert [one["seq"] for one in forward["entries"]] == list(range(41, 41 + len(forward["entries"]))) != []
    listed = task_parts.requests(tmp_path, 41)
    assert [one["seq"] for one in listed["records"]] == list(range(10, 0, -1))
