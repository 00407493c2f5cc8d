"""Servers that count the longest answer that was asked for into their window, and have less loaded than is configured,
over HTTP (OpenHands/OpenHands#9937: "7884 of text input, 131072 in the output", refused for ever)."""

import json
from dataclasses import replace
from functools import partial

import pytest
from llm_servers import Reply, Script, says
from strict_server import StrictServer
from talking import talks

from agent.config import settings_of
from agent.tokens import MemoryRatios
from agent.window import make_window

READ = ("", [("read_file", {"path": "a.py"})])
LOADED = 8192


def strict(**more):
    return StrictServer(LOADED, lambda _messages, _number: READ, **more)


@pytest.fixture
def talk(tmp_path):
    with talks(tmp_path / "contexts") as start:
        yield partial(start, "openai", context_length=131_072)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_the_first_request_is_sent_again_with_room_for_a_shorter_answer(talk, factor):
    """Nothing of the conversation is in the way, so nothing of it is touched; and the window is the server's, not less."""
    server = strict(factor=factor)
    task = talk(server, issue="one line of the issue that tells a lot\n" * 60)
    task.turn()
    assert [why for why, _ in server.refused] == ["length"]
    assert task.heard.named("compaction") == []
    assert [one["window"] for one in task.heard.named("window_learnt")] == [pytest.approx(LOADED, rel=0.02)]
    for _ in range(3):
        task.turn("line of the file\n" * 40)
    assert len(server.refused) == 1


def test_a_refusal_without_numbers_is_met_by_a_shorter_answer_where_that_was_the_larger_part(talk):
    asked = []

    def reply(request):
        asked.append(request.json.get("max_completion_tokens") or request.json["max_tokens"])
        if asked[-1] > 4000:
            return Reply({"error": {"message": "Please reduce the length of the messages or completion."}}, 400)
        return says("openai", "Done.", usage=(900, 3))

    task = talk(Script(reply))
    assert task.turn("go on")[0] == "Done."
    assert len(asked) == 2
    assert task.window.limits.window >= LOADED // 2


@pytest.mark.parametrize("restart", [False, True])
def test_a_summary_asks_for_no_longer_answer_than_the_window_has_room_for(talk, restart):
    """The window that an error taught holds for summaries too, and in the process that takes the task up."""
    server = strict()
    server.window = 32_768
    task = talk(server, context_length=32_768)
    task.config["context_storage"]["strategy"] = "summary"
    task.restart()
    while task.store.tokens_in_use() < 9000:
        task.turn("line of the file\n" * 150)
    server.window = LOADED
    task.turn()
    if restart:
        task.restart()
    for _ in range(30):
        task.turn("line of the file\n" * 60)
    assert len(server.refused) == 1, "only the turn that found out"
    assert server.summaries
    lines = (task.context.context_dir / "compactions.jsonl").read_text().splitlines()
    assert {json.loads(line)["strategy"] for line in lines} == {"summary"}


def test_a_summariser_of_its_own_with_less_room_than_is_configured_is_asked_for_less(talk):
    """Only the refusal tells that its window is small: pieces and answer become smaller together."""
    other = strict()
    task = talk(strict(), context_length=LOADED)
    task.config["llm"]["lmstudio"] = {"model": "small", "base_url": other.url, "context_length": 65_536}
    storage = task.config["context_storage"]
    storage |= {"strategy": "summary", "summary_model": {"provider": "lmstudio", "model": "small"}}
    task.restart()
    for _ in range(30):
        task.turn("line of the file\n" * 60)
    assert other.summaries
    assert [one["strategy"] for one in task.heard.named("compaction")][:1] == ["summary"]
    other.close()


@pytest.mark.parametrize("reports", [True, False])
def test_the_first_request_to_a_summariser_that_nobody_knows_fits_its_window(talk, reports, tmp_path):
    """Its server counts 1.7 times as much as is estimated: nothing is refused, and its reports teach how it counts."""
    other = strict(factor=1.7)
    other.window = 6144
    task = talk(strict(), context_length=32_768)
    task.server.window = 32_768
    task.config["llm"]["lmstudio"] = {"model": "small", "base_url": other.url, "context_length": 6144}
    storage = task.config["context_storage"]
    storage |= {"strategy": "summary", "summary_model": {"provider": "lmstudio", "model": "small"}}
    task.restart()
    ratios = MemoryRatios()
    task.window = make_window(settings_of(task.config), task.context, task.loop.model, events=task.heard, ratios=ratios)
    task.loop.window = task.window
    if not reports:
        summariser = task.window.compressor.writer.client
        ask = summariser.get_summary

        def without(path):
            text = ask(path)
            summariser.summary = replace(summariser.summary, usage=None)
            return text

        summariser.get_summary = without
    while not task.heard.named("compaction"):
        task.turn("line of the file, and a word more of it\n" * 150)
        if task.window.needs_compaction():
            task.window.compact()
    assert [one["strategy"] for one in task.heard.named("compaction")] == ["summary"]
    assert other.refused == []
    assert other.summaries
    assert (ratios.get("small") > 1.4) is reports
    other.close()
