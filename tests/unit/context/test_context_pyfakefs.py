"""Stores and configuration on pyfakefs, the file system in memory that people use who embed them in tests of their own.

The ledger is not among them: SQLite opens its file by itself.
"""

from pathlib import Path

import orjson
import pytest
from tests_context import Characters

from agent.config import load, settings_of
from agent.context import MessageStore, ToolStore, projection
from agent.errors import ConfigError

fake_filesystem_unittest = pytest.importorskip("pyfakefs.fake_filesystem_unittest")


@pytest.fixture
def fake(config):  # made before, in a folder that is really there
    """The file system."""
    with fake_filesystem_unittest.Patcher() as patcher:
        yield patcher.fs


@pytest.fixture
def folder(fake):
    fake.create_dir("/contexts/running/task")
    return Path("/contexts/running/task")


def lines(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("durability", ["none", "turn"])
def test_messages_a_compaction_and_a_reopening(folder, config, durability):
    config["context_storage"]["durability"] = durability
    call = {"id": "call_1", "name": "read_file", "arguments": {"path": "a.py"}}

    def opened():
        tools = ToolStore(folder, durability=durability)
        return MessageStore(folder, config, counter=Characters(), tools=tools)

    store = opened()
    store.add_message("system", "Be careful.")
    store.add_message("user", "Fix it.")
    store.add_message("assistant", "I read.", tool_calls=[call])
    store.add_message("tool", "the file", tool_call_id="call_1", tool_name="read_file")
    store.add_message("assistant", "It is fixed.")
    store.compact(strategy="summary", end_seq=4, summary="The file was read.", summary_tokens=5)
    store.sync()
    before = store.current_path.read_bytes()
    store.close()
    assert [one["role"] for one in lines(store.messages_path)][:5] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [one["summary"] for one in lines(folder / "summaries.jsonl")] == ["The file was read."]
    assert before == b"".join(data for data, _ in projection.lines(folder))

    again = opened()
    assert (again.repairs, again.current_path.read_bytes()) == ([], before)
    again.close()


def test_a_torn_line_is_put_aside_and_an_open_call_is_answered(folder, config):
    store = MessageStore(folder, config, counter=Characters())
    store.add_message("user", "Fix it.")
    store.add_message("assistant", "", tool_calls=[{"id": "call_1", "name": "read_file", "arguments": {}}])
    store.close()
    with store.messages_path.open("ab") as file:
        file.write(b'{"seq":3,"ro')
    again = MessageStore(folder, config, counter=Characters())
    assert [one["role"] for one in lines(again.messages_path)] == ["user", "assistant", "tool"]
    assert "interrupted" in lines(again.messages_path)[-1]["content"]
    assert len(again.repairs) > 0
    again.close()


def test_a_configuration_file_and_paths_that_count_from_its_folder(fake):
    text = "task_sources: [local]\nlocal: {tracker: tracker, repos: {default: repo}}\nllm: {provider: ollama}\n"
    fake.create_file("/home/me/config.yaml", contents=text)
    fake.create_dir("/home/me/repo")
    settings = load(Path("/home/me/config.yaml"), environ={})
    assert str(settings.base_dir) == "/home/me/contexts"
    fake.create_file("/home/me/wrong.yaml", contents=text + "lmm: {}\n")
    with pytest.raises(ConfigError, match="lmm"):
        load(Path("/home/me/wrong.yaml"), environ={})


def test_a_mapping_counts_from_the_folder_that_one_is_in(fake, config):
    fake.create_dir("/somewhere")
    fake.cwd = "/somewhere"
    del config["context_storage"]["base_dir"]
    assert str(settings_of(config).base_dir) == "/somewhere/contexts"
