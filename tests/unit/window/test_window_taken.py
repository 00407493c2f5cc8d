"""A request that a server has answered is not refused by this program, over HTTP."""

import pytest
from dialect_rules import RULES
from dialect_server import KEY, DialectServer, Say
from strict_server import StrictServer
from talking import Talk, talks

from agent.errors import ContextOverflow
from agent.window import DoesNotFit

READ = ("", [("read_file", {"path": "a.py"})])
ISSUE = "one line of the issue that tells a lot\n" * 400  # about 3,600 tokens by our count


@pytest.fixture
def talk(tmp_path):
    with talks(tmp_path / "contexts") as start:

        def talk(window, **more):
            server = StrictServer(window, lambda _messages, _number: READ, **more)
            return start("openai", server, issue=ISSUE, context_length=8192), server

        yield talk


@pytest.mark.parametrize("factor", [1.9, 2.8])
def test_a_first_request_that_was_answered_is_followed_by_a_second(talk, factor):
    """Its report is over the limit of the input, or over all of the window that was believed in."""
    task, server = talk(65_536, factor=factor)
    task.turn("ok")
    assert server.counts[0] > task.window.limits.input_limit
    for number in range(5):
        task.turn("line of the file\n" * 20)
        if number == 2:
            task.restart()
    assert len(server.counts) == 6
    assert server.refused == []


@pytest.mark.parametrize("name", ["openai", "deepseek", "openrouter", "gemini", "vllm", "lmstudio", "anthropic"])
def test_a_request_that_was_answered_is_followed_by_more_on_each_wire(tmp_path, name):
    """These servers count a quarter of the characters of JSON in ASCII: Japanese has twice what is estimated."""
    rules = RULES[name]
    read = Say("", (("read_file", {"path": "a.py"}),))
    with DialectServer(name, lambda _messages, _number: read, window=65_536) as server:
        server.close = lambda: None
        issue = "合計は最後に一度だけ丸める。明細ごとに丸めると端数がずれていく。\n" * 160
        keys = {"dialect": name, "api_key": KEY, "context_length": 8192}
        task = Talk(tmp_path / "contexts", rules.provider, server, issue=issue, **keys)
        for number in range(6):
            task.turn("line of the file\n" * 20)
            assert task.loop.model.last.usage.prompt > task.window.limits.most
            if number == 2:
                task.restart()
        assert len(server.taken) == 6
        assert server.refused == []
        task.close()


def test_what_was_taken_counts_no_more_once_the_server_takes_less(talk):
    """A router that goes over to a smaller model: its refusal is the newest word, after a restart too."""
    task, server = talk(65_536, factor=2.8)
    for _ in range(3):
        task.turn("ok")
    server.window = 8192
    with pytest.raises(ContextOverflow):
        task.loop.query()
    asked = len(server.refused)
    assert asked
    for _ in range(2):
        with pytest.raises(DoesNotFit):
            task.loop.query()
        task.restart()
    assert len(server.refused) == asked, "nothing is sent any more that was refused for its length"
