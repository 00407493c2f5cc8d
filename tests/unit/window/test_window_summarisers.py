"""A summariser that errs, says nothing, refuses, talks more than it read, or stops in the middle: over HTTP.

Nothing of what it said is kept anywhere, the history stays as it was, and the next means makes the room.
"""

import orjson
import pytest
from llm_servers import Reply, Script, openai_events, says

from agent import clock
from agent.config import settings_of
from agent.context import TaskContextManager
from agent.llm import make_client
from agent.values import Usage
from agent.window import make_window
from agent.window.summary import FILES

MARK = "ZXQ-FROM-THE-SUMMARISER"
KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "7"}


def longer(request):
    return says("openai", f"{MARK} " + request.json["messages"][-1]["content"] * 3)


WAYS = {
    "error 500": lambda _: Reply({"error": {"message": f"boom {MARK}"}}, 500),
    "error 400": lambda _: Reply({"error": {"message": f"not that {MARK}"}}, 400),
    "error under 200": lambda _: Reply({"error": {"message": f"broken {MARK}"}}, 200),
    "a web page": lambda _: Reply(f"<html>{MARK}</html>".encode(), 200, {"Content-Type": "text/html"}),
    "error as text": lambda _: says("openai", f"Error: {MARK} upstream timed out"),
    "empty": lambda _: says("openai", ""),
    "blanks": lambda _: says("openai", " \n\t "),
    "only thoughts": lambda _: says("openai", f"<think>{MARK} what to say</think>\n"),
    "a placeholder": lambda _: says("openai", "(no summary available)"),
    "a refusal": lambda _: says("openai", f"I'm sorry, but I can't help with that. {MARK}"),
    "a call": lambda _: says("openai", MARK, [{"id": "c", "name": "f", "arguments": {}}]),
    "cut at its limit": lambda _: says("openai", f"{MARK} The work so", finish="length"),
    "longer than its input": longer,
    "half a stream": lambda _: Reply(
        openai_events(f"{MARK} Read the files and changed")[:3], headers={"Content-Type": "text/event-stream"}, cut=True
    ),
    "too long for it": lambda _: Reply(
        {"error": {"message": f"maximum context length is 100 tokens {MARK}", "code": "context_length_exceeded"}}, 400
    ),
}


def fill(store, window):
    """Turns that read files, until the window says that it is time."""
    number = 0
    while not window.past_the_mark():
        number += 1
        calls = [{"id": f"c{number}", "name": "read_file", "arguments": {"path": f"f{number}.py"}}]
        store.add_message("assistant", f"Step {number}.", tool_calls=calls)
        store.add_message("tool", f"line {number} of the file\n" * 50, tool_call_id=f"c{number}")


@pytest.fixture
def task_of(tmp_path):
    opened = []

    def make(reply, **storage):
        server = Script(reply)
        storage = {"base_dir": str(tmp_path / "contexts"), "durability": "none", "strategy": "summary", **storage}
        llm = {"model": "m", "context_length": 8192, "base_url": server.url, "api_key": "k"}
        settings = settings_of({"context_storage": storage, "llm": {"provider": "openai", "openai": llm}})
        context = TaskContextManager(KEY, "u-1", settings)
        client = make_client(settings, context.get_message_store(), context.context_dir)
        opened.append((server, context, client))
        store = context.get_message_store()
        store.add_message("system", "You are careful.")
        store.add_message("user", "Fix the bug. RULE: never touch setup.py.")
        window = make_window(settings, context, client)
        fill(store, window)
        return server, context, window

    yield make
    for server, context, client in opened:
        client.close()
        context.close()
        server.close()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_bad_summary_is_kept_and_the_next_means_is_used(task_of, way, tmp_path):
    with clock.use(clock.FakeClock()):
        server, context, window = task_of(WAYS[way])
        folder = context.context_dir
        before = (folder / "messages.jsonl").read_bytes()
        window.compressor.compress(force=True)
    assert server.asked, "the summariser was asked"
    assert (folder / "messages.jsonl").read_bytes() == before, "history unchanged"
    summaries = folder / "summaries.jsonl"
    assert not summaries.exists() or summaries.read_bytes() == b""
    [compaction] = [orjson.loads(line) for line in (folder / "compactions.jsonl").read_bytes().splitlines()]
    assert compaction["strategy"] == "reset"
    assert compaction["summary_id"] is None
    for path in folder.rglob("*.jsonl"):
        assert MARK not in path.read_text()
    assert not [name for name in FILES if (folder / name).exists()]
    view = [orjson.loads(line) for line in (folder / "current.jsonl").read_bytes().splitlines()]
    assert view[1]["content"].endswith("RULE: never touch setup.py.")
    assert window.plan().tokens <= window.limits.compress_at


def test_a_cheaper_model_on_another_server_writes_the_summaries_in_pieces_of_its_own_window(tmp_path):
    """Its window, its wire and its name; the conversation's own model is not asked, and what it cost is counted."""
    said = "Read f1.py to f60.py; line numbers were looked at. Remaining: the tests."
    shown = {("POST", "/api/show"): Reply({"model_info": {"qwen3.context_length": 4096}})}
    with Script(says("openai", "not asked")) as talker, Script(says("ollama", said, usage=(900, 30)), routes=shown) as small:  # fmt: skip
        storage = {"base_dir": str(tmp_path / "contexts"), "durability": "none", "strategy": "summary"}
        storage["summary_model"] = {"provider": "ollama", "model": "small"}
        llm = {
            "provider": "openai",
            "openai": {"model": "m", "context_length": 32_768, "base_url": talker.url, "api_key": "k"},
            "ollama": {"model": "large", "context_length": 65_536, "base_url": small.url},
        }
        settings = settings_of({"context_storage": storage, "llm": llm})
        with TaskContextManager(KEY, "u-1", settings) as context:
            store = context.get_message_store()
            client = make_client(settings, store, context.context_dir)
            store.add_message("system", "You are careful.")
            store.add_message("user", "Fix the bug.")
            window = make_window(settings, context, client)
            fill(store, window)
            assert window.compressor.compress() == 1
            assert not window.past_the_mark()
            view = [orjson.loads(line) for line in store.get_current_context_file().read_bytes().splitlines()]
            client.close()
            window.compressor.llm_client.close()
            assert store.totals().usage == Usage(900 * len(small.asked), 30 * len(small.asked)), "each piece counts"
    assert view[2] == {"role": "assistant", "content": said}
    assert talker.asked == []
    assert len(small.asked) >= 4
    for request in small.asked:
        assert (request.path, request.json["model"]) == ("/api/chat", "small")
        assert request.json["options"]["num_ctx"] == 4096
        assert len(request.json["messages"][0]["content"]) < 4 * 4096
    assert "[SUMMARY SO FAR]: " + said in small.asked[-1].json["messages"][0]["content"]
