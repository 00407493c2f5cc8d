"""What people read with sqlite3, jq and tail holds nothing that a terminal obeys, and says the same to a program."""

from contextlib import closing
from uuid import uuid4

import orjson
import pytest

from agent.config import Settings, settings_of
from agent.context import MessageStore, TaskContextManager
from agent.intake.restore_rows import restore_rows
from agent.memory import MemoryStore
from agent.store import db
from agent.store.storable_text import dumps, line
from agent.taskqueue.sqlite import SqliteLedger
from agent.values import TaskKey
from agent.wiring.wiring import Wiring

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


def test_what_the_worker_writes_into_its_row_can_be_printed(tmp_path):
    settings = settings_of({"context_storage": {"base_dir": str(tmp_path)}})
    key = {"task_source": "local", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
    context = TaskContextManager(key, str(uuid4()), settings, user="alice", title=HOSTILE)
    context.set_columns(title=f"{HOSTILE} (edited)")
    context.fail(f"a server says {HOSTILE}", "error")
    with closing(db.module().connect(tmp_path / "tasks.db")) as database:
        ((title, message),) = database.execute("SELECT title, error_message FROM tasks").fetchall()
        texts = [value for row in database.execute("SELECT * FROM tasks") for value in row if isinstance(value, str)]
    assert title == "abcdef 日本語 👍 (edited)"
    assert message == "a server says abcdef 日本語 👍"
    assert [text for text in texts if not text.isprintable()] == []


def test_a_row_that_is_made_again_from_its_folder_can_be_printed(tmp_path):
    settings = settings_of({"context_storage": {"base_dir": str(tmp_path)}})
    key = {"task_source": "local", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
    context = TaskContextManager(key, str(uuid4()), settings, user="alice", title=HOSTILE)
    context.fail(f"a server says {HOSTILE}", "error")
    for name in ("tasks.db", "tasks.db-wal", "tasks.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    with closing(Wiring(settings)) as wiring:
        assert restore_rows(wiring) == 1
        (row,) = wiring.ledger.list()
    assert row.title.isprintable()
    assert row.error_message.isprintable()


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
