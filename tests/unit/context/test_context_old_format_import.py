"""A folder in the form of the specification's own examples opens and goes on."""

import orjson
import pytest

from agent.context import TaskContextManager
from agent.llm.request_lines import Lines
from agent.values import Span

UUID = "550e8400-e29b-41d4-a716-446655440000"

METADATA = {
    "uuid": UUID,
    "created_at": "2024-01-15T10:30:00.123456Z",
    "process_id": 12345,
    "hostname": "worker-node-1",
    "config": {
        "llm_provider": "openai",
        "model": "gpt-4o",
        "context_length": 128000,
        "compression_threshold": 0.7,
    },
    "user": "notfolder",
}
MESSAGES = [
    {"role": "system", "content": "You are an AI...", "tokens": 250},
    {"role": "user", "content": "Fix the bug...", "tokens": 120},
    {"role": "assistant", "content": "I'll help...", "tokens": 450},
    {"role": "tool", "tool_name": "github_get_file", "content": "{...}", "tokens": 1200},
    {"role": "tool", "tool_name": "github_search", "content": "none", "tokens": 3},
    {"role": "user", "content": "And the other one.", "tokens": 9},
    {"role": "tool", "tool_name": "stray", "content": "of nobody", "tokens": 3},
    {"role": "assistant", "content": "Done.", "tokens": 4},
]


@pytest.mark.parametrize("end", [b"\n", b""])
def test_it_opens_and_goes_on_without_loss(tmp_path, config, counter, key, end):
    folder = tmp_path / "contexts" / "running" / UUID
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_bytes(orjson.dumps({**METADATA, "task_key": key}))
    stamped = [{"seq": n, "timestamp": "2024-01-15T10:30:01Z", **one} for n, one in enumerate(MESSAGES, 1)]
    raw = b"\n".join(orjson.dumps(one) for one in stamped) + end
    (folder / "messages.jsonl").write_bytes(raw)
    (folder / "tools.jsonl").write_bytes(
        orjson.dumps({"seq": 1, "tool": "github_get_file", "args": {"path": "a.py"}, "result": "{...}"}) + b"\n"
    )
    for _ in range(2):  # the second opening finds our own form
        with TaskContextManager(key, UUID, config, counter=counter) as task:
            assert task.resumed
            assert task.metadata["created_at"] == METADATA["created_at"]
            assert len(task.fence) == 24
            store = task.get_message_store()
            assert not [repair for repair in task.repairs if "skipped" in repair or "no result" in repair]
            view = [orjson.loads(line) for line in store.get_current_context_file().read_bytes().splitlines()]
            assert [one["role"] for one in view[:5]] == ["system", "user", "assistant", "tool", "tool"]
            calls = [(one["function"]["name"], one["function"]["arguments"]) for one in view[2]["tool_calls"]]
            assert calls == [("github_get_file", '{"path":"a.py"}'), ("github_search", "{}")]
            assert view[6] == {"role": "user", "content": "Result of stray:\nof nobody"}
            store.add_message("user", "go on")
            Lines().check((Span(store.current_path),))  # legal on the wire
    assert (folder / "messages.jsonl.before").read_bytes() == raw
    assert not (folder / "metadata.json.broken").exists()
    records = [orjson.loads(line) for line in (folder / "messages.jsonl").read_bytes().splitlines()]
    assert [record["seq"] for record in records] == [*range(1, 11)]
