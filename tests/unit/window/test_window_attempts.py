"""When a summary is asked for: where it would help, and not again and again when it did not; a restart changes
nothing."""

import pytest
from llm_servers import Script, says
from summaries import honest

from agent.config import settings_of
from agent.context import TaskContextManager
from agent.llm import make_client
from agent.window import make_window
from agent.window.summary_attempts import PAUSES, SummaryAttempts

KEY = {"task_source": "github", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "7"}


def tried(task):
    """Summaries that were asked for and not used."""
    failed = [one["why"] for one in task.events("compaction_failed") if one["strategy"] == "summary"]
    return [why for why in failed if "not asked" not in why]


@pytest.mark.parametrize("window", [4096, 6144])
@pytest.mark.parametrize("strategy", ["hybrid", "summary"])
@pytest.mark.parametrize("size", [120, 300, 600])
@pytest.mark.parametrize("head", [20, 120, 200])
def test_on_a_small_window_at_most_one_summary_of_thirty_turns_is_wasted(new_task, window, strategy, size, head):
    task = new_task(context_length=window, strategy=strategy).begin(system="You are a careful agent. " * head)
    for _ in range(30):
        task.group(size)
        task.window.plan()
        if task.window.needs_compaction():
            task.window.compact()
    assert task.events("compaction")
    assert len(tried(task)) <= 1, tried(task)


def test_where_no_summary_could_free_a_tenth_none_is_asked_for(new_task):
    task = new_task(strategy="summary", min_messages_to_summarize=1, keep_recent_messages=0)
    task.begin_large(5000).group(60).group(60)
    task.compressor.compress(force=True)
    assert task.writer.requests == []
    [failed] = [one for one in task.events("compaction_failed") if one["strategy"] == "summary"]
    assert "not asked" in failed["why"]


def test_after_two_that_could_not_be_used_the_pauses_grow(new_task):
    task = new_task("OK.", strategy="summary").begin()
    asked = []
    for _ in range(30):
        done = len(task.events("compaction"))
        while len(task.events("compaction")) == done:
            task.group(400)
            if task.compressor.should_compress():
                task.compressor.compress()
        asked.append(len(task.writer.requests))
    new = [number for number, (one, before) in enumerate(zip(asked, [0, *asked], strict=False)) if one > before]
    assert new[:4] == [0, 1, 1 + PAUSES[2], 1 + PAUSES[2] + PAUSES[3]]
    assert {one["strategy"] for one in task.events("compaction")} == {"window"}


class Home:
    """A task over HTTP, whose processes come and go."""

    def __init__(self, folder, reply):
        self.server = Script(reply)
        storage = {"base_dir": str(folder / "contexts"), "durability": "none", "strategy": "summary"}
        llm = {"model": "m", "context_length": 8192, "base_url": self.server.url, "api_key": "k"}
        self.settings = settings_of({"context_storage": storage, "llm": {"provider": "openai", "openai": llm}})
        self.calls = 0
        self.open()
        self.store.add_message("system", "You are careful.")
        self.store.add_message("user", "Fix the bug.")

    def open(self):
        self.context = TaskContextManager(KEY, "u-1", self.settings)
        self.store = self.context.get_message_store()
        self.client = make_client(self.settings, self.store, self.context.context_dir)
        self.window = make_window(self.settings, self.context, self.client)

    def close(self):
        self.client.close()
        self.context.close()

    def restart(self):
        self.close()
        self.open()

    def compaction(self):
        """Turns until one more compaction left messages out."""
        done = self.store.compactions.count()
        while self.store.compactions.count() == done:
            self.calls += 1
            call = {"id": f"c{self.calls}", "name": "read_file", "arguments": {"path": f"f{self.calls}.py"}}
            self.store.add_message("assistant", "On.", tool_calls=[call])
            self.store.add_message("tool", f"line {self.calls} of the file\n" * 50, tool_call_id=f"c{self.calls}")
            if self.window.needs_compaction():
                self.window.compact()


@pytest.fixture
def home(tmp_path):
    made = []

    def make(reply):
        made.append(Home(tmp_path, reply))
        return made[-1]

    yield make
    for one in made:
        one.close()
        one.server.close()


def test_a_new_process_reads_from_the_files_what_did_not_help(home):
    task = home(lambda _: says("openai", "OK."))
    for number in range(1, 10):
        task.compaction()
        known = task.window.compressor.attempts
        assert SummaryAttempts.read(task.store) == known, number
        task.restart()
        assert task.window.compressor.attempts == known
    assert len(task.server.asked) == 3


def test_a_summary_that_was_used_ends_the_pause(home):
    answers = iter(["OK.", "OK."])
    task = home(lambda request: says("openai", next(answers, "") or honest(request.json["messages"][0]["content"])))
    for _ in range(2 + PAUSES[2]):
        task.compaction()
    task.restart()
    assert task.window.compressor.attempts == SummaryAttempts()
    assert [one["strategy"] for one in task.store.compactions.all()][-1] == "summary"
    task.compaction()
    assert [one["strategy"] for one in task.store.compactions.all()][-1] == "summary"


def test_a_process_that_died_while_it_asked_has_wasted_nothing(home):
    task = home(lambda _: says("openai", "OK."))
    task.compaction()
    requests = task.store.requests
    begun = requests.begin(purpose="summary", provider="openai", model="m", tokens=100)
    task.close()
    from agent.context import requests as module

    module._under_way.pop(begun["id"])  # as another process sees it
    task.open()
    newest = requests.file.last()
    assert (newest["purpose"], newest["status"]) == ("summary", "interrupted")
    assert task.window.compressor.attempts == SummaryAttempts(wasted=1, since=1)


def test_lines_of_an_older_program_say_nothing(home):
    task = home(lambda _: says("openai", "OK."))
    task.compaction()
    path = task.context.context_dir / "compactions.jsonl"
    line = path.read_text()
    number = task.store.requests.newest()
    assert f',"requests":{number}' in line
    task.close()
    path.write_text(line.replace(f',"requests":{number}', ""))
    task.open()
    assert task.window.compressor.attempts == SummaryAttempts()
