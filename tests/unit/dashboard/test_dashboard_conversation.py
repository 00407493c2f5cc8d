"""Parts of a conversation: the records of other files that are shown beside its messages."""

import json

from agent.dashboard import conversation


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
