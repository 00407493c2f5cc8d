"""Tasks of models that think, over HTTP: what was thought is not in the next prompt, and not in use."""

import pytest
from strict_server import StrictServer
from talking import talks
from template_server import TemplateServer

READ = ("", [("read_file", {"path": "a.py"})])


@pytest.fixture
def talk(tmp_path):
    with talks(tmp_path / "contexts") as start:
        yield start


def test_a_spike_of_thinking_on_openais_wire_compacts_nothing(talk):
    """25,000 tokens of thinking on a window of 32,768, with prompts of some thousand tokens."""
    server = StrictServer(32_768, lambda _messages, _number: READ, thinks=lambda number: 25_000 if number < 3 else 0)
    task = talk("openai", server, context_length=32_768)
    for _ in range(4):
        task.turn("line of the file\n" * 100)
        assert not task.window.needs_compaction()
        true = server.counts[-1]
        assert task.window.assembler.tokens_in_use() < true + 800
    assert server.refused == []
    assert task.heard.named("compaction") == task.heard.named("window_learnt") == []
    task.restart()
    assert task.window.assembler.tokens_in_use() < server.counts[-1] + 800
    assert task.store.totals().completion > 75_000, "what it costs is another matter"


def test_a_model_without_tool_calls_that_thinks(talk):
    """Ollama shows the thoughts beside the text, and counts them with it; the template writes none of them again."""
    server = TemplateServer("ollama", [READ] * 5, window=32_768, thought=4000)
    task = talk("ollama", server, context_length=32_768)
    for _ in range(5):
        task.turn("line of the file\n" * 40)
    assert server.refusals == []
    assert task.store.index.form == "text"
    assert task.store.totals().completion > 20_000
    assert task.window.assembler.tokens_in_use() < server.counts[-1] + 1500
    assert task.heard.named("compaction") == task.heard.named("window_learnt") == []
