"""Anthropic's prompt cache: each request reads what the one before it wrote, also after a restart.

The server (`prompt_cache.py`) keeps prefixes and looks back as the real one does.  Positions are counted block by block
here, as platforms beside the Claude API do, unless a test says otherwise.
"""

import io
from itertools import pairwise

import pytest
from dialect_server import KEY, DialectServer, Say
from length import either
from llm_servers import TOOL, client_for, config_for
from PIL import Image
from prompt_cache import LOOKBACK, PromptCache, marked

from agent.config import settings_of
from agent.window import make_window

SYSTEM = "Be careful with money. " * 200
TASK = "Fix the totals of the invoices. " * 200


class Talk:
    """A conversation with a server that has a cache; `again` is another process on the same files."""

    def __init__(self, folder, play, *, cache=None, thinks=False, **keys):
        self.folder, self.keys = folder, keys
        self.cache = cache or PromptCache()
        self.server = DialectServer("anthropic", play, window=10**9, thinks=thinks, cache=self.cache)
        self.server.__enter__()
        self.client = None
        self.again()
        self.store.add_message("system", SYSTEM, kind="system")

    def again(self):
        if self.client is not None:
            self.client.close()
            self.store.close()
        self.client, self.store = client_for(
            "anthropic", self.server.url, self.folder, tools=[TOOL], api_key=KEY, **self.keys
        )

    def turn(self, plan=None):
        text, calls = self.client.get_response(plan)
        for number, call in enumerate(calls):
            self.store.add_message("tool", f"line {number} of a file\n" * 20, tool_call_id=call["id"])
        if not calls:
            self.store.add_message("user", "Go on.", kind="nudge")
        return text

    def close(self):
        self.client.close()
        self.store.close()
        self.server.__exit__()


@pytest.fixture
def talk(tmp_path):
    made = []

    def start(play, **more):
        made.append(Talk(tmp_path, play, **more))
        return made[-1]

    yield start
    for one in made:
        one.close()


def calls(count):
    return lambda _messages, number: Say("", tuple(("read_file", {"path": f"{number}-{n}.py"}) for n in range(count)))


def missed(asked):
    """Numbers of requests, from 1, that did not read all that the one before them had in the cache."""
    return [number for number, (one, two) in enumerate(pairwise(asked), 2) if two.read < one.read + one.written]


def check_marks(server):
    assert not server.refused
    assert all(len(list(marked(body))) <= 4 for body in server.taken)


@pytest.mark.parametrize(
    ("count", "runs"), either([(1, False), (30, True)], [(n, runs) for n in (1, 10, 30) for runs in (False, True)])
)
def test_every_request_of_a_tool_loop_reads_what_the_one_before_wrote(talk, count, runs):
    one = talk(calls(count), cache=PromptCache(runs=runs))
    one.store.add_message("user", TASK, kind="task")
    for number in range(43):
        if number in (7, 20):
            one.again()
        one.turn()
    assert len(one.cache.asked) == 43
    assert missed(one.cache.asked) == []
    assert all(two.rest == 0 for two in one.cache.asked)
    check_marks(one.server)


def test_one_mark_alone_would_miss(talk):
    """The server looks back as far as it should: without the mark of the request before, ten calls are too many."""
    one = talk(calls(10))
    one.store.add_message("user", TASK, kind="task")
    for _ in range(5):
        one.turn()
    alone = PromptCache()
    for body in one.server.taken:
        *others, (_, last) = list(marked(body))
        for where, block in others:
            if where.startswith("messages"):
                del block["cache_control"]
        assert "cache_control" in last
        alone.take(body)
    assert missed(alone.asked) == [2, 3, 4, 5]
    steps = [two.positions - one.positions for one, two in pairwise(alone.asked)]
    assert all(step >= LOOKBACK for step in steps)


def test_a_plain_conversation_reads_it_too(talk):
    one = talk(lambda _messages, number: Say(f"Thought {number}."))
    one.store.add_message("user", TASK, kind="task")
    for _ in range(12):
        one.turn()
    assert missed(one.cache.asked) == []
    check_marks(one.server)


def test_many_words_of_people_between_two_requests_do_not_push_the_entry_out(talk):
    one = talk(calls(1))
    one.store.add_message("user", TASK, kind="task")
    for number in range(4):
        one.turn()
        for comment in range(25 if number == 2 else 0):
            one.store.add_message("user", f"Comment {comment}.", kind="comment")
    assert missed(one.cache.asked) == []
    check_marks(one.server)


@pytest.mark.parametrize("keeps_thinking", [True, False])
def test_thinking_is_never_marked_and_read_with_the_rest(talk, keeps_thinking):
    one = talk(calls(10), thinks=True, cache=PromptCache(keeps_thinking=keeps_thinking))
    one.store.add_message("user", TASK, kind="task")
    for _ in range(6):
        one.turn()
    one.store.add_message("user", "Hurry.", kind="comment")
    for _ in range(3):
        one.turn()
    # Where the model's server drops older thinking at a person's word, that request finds the head alone.
    assert missed(one.cache.asked) == ([] if keeps_thinking else [7])
    assert one.cache.asked[6].read > 0
    check_marks(one.server)


def test_tools_in_the_text(talk):
    one = talk(lambda _messages, number: Say(f"I think of {number}."), tool_calls="text")
    one.store.add_message("user", TASK, kind="task")
    for _ in range(12):
        one.turn()
    assert "tools" not in one.server.taken[0]
    assert missed(one.cache.asked) == []
    check_marks(one.server)


def picture(folder, name):
    folder.mkdir(exist_ok=True)
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(out, "PNG")
    (folder / name).write_bytes(out.getvalue())
    return {"file": f"images/{name}", "media_type": "image/png", "width": 40, "height": 30, "tokens": 87}


def test_pictures_of_the_issue_and_one_that_comes_later(talk, tmp_path):
    one = talk(calls(10))
    first, second, late = (picture(tmp_path / "images", f"000{number}.png") for number in (1, 2, 3))
    one.store.add_message("user", TASK, kind="task", images=(first, second))
    for _ in range(5):
        one.turn()
    one.store.add_message("user", "And this one.", kind="comment", images=(late,))
    for _ in range(5):
        one.turn()
    assert missed(one.cache.asked) == [6]  # a picture more changes every message for the server, not tools and system
    assert one.cache.asked[5].read > 0
    check_marks(one.server)


class Files:
    """As much of a task as a window needs."""

    def __init__(self, store):
        self.store = store

    def get_message_store(self):
        return self.store

    def get_summary_store(self):
        return self.store.summaries


@pytest.mark.parametrize("strategy", ["hybrid", "mask", "summary", "sliding_window"])
def test_behind_a_compaction_the_head_is_read_and_then_everything_again(talk, tmp_path, strategy):
    def play(messages, number):
        if len(messages) == 1 and number > 1:
            return Say("Read many files and noted their lines; the totals of the invoices are still to be fixed.")
        return calls(10)(messages, number)

    one = talk(play, context_length=16_384)
    keys = config_for("anthropic", one.server.url, context_length=16_384, api_key=KEY)
    settings = settings_of(keys | {"context_storage": {"strategy": strategy}})
    one.store.add_message("user", TASK, kind="task")
    changed = []
    window = make_window(settings, Files(one.store), one.client)
    for number in range(43):
        if number in (9, 21):
            one.again()
            window = make_window(settings, Files(one.store), one.client)
        before = one.store.index.cut.count
        plan = window.plan()
        if window.needs_compaction():
            window.compact()
            plan = window.plan()
        if one.store.index.cut.count > before:
            changed.append(number)
        one.turn(plan)
    told = [
        counted for body, counted in zip(one.server.taken, one.cache.asked, strict=True) if list(marked(body))
    ]  # a summary is asked once and has no mark
    assert len(told) == 43
    assert len(changed) >= 3
    assert [number - 1 for number in missed(told)] == changed
    head = told[0].written
    assert all(told[number].read >= head for number in changed)  # tools, system prompt and briefing
    check_marks(one.server)
