"""A recording instead of a model: position, restart, summaries, the end."""

import json

import pytest

from agent.config import settings_of
from agent.context import MessageStore
from agent.errors import ConfigError, RequestRefused
from agent.llm import make_client
from agent.llm.recorded_answers import Recording, RecordingReader
from agent.llm.replay import serve

ANSWERS = [
    {"seq": 1, "role": "system", "content": "s"},
    {"seq": 2, "role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}], "finish_reason": "tool_calls", "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 1}},
    {"seq": 3, "role": "tool", "content": "r", "tool_call_id": "call_1"},
    {"seq": 4, "role": "assistant", "content": "the first summary", "kind": "summary"},
    {"seq": 5, "role": "assistant", "content": None, "tool_calls": [{"id": "call_2", "type": "function", "invalid": "{bad", "function": {"name": "f", "arguments": "{}"}}]},
    {"seq": 6, "role": "assistant", "content": "done", "finish_reason": "stop"},
]  # fmt: skip


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "recorded.jsonl"
    path.write_text("".join(json.dumps(answer) + "\n" for answer in ANSWERS) + '{"seq": 7, "role": "assist')
    return path


@pytest.fixture
def start(tmp_path, recorded):
    made = []
    folder = tmp_path / "task"
    folder.mkdir()
    settings = settings_of({"llm": {"provider": "replay", "replay": {"messages": str(recorded)}}})

    def open_it():
        store = MessageStore(folder, settings)
        client = make_client(settings, store, folder)
        made.append((client, store))
        return client, store

    yield open_it
    for client, store in made:
        client.close()
        store.close()


def test_the_answers_come_in_order_with_their_usage_and_calls(start):
    client, store = start()
    store.add_message("user", "u")
    assert client.get_response() == ("", [{"id": "call_1", "name": "f", "arguments": {"a": 1}}])
    assert (client.last.usage.prompt, client.last.usage.cached) == (9, 1)
    client.send_function_result("f", "r")
    _, (call,) = client.get_response()
    assert call["invalid"] == "{bad"
    client.send_function_result("f", "not run")
    assert client.get_response() == ("done", [])


def test_a_restart_goes_on_where_it_was(start):
    client, store = start()
    store.add_message("user", "u")
    client.get_response()
    client.send_function_result("f", "r")
    client.close()
    store.close()
    client, store = start()
    _, (call,) = client.get_response()
    assert call["invalid"] == "{bad"


def test_a_compaction_does_not_lose_the_place(start):
    client, store = start()
    store.add_message("user", "u")
    client.get_response()
    client.send_function_result("f", "r")
    path = store.context_dir / "summary_request.txt"
    path.write_text("summarise")
    summary = client.get_summary(path)
    assert summary == "the first summary"
    store.compact(strategy="summary", end_seq=store.last_seq, summary=summary, summary_tokens=4)
    _, (call,) = client.get_response()
    assert call["invalid"] == "{bad"
    with pytest.raises(RequestRefused, match="1 summaries"):
        client.get_summary(path)


def test_the_end_of_the_recording_is_said_with_both_numbers(start):
    client, store = start()
    store.add_message("user", "u")
    for _ in range(3):
        _, calls = client.get_response()
        for call in calls:
            store.add_message("tool", "r", tool_call_id=call["id"])
    store.add_message("user", "and now?")
    with pytest.raises(RequestRefused, match="is over: it has 3 answers, and number 4") as refused:
        client.get_response()
    assert "more answers than were recorded" in str(refused.value)
    assert "server" not in str(refused.value)
    assert not refused.value.unexplained


def test_it_says_what_it_is(start, recorded):
    client, _ = start()
    assert client.describe() == f"replay of {recorded}"
    assert client.check().ok
    assert client.loaded_window() is None


def test_without_a_recording_the_key_is_named(tmp_path):
    settings = settings_of({"llm": {"provider": "replay"}})
    client = make_client(settings, MessageStore(tmp_path, settings), tmp_path)
    with pytest.raises(ConfigError, match=r"llm\.replay\.messages"):
        client.describe()
    assert not client.check().ok


def test_a_recording_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.jsonl"):
        Recording(tmp_path / "nothing.jsonl")


def test_the_server_can_be_used_alone_and_waits_as_told():
    from agent import clock

    with clock.use(clock.FakeClock()) as fake, serve(ANSWERS, latency=2.5) as server:
        import urllib.request

        body = json.dumps({"messages": [{"role": "user", "content": "u"}]}).encode()
        with urllib.request.urlopen(
            urllib.request.Request(f"{server.url}/v1/chat/completions", body), timeout=10
        ) as answer:
            assert json.loads(answer.read())["choices"][0]["message"]["tool_calls"][0]["id"] == "call_1"
        assert fake.slept == [2.5]
        assert server.requests == 1
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{server.url}/elsewhere", timeout=10)


def test_progress_reads_each_byte_once(recorded):
    progress = RecordingReader(recorded)
    progress.read_new()
    assert progress.counts == {"answer": 3, "summary": 1}
    with recorded.open("r+b") as file:
        file.write(b"?" * 100)
        file.seek(0, 2)
        file.write(b'ant", "content": "x"}\n')
    progress.read_new()
    assert progress.counts == {"answer": 4, "summary": 1}
