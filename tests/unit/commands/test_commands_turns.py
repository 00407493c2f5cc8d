"""The last turns of a task are read from the ends of its files."""

import orjson

from agent.commands.turns import last_turns
from agent.store.jsonl import FIRST_TAIL


def test_of_outside_effects_those_that_people_can_look_at_are_shown(tmp_path):
    names = (
        ("row", {"url": "file:///pulls/1.md"}),
        ("pull", {"url": "file:///pulls/1.md"}),
        ("final", {"id": "2"}),
        ("reports", {}),
    )
    effects = [
        {"seq": seq, "name": name, "state": "receipt", "receipt": receipt}
        for seq, (name, receipt) in enumerate(names, start=1)
    ]
    (tmp_path / "effects.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in effects))
    assert [one.text for one in last_turns(tmp_path).items] == ["pull: file:///pulls/1.md", "final: comment 2"]


def test_turns_without_calls_read_the_end_of_the_calls_alone(tmp_path):
    """The beginning of tools.jsonl is not even looked at: its damaged line is not reported."""
    said = [{"seq": number, "role": "assistant", "content": "Hm."} for number in range(1, 40)]
    (tmp_path / "messages.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in said))
    ended = {"seq": 2, "tool": "finish", "status": "success", "args": {"summary": "It is done."}}
    (tmp_path / "tools.jsonl").write_bytes(b"{damaged\n" + b" " * FIRST_TAIL + b"\n" + orjson.dumps(ended) + b"\n")
    found = last_turns(tmp_path)
    assert len(found.items) == 20
    assert (found.closing, found.notes) == ("It is done.", ())
