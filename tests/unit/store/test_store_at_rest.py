"""What people read with sqlite3, jq and tail holds nothing that a terminal obeys, and says the same to a program."""

from contextlib import closing

import orjson
import pytest

from agent.config import Settings, settings_of
from agent.context import MessageStore
from agent.memory import MemoryStore
from agent.store import db
from agent.store.storable_text import dumps, line
from agent.taskqueue.sqlite import SqliteLedger
from agent.values import TaskKey

HOSTILE = "a\x9b31mb\x7fc\u202ed\x1b[2Je\u2066f 日本語 👍"


@pytest.mark.parametrize("write", [dumps, line])
def test_json_has_no_control_character_and_the_same_value(write):
    data = write({"content": HOSTILE, HOSTILE: 1})
    assert orjson.loads(data) == {"content": HOSTILE, HOSTILE: 1}
    text = data.decode().rstrip("\n")
    assert text.isprintable()
    assert "日本語 👍" in text


def test_a_message_and_its_line_in_the_view_can_be_printed(tmp_path):
    settings = settings_of({"llm": {"provider": "ollama", "ollama": {"model": "m"}}})
    store = MessageStore(tmp_path, settings)
    store.add_message("user", HOSTILE)
    store.close()
    for name in ("messages.jsonl", "current.jsonl"):
        data = (tmp_path / name).read_text()
        assert orjson.loads(data)["content"] == HOSTILE
        assert data.rstrip("\n").isprintable()


def test_a_title_in_the_ledger_can_be_printed(tmp_path):
    ledger = SqliteLedger(tmp_path)
    uuid = ledger.enqueue(TaskKey("local", "o", "r", "issue", "1"), title=HOSTILE)
    assert ledger.get(uuid).title == "abcde" + "f 日本語 👍"


def test_what_memory_remembers_can_be_printed(tmp_path):
    memory = MemoryStore(tmp_path, Settings().memory)
    event = memory.create_event("a", "s", HOSTILE, source=HOSTILE, metadata={HOSTILE: HOSTILE})
    memory.create_memory_record(
        "/facts/a/", HOSTILE, strategy="facts", title=HOSTILE, event_ids=(event,), files=(HOSTILE,)
    )
    memory.close()
    with closing(db.module().connect(tmp_path / "memory.db")) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        texts = [
            value
            for name in names
            for row in database.execute(f"SELECT * FROM {name}")
            for value in row
            if isinstance(value, str)
        ]
    assert any("日本語 👍" in text for text in texts)
    assert [text for text in texts if not text.replace("\n", "").isprintable()] == []
