"""What people read with sqlite3, jq and tail holds nothing that a terminal obeys, and says the same to a program."""

import orjson
import pytest

from agent.store.text import dumps, line
from agent.taskqueue.ledger import open_sqlite
from agent.values import TaskKey

HOSTILE = "a\x9b31mb\x7fc\u202ed\x1b[2Je\u2066f 日本語 👍"


@pytest.mark.parametrize("write", [dumps, line])
def test_json_has_no_control_character_and_the_same_value(write):
    data = write({"content": HOSTILE, HOSTILE: 1})
    assert orjson.loads(data) == {"content": HOSTILE, HOSTILE: 1}
    text = data.decode().rstrip("\n")
    assert text.isprintable()
    assert "日本語 👍" in text


def test_a_title_in_the_ledger_can_be_printed(tmp_path):
    ledger = open_sqlite(tmp_path)
    uuid = ledger.put(TaskKey("local", "o", "r", "issue", "1"), title=HOSTILE)
    assert ledger.get(uuid).title == "abcde" + "f 日本語 👍"
